"""Start the trial Kafka broker: what `make kafka` calls once the jars are there."""

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from controlplane.machine import claims, java, kafka
from controlplane.machine.trouble import Trouble


class Command(BaseCommand):
    """Start the broker unless it runs, and print its address; or stop only the broker."""

    help = "Start the trial Kafka broker; --stop ends it and leaves everything else alone."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the switch that ends it."""
        parser.add_argument("--stop", action="store_true", help="end the broker, keep its records")

    def handle(self, *args: Any, stop: bool, **options: Any) -> None:
        """Start or stop."""
        broker = kafka.Broker(settings.HOME.kafka)
        if stop:
            ran = broker.stop()
            self.stdout.write("The Kafka broker is stopped." if ran else "No Kafka broker runs.")
            return
        settings.HOME.make()
        try:
            found = java.choose(settings.HOME.java)
            self.stdout.write(f"Java   {found.sentence()}")
            started = broker.start(found.home)
            kafka.keep_secret(broker, settings.SECRETS_DIR)
        except Trouble as trouble:
            self.stderr.write(str(trouble))
            sys.exit(1)
        self.stdout.write(f"Kafka  {broker.sentence()}")
        self.stdout.write("Started." if started else "It is already running.")
        self.stdout.write(
            f"User {kafka.USER}; a query gives the password as kafka.sasl.jaas.config = "
            f"file:{kafka.SECRET}"
        )
        if claims.holder(settings.HOME) is None:
            self.stdout.write("`make run` feeds it and shows the streams; `make stop` ends both.")
        else:
            self.stdout.write(
                "Headgate is already running: stop it with Ctrl-C and run `make run` again to see "
                "the Kafka demo. Drivers keep running in the meantime."
            )
