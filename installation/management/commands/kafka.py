"""Start the trial Kafka broker; `make kafka` calls this once the jars exist."""

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from controlplane.home import Trouble
from headgate_server import places
from installation.machine import java, kafka


class Command(BaseCommand):
    """Start the broker if necessary, and print its address; or only stop the broker."""

    help = "Start the trial Kafka broker; --stop ends only the broker."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the switch that stops the broker."""
        parser.add_argument(
            "--stop", action="store_true", help=("end the broker, but keep its records")
        )

    def handle(self, *args: Any, stop: bool, **options: Any) -> None:
        """Start or stop."""
        broker = kafka.Broker(settings.HOME.kafka)
        if stop:
            ran = broker.stop()
            self.stdout.write(
                "The Kafka broker is stopped." if ran else "No Kafka broker is running."
            )
            return
        try:
            settings.HOME.make()
            found = java.choose(settings.HOME.java)
            self.stdout.write(f"Java   {found.sentence()}")
            started = broker.start(found.home)
            kafka.keep_secret(broker, settings.SECRETS_DIR)
        except Trouble as trouble:
            self.stderr.write(str(trouble))
            sys.exit(1)
        self.stdout.write(f"Kafka  {broker.sentence()}")
        self.stdout.write("Started." if started else "The broker was already running.")
        self.stdout.write(
            f"User {kafka.USER}; to set the password in queries, use kafka.sasl.jaas.config = "
            f"file:{kafka.SECRET}"
        )
        if settings.HOME.holder() is None:
            said = (
                "`make run` sends records to the broker and shows the streams; `make stop` ends "
                "both."
            )
        else:
            said = (
                "Headgate is already running. Stop it with Ctrl-C and run `make run` again to see "
                "the Kafka demo. Drivers keep running in the meantime."
            )
        self.stdout.write(places.with_local_commands(said))
