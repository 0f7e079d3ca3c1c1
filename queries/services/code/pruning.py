"""Delete code and packages that have not been referenced for several days.

These objects contain references: each revision of an existing application (a rollback may return to
it), drivers and runs that are alive or within retention, and unfinished deploys and operations. A
folder is deleted only while holding the lock that preparing and starting also take, so no start
finds a folder that is being deleted.
"""

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Min, Q

from headgate_ground.files import lock_of, read_file, take_lock
from headgate_ground.tolerant.values import at_s
from listeners.loops.troubles import loop_errors
from queries.domain.code.digests import named, sha256_of
from queries.domain.code.retention import StoredFolder, forgotten
from queries.domain.deploys.states import ChangeKind
from queries.domain.states import OPEN_DRIVER_STATES, OperationOutcome, RunOutcome
from queries.models.applications import ApplicationRevision, UploadedCode
from queries.models.deploys.receipts import Deploy, DeployChange
from queries.models.drivers import Driver, Run
from queries.models.history import Operation
from queries.models.installation import Installation
from queries.selectors import code as places
from queries.services.code.unpacking import DRAFT

logger = logging.getLogger(__name__)
_loop = loop_errors("code", logger)

#: Items of each kind deleted per run of the task.
_AT_ONCE = 500
#: An older draft was left by a process that died.
_DRAFT_LIVES_S = 24 * 3600
_CONTENT = re.compile(r"[0-9a-f]{64}")


@dataclass(slots=True)
class Names:
    """The names of the folders and files on this host that are referenced."""

    uploads: set[str] = field(default_factory=set)  # SHA-256
    code: set[str] = field(default_factory=set)  # SHA-256: uploads and other code that drivers run
    notes: set[str] = field(default_factory=set)  # of commits
    packages: set[str] = field(default_factory=set)

    def add(self, code: Any, packages: Any) -> None:
        """Add the code and packages that an application's definition references."""
        if isinstance(code, dict) and (sha256 := sha256_of(str(code.get("upload") or ""))):
            self.uploads.add(sha256)
        elif isinstance(code, dict) and code.get("git"):
            parts = (str(code.get(name) or "") for name in ("git", "commit", "folder"))
            self.notes.add(places.note_of(*parts).name)
        for shipped in (False, True) if isinstance(packages, str) else ():
            # Regardless of the current master: a driver may run on the previous one.
            if folder := places.folder_of_packages(packages, shipped=shipped):
                self.packages.add(folder.name)


def prune_contents(*, now: datetime) -> int:
    """Delete this host's code and packages that have long been unreferenced; return how many.

    Items that cannot be deleted are logged and do not block the others.
    """
    before = now - timedelta(days=settings.CODE_DAYS)
    code_dir, notes = Path(settings.CODE_DIR), Path(settings.CODE_DIR) / "git"
    names = find_names(now=now)
    removed = _forget_uploads(names, before)
    removed += _remove(notes, names.notes, before)
    names.code |= names.uploads | _fetched(notes)
    names.code |= set(UploadedCode.objects.values_list("sha256", flat=True))
    removed += _remove(code_dir, names.code, before)
    living = Driver.objects.filter(state__in=sorted(OPEN_DRIVER_STATES))
    oldest = living.aggregate(oldest=Min("created_at"))["oldest"]
    removed += _remove(Path(settings.PACKAGES_DIR), names.packages, before, oldest)
    for folder in (code_dir, Path(settings.PACKAGES_DIR)):
        _remove_drafts(folder, now)
    return removed


def find_names(*, now: datetime) -> Names:
    """Return the names that definitions, runs and unfinished work reference."""
    names = Names()
    since = now - timedelta(days=settings.HISTORY_RETENTION_DAYS)
    drivers = Driver.objects.filter(Q(ended_at=None) | Q(ended_at__gte=since))
    runs = Run.objects.filter(Q(outcome=RunOutcome.OPEN) | Q(ended_at__gte=since))
    used = Q(application__archived_at=None) | Q(pk__in=drivers.values("application_revision"))
    revisions = ApplicationRevision.objects.filter(used)
    unfinished = DeployChange.objects.filter(deploy__ended_at=None, kind=ChangeKind.APPLICATION)
    for code, packages in (
        *revisions.values_list("spec__code", "spec__packages").distinct(),
        *unfinished.values_list("spec__code", "spec__packages"),
        *Operation.objects.filter(
            outcome=OperationOutcome.OPEN, arguments__has_key="application_spec"
        ).values_list("arguments__application_spec__code", "arguments__application_spec__packages"),
    ):
        names.add(code, packages)
    # Any text in a set can name uploads: through a value, or for a new application.
    for request in Deploy.objects.filter(ended_at=None).values_list("asked", flat=True):
        names.uploads |= set(re.findall(r"sha256:([0-9a-f]{64})", str(request)))
    for rows in (drivers, runs):
        names.code |= set(rows.exclude(code_sha256="").values_list("code_sha256", flat=True))
    return names


def _forget_uploads(names: Names, before: datetime) -> int:
    """Delete the rows of unreferenced uploads, so that they can no longer be referenced."""
    old = UploadedCode.objects.filter(uploaded_at__lt=before, host=settings.HEADGATE_HOST)
    rows = old.order_by("uploaded_at").values_list("pk", "sha256")
    forgotten_ones = [(pk, sha256) for pk, sha256 in rows if sha256 not in names.uploads]
    removed = 0
    for pk, sha256 in forgotten_ones[:_AT_ONCE]:
        with _loop.isolate_errors(f"upload {sha256[:12]}"), transaction.atomic():
            Installation.lock()  # definitions are saved under this lock: no new references
            revisions = ApplicationRevision.objects.filter(application__archived_at=None)
            if not revisions.filter(spec__code__upload=named(sha256)).exists():
                expired = UploadedCode.objects.filter(pk=pk, uploaded_at__lt=before)
                removed += expired.delete()[0]
    return removed


def _fetched(notes: Path) -> set[str]:
    """Return the contents of the commits whose notes still exist."""
    files = [note for note in _listed(notes) if note.is_file()]
    return {sha256 for note in files if (sha256 := read_file(note, 64))}


def _remove(
    folder: Path, referenced: Iterable[str], before: datetime, oldest_driver: datetime | None = None
) -> int:
    """Delete the prunable contents of a folder; return how many."""
    contents = [StoredFolder(path.name, _used_at(path)) for path in _listed(folder)]
    going = forgotten(contents, named=set(referenced), before=before, oldest_driver=oldest_driver)
    removed = 0
    for name in going[:_AT_ONCE]:
        with _loop.isolate_errors(f"content {name[:12]}"):
            removed += _remove_unless_used(folder / name, before)
    return removed


def _listed(folder: Path) -> list[Path]:
    """Return a folder's contents, except locks, drafts, failure marks and caches."""
    with suppress(FileNotFoundError):
        return [path for path in folder.iterdir() if _CONTENT.fullmatch(path.name)]
    return []


def _used_at(path: Path) -> datetime:
    with suppress(FileNotFoundError):
        if (at := at_s(path.stat().st_mtime)) is not None:
            return at
    return datetime.max.replace(tzinfo=UTC)  # gone already, or a time out of range


def _remove_unless_used(path: Path, before: datetime) -> bool:
    """Delete one item unless it is in use; return whether it is gone."""
    lock = take_lock(lock_of(path))
    if lock is None:
        return False
    try:
        if _used_at(path) >= before:  # used since it was examined
            return False
        away = Path(tempfile.mkdtemp(prefix=DRAFT, dir=path.parent))
        path.rename(away / path.name)
    finally:
        os.close(lock)
    shutil.rmtree(away)
    logger.info("deleted %s, which was no longer referenced", path.name[:12])
    return True


def _remove_drafts(folder: Path, now: datetime) -> None:
    for draft in folder.glob(f"{DRAFT}*"):
        with _loop.isolate_errors(f"draft {draft.name}"), suppress(FileNotFoundError):
            if now.timestamp() - draft.stat().st_mtime > _DRAFT_LIVES_S:
                shutil.rmtree(draft)
