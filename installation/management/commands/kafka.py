"""Start the trial Kafka broker; `make kafka` calls this once the jars exist."""

from django.conf import settings

from installation.machine import kafka
from installation.management.commands._trial import TrialCommand, demo_advice


class Command(TrialCommand):
    """Start the broker if necessary, and print its address; or only stop the broker."""

    help = "Start the trial Kafka broker; --stop ends only the broker."

    def server(self) -> kafka.Broker:
        """Return the broker."""
        return kafka.Broker(settings.HOME.kafka)

    def advice(self) -> str:
        """Return how queries use the broker."""
        return (
            f"User {kafka.USER}; to set the password in queries, use kafka.sasl.jaas.config = "
            f"file:{kafka.SECRET}\n"
            + demo_advice("sends records to the broker and shows the streams", "the Kafka demo")
        )
