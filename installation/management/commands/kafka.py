"""Start the trial Kafka broker; `make kafka` calls this once the jars exist."""

from django.conf import settings

from installation.machine import trial_servers
from installation.management.commands._trial import TrialCommand, demo_advice


class Command(TrialCommand):
    """Start the broker if necessary, and print its address; or only stop the broker."""

    help = "Start the trial Kafka broker; --stop ends only the broker."

    def server(self) -> trial_servers.Broker:
        """Return the broker."""
        return trial_servers.Broker(settings.HOME.kafka)

    def advice(self) -> str:
        """Return how queries use the broker."""
        return (
            f"User {trial_servers.USER}; to set the password in queries, use "
            f"kafka.sasl.jaas.config = file:{trial_servers.SECRET}\n"
            + demo_advice("sends records to the broker and shows the streams", "the Kafka demo")
        )
