"""Start the trial S3 gateway; `make s3` calls this once it is built."""

from django.conf import settings

from installation.machine import trial_servers
from installation.management.commands._trial import TrialCommand, demo_advice


class Command(TrialCommand):
    """Start the gateway if necessary, and print its address; or only stop the gateway."""

    help = "Start the trial S3 gateway; --stop ends only the gateway."

    def server(self) -> trial_servers.Gateway:
        """Return the gateway."""
        return trial_servers.Gateway(settings.HOME.s3)

    def advice(self) -> str:
        """Return how queries use the gateway."""
        access_key, secret_key = trial_servers.SECRETS
        return (
            f"Checkpoints begin with s3a://{trial_servers.BUCKET}/; the keys are the secrets "
            f"file:{access_key} and file:{secret_key} (docs/storage.md)\n"
            + demo_advice("shows a query with its checkpoint in the bucket", "it in the demo")
        )
