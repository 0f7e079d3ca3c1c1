"""Tell a container engine whether one of our processes works, by its heartbeat."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from controlplane.health.system import system_health
from controlplane.hosts import heard_of

#: Names that a health check may ask for, and the part of the system's health that answers.
PARTS = ("worker", "beat", "ingester")


class Command(BaseCommand):
    """Exit with 0 where the named part (of the worker: this host's) works, else 1 and why."""

    help = "Check one part of the system: worker, beat or ingester."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the part."""
        parser.add_argument("part", choices=PARTS)

    def handle(self, *args: Any, part: str, **options: Any) -> None:
        """Check it."""
        for one in system_health(timezone.now()).parts:
            if one.name == part and not one.ok:
                raise CommandError(one.sentence)
        if part == "worker" and settings.HEADGATE_HOST not in heard_of():
            raise CommandError(f"The worker of host {settings.HEADGATE_HOST} is silent.")
