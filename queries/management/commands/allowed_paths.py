"""Report the HEADGATE_ALLOWED_PATHS that the existing definitions need."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from queries.services.definitions.surroundings import places_outside


class Command(BaseCommand):
    """List the locations outside the allowed paths, without changing anything."""

    help = "List locations in definitions that are outside HEADGATE_ALLOWED_PATHS."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line for each location, then the setting that would allow all of them."""
        outside = list(places_outside())
        for location in outside:
            self.stdout.write(f"{location.about}: {location.field} {location.text}")
        if not outside:
            self.stdout.write("All definitions stay within the allowed paths.")
            return
        roots = [
            *settings.ALLOWED_PATHS,
            *sorted({location.root for location in outside if location.root}),
        ]
        self.stdout.write(
            "\nThe next start of these queries will be rejected. To allow all of them:"
        )
        self.stdout.write(f"HEADGATE_ALLOWED_PATHS={','.join(dict.fromkeys(roots))}")
