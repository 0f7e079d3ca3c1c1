"""Start the trial HDFS and YARN; `make hadoop` calls this once their jars exist."""

from django.conf import settings

from installation.machine.trial_servers import MiniHadoop
from installation.management.commands._trial import TrialCommand


class Command(TrialCommand):
    """Start HDFS and YARN if necessary, and print their address; or only stop them."""

    help = "Start HDFS and YARN for trials; --stop ends only them."

    def server(self) -> MiniHadoop:
        """Return the clusters."""
        return MiniHadoop(settings.HOME.hadoop, port=settings.HADOOP_PORT)

    def advice(self) -> str:
        """Return how queries and applications use the clusters."""
        hadoop = self.server()
        return (
            f"Checkpoints on HDFS begin with {hadoop.place}/, for which applications need a data "
            "root (docs/storage.md).\n"
            f"For applications on YARN, run `HADOOP_CONF_DIR={hadoop.conf} make run` and use the "
            "master yarn (docs/cluster.md).\n"
            "`make stop` ends HDFS and YARN."
        )
