"""Run a worker in a container, and end its drivers before the container stops.

On a host, drivers outlive the worker. In a container, all processes end with the first one, so
drivers get time to finish the batches in flight.
"""

import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DatabaseError
from django.utils import timezone

from installation.machine import drivers
from installation.machine.programs import worker_command

DRIVERS_LEAVE_S = 90


class Command(BaseCommand):
    """Run the worker; on SIGTERM, stop it first, so that it starts no drivers, then end them."""

    help = "Run a Celery worker, and end this host's drivers when it is stopped."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until the worker exits or SIGTERM arrives."""
        worker = subprocess.Popen(worker_command())

        def leave(number: int, frame: Any) -> None:
            worker.terminate()

        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGINT, leave)
        code = worker.wait()
        if code not in (0, -signal.SIGTERM):
            sys.exit(code if code > 0 else 128 - code)  # a crash: the engine restarts it
        count = len(drivers.living())
        if count:
            self.stdout.write(f"Ending {count} of this host's drivers…")
            with suppress(DatabaseError):
                drivers.end(now=timezone.now(), limit_s=DRIVERS_LEAVE_S)
            drivers.end_without_rows(limit_s=5)
