"""Start a Spark standalone cluster on loopback: what `make cluster` calls."""

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from controlplane.machine.cluster import WORKERS, Cluster
from controlplane.machine.trouble import Trouble


class Command(BaseCommand):
    """Start the trial cluster, or find it running; say how an application gets onto it."""

    help = "Start a trial Spark standalone master and two workers on this host."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """Start it and say where it is."""
        settings.HOME.make()
        cluster = Cluster.of(settings.HOME)
        self.stdout.write(f"Starting a Spark master and {WORKERS} workers on loopback…")
        try:
            cluster.start()
        except Trouble as trouble:
            self.stderr.write(str(trouble))
            sys.exit(1)
        self.stdout.write(f"Master   {cluster.master}")
        self.stdout.write(f"Page     {cluster.ui}")
        self.stdout.write(f"Logs     {cluster.home.logs}")
        self.stdout.write(
            f"Give an application the master {cluster.master} and restart it; see "
            "docs/cluster.md. `make stop` ends the cluster."
        )
