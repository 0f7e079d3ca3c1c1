"""Prove that nobody has changed the audit log; for a job that runs every night."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from queries.domain.access.chain import BEGINNING, Broken, Mark
from queries.files import replace_file
from queries.services.access.audit_proof import prove


class Command(BaseCommand):
    """Walk the audit log; end with 1 and the first broken entry where it is not as written."""

    help = "Prove that the audit log is whole: every entry, and that its end goes on from a head."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare where heads are read and written, and earlier keys."""
        parser.add_argument(
            "--head", type=Path, metavar="FILE", help="a head written earlier: its entry must stand"
        )
        parser.add_argument(
            "--head-out", type=Path, metavar="FILE", help="write the head there if all is whole"
        )
        parser.add_argument(
            "--old-key",
            type=Path,
            action="append",
            default=[],
            metavar="FILE",
            help="a file with a SECRET_KEY of earlier entries; may be given several times",
        )

    def handle(
        self,
        *args: Any,
        head: Path | None,
        head_out: Path | None,
        old_key: list[Path],
        **options: Any,
    ) -> None:
        """Print what was proved; raise `CommandError` where it was not."""
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
        begins = f" since old ones were removed up to {proof.begins_after}" * bool(
            proof.begins_after
        )
        self.stdout.write(
            f"The audit log is whole: {proof.entries} entries{begins}, the last is "
            f"{proof.head.number}." + f" {proof.waiting} wait to be chained." * bool(proof.waiting)
        )
        if head is None and head_out is None:
            self.stdout.write("Entries cut off its end are noticed with --head and --head-out.")
        if head_out is not None:
            said = {"number": proof.head.number, "mac": proof.head.mac, "at": now.isoformat()}
            replace_file(head_out, json.dumps(said) + "\n")


def _read_head(path: Path) -> Mark:
    try:
        said = json.loads(path.read_text())
        return Mark(int(said["number"]), str(said["mac"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} is no head: {error}", returncode=2) from error
