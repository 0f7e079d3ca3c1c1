"""The shared part of the trial server commands: start one server, or stop only that server."""

import sys
from abc import abstractmethod
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from controlplane.home import StartProblem
from headgate_server import places
from installation.machine import java
from installation.machine.daemon import Daemon


class TrialCommand(BaseCommand):
    """Start a trial server if necessary, and print its address; or only stop the server."""

    requires_system_checks = ()

    @abstractmethod
    def server(self) -> Daemon:
        """Return the server."""

    @abstractmethod
    def advice(self) -> str:
        """Return how to use the server, which runs."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the switch that stops the server."""
        keeps = self.server().keeps
        parser.add_argument(
            "--stop", action="store_true", help=f"end the server, but keep its {keeps}"
        )

    def handle(self, *args: Any, stop: bool, **options: Any) -> None:
        """Start or stop."""
        server = self.server()
        if stop:
            ran = server.stop()
            self.stdout.write(
                f"The {server.name} is stopped." if ran else f"No {server.name} is running."
            )
            return
        try:
            settings.HOME.make()
            chosen_java = java.choose(settings.HOME.java)
            self.stdout.write(f"Java   {chosen_java.sentence()}")
            started = server.start(chosen_java.home)
            server.keep_secrets(settings.SECRETS_DIR)
        except StartProblem as trouble:
            self.stderr.write(str(trouble))
            sys.exit(1)
        self.stdout.write(f"{server.label:<6} {server.sentence()}")
        what = server.name.rpartition(" ")[2]
        self.stdout.write("Started." if started else f"The {what} was already running.")
        self.stdout.write(places.with_local_commands(self.advice()))


def demo_advice(does: str, shown: str) -> str:
    """Return how to see the part of the demo that uses the server.

    `does` describes the effect of `make run`, and `shown` what it then shows.
    """
    if settings.HOME.holder() is None:
        return f"`make run` {does}; `make stop` ends both."
    return (
        "Headgate is already running. Stop it with Ctrl-C and run `make run` again to see "
        f"{shown}. Drivers keep running in the meantime."
    )
