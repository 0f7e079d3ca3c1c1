"""Start a Spark standalone cluster on loopback; `make cluster` calls this."""

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from controlplane.home import StartProblem
from headgate_server import places
from installation.machine.cluster import WORKERS, Cluster


class Command(BaseCommand):
    """Start the trial cluster if necessary; print how to use it in an application."""

    help = "Start a trial Spark standalone master and two workers on this host."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """Start it and print its address."""
        cluster = Cluster.of(settings.HOME)
        try:
            settings.HOME.make()
            self.stdout.write(f"Starting a Spark master and {WORKERS} workers on loopback…")
            cluster.start()
        except StartProblem as trouble:
            self.stderr.write(str(trouble))
            sys.exit(1)
        self.stdout.write(f"Master   {cluster.master}")
        self.stdout.write(f"Page     {cluster.ui}")
        self.stdout.write(f"Logs     {cluster.home.logs}")
        hint = (
            f"Set an application's master to {cluster.master} and restart it; see "
            "docs/cluster.md. `make stop` ends the cluster."
        )
        self.stdout.write(places.with_local_commands(hint))
