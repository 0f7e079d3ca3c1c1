"""Stop the whole system on one host, including drivers; `make stop` calls this."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import DatabaseError
from django.utils import timezone

from headgate_server import places
from installation.machine import claims, drivers, trial_servers
from installation.machine.cluster import Cluster
from installation.machine.kubernetes import Kubernetes
from queries.services.system.installation import request_shutdown

#: Seconds beyond the queries' graceful stop: for Spark itself and the driver's exit.
LEAVE_S = 40
#: Seconds for drivers ended directly, because they are not supervised or do not exit.
DIRECT_END_LIMIT_S = 45
UP_LIMIT_S = 90


class Command(BaseCommand):
    """End the drivers, then the programs; each query keeps its desired state."""

    help = "Stop everything that runs from this data folder, including drivers."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """Have supervision end the drivers if it is running, end the rest, and print the result."""
        self.home = settings.HOME
        pid = self.home.holder()
        living = len(drivers.living())
        left_over = claims.own_processes(self.home)
        cluster, kubernetes = Cluster.of(self.home), Kubernetes.of(self.home)
        servers = [
            server for server in trial_servers.servers(self.home) if server.process() is not None
        ]
        clusters = cluster.running() or kubernetes.exists()
        if not (pid or living or left_over or servers or clusters):
            self.stdout.write("Nothing is running.")
            return
        if living:
            self._end_drivers(living, supervised=pid is not None)
        if pid is not None:
            claims.end_holder(self.home, limit_s=UP_LIMIT_S)
        claims.end(claims.own_processes(self.home), limit_s=30)
        if cluster.stop():  # after the drivers that run on it
            self.stdout.write("Ended the trial cluster.")
        if kubernetes.stop():
            self.stdout.write("Ended the trial Kubernetes cluster. Its images are retained.")
        for server in servers:
            if server.stop():
                self.stdout.write(f"Ended the {server.name}. Its {server.keeps} are retained.")
        message = "Stopped. The next `make run` restarts the queries that should run."
        self.stdout.write(places.with_local_commands(message))

    def _worker_runs(self) -> bool:
        """Return whether the worker is running, or `up`, which would restart it."""
        return any(process.name == "worker" for process in claims.own_processes(self.home)) or (
            self.home.holder() is not None and not self.home.ending.exists()
        )

    def _end_drivers(self, count: int, *, supervised: bool) -> None:
        if lost := drivers.without_files():
            lost_drivers = (
                "1 driver whose directory is gone"
                if len(lost) == 1
                else f"{len(lost)} drivers whose directories are gone"
            )
            self.stdout.write(f"Found {lost_drivers}, by checking processes: {', '.join(lost)}.")
        noun = "driver" if count == 1 else "drivers"
        self.stdout.write(f"Ending {count} {noun} after the batches in flight…")
        now = timezone.now()
        try:
            if supervised:
                request_shutdown(now=now)
                # After Ctrl-C, `up` is ending as well, and with it the worker that this waits for.
                drivers.wait_until_ended(
                    settings.STOP_DEADLINE_S + LEAVE_S, awaited=lambda: self._worker_runs()
                )
            killed = drivers.end(now=now, limit_s=DIRECT_END_LIMIT_S)
        except DatabaseError as error:
            self.stderr.write(
                f"The database is not responding ({error}), so sending signals to the drivers "
                "directly."
            )
            killed = drivers.end_without_rows(limit_s=DIRECT_END_LIMIT_S)
        if killed:
            self.stdout.write(f"{killed} did not exit and had to be killed.")
