"""Verify that the audit log has not been changed, for example in a nightly job."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from headgate_ground.files import replace_file
from queries.domain.access import BEGINNING, Broken, Mark
from queries.domain.readings import counted
from queries.services.access.audit import prove


class Command(BaseCommand):
    """Check every entry of the audit log; report the first broken one and exit with 1."""

    help = (
        "Verify that no audit log entry was changed or removed, and with --head, that the "
        "entry of an earlier head still exists."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options for reading and writing heads, and for earlier keys."""
        parser.add_argument(
            "--head",
            type=Path,
            metavar="FILE",
            help="a head written earlier; its entry must still exist",
        )
        parser.add_argument(
            "--head-out",
            type=Path,
            metavar="FILE",
            help="write the head to this file if the log is complete",
        )
        parser.add_argument(
            "--old-key",
            type=Path,
            action="append",
            default=[],
            metavar="FILE",
            help="a file with a SECRET_KEY used for earlier entries; can be repeated",
        )

    def handle(
        self,
        *args: Any,
        head: Path | None,
        head_out: Path | None,
        old_key: list[Path],
        **options: Any,
    ) -> None:
        """Print the result; raise `CommandError` if the log is broken."""
        earlier = _read_head(head) if head else BEGINNING
        try:
            old_keys = [path.read_text().strip() for path in old_key]
        except OSError as error:
            raise CommandError(str(error), returncode=2) from error
        now = timezone.now()
        try:
            proof = prove(now=now, earlier=earlier, old_keys=old_keys)
        except Broken as error:
            raise CommandError(f"The audit log is broken. {error}") from error
        begins = f" after old entries up to {proof.begins_after} were removed" * bool(
            proof.begins_after
        )
        self.stdout.write(
            f"The audit log is complete: {counted(proof.entries, 'entry,entries')}{begins}, the "
            f"last is {proof.head.number}."
            + f" {counted(proof.waiting, 'entry is,entries are')} not chained yet."
            * bool(proof.waiting)
        )
        if head is None and head_out is None:
            self.stdout.write("To detect entries cut off at the end, use --head and --head-out.")
        if head_out is not None:
            head_written = {
                "number": proof.head.number,
                "mac": proof.head.mac,
                "at": now.isoformat(),
            }
            replace_file(head_out, json.dumps(head_written) + "\n")


def _read_head(path: Path) -> Mark:
    try:
        head = json.loads(path.read_text())
        return Mark(int(head["number"]), str(head["mac"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} is not a valid head: {error}", returncode=2) from error
