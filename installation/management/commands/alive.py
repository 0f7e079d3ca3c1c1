"""Tell a container engine, from a heartbeat, whether one of our processes works."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from controlplane.hosts import heard_of
from queries.services.system.health import system_health

#: Parts that can be checked, which are parts of the system's health.
PARTS = ("worker", "ingester")


class Command(BaseCommand):
    """Exit with 0 if the part works (of workers, this host's), otherwise with 1 and the reason."""

    help = "Check one part of the system: worker or ingester."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the part."""
        parser.add_argument("part", choices=PARTS)

    def handle(self, *args: Any, part: str, **options: Any) -> None:
        """Check it."""
        for part_health in system_health(timezone.now()).parts:
            if part_health.name == part and not part_health.ok:
                raise CommandError(part_health.sentence)
        if part == "worker" and settings.HEADGATE_HOST not in heard_of():
            raise CommandError(
                f"The worker of host {settings.HEADGATE_HOST} is not sending heartbeats."
            )
