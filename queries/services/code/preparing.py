"""Stored code: prepare it before a driver needs it, freeze one driver's copy, delete unused code.

Fetching and installing can take minutes, and supervision does not wait for them: reconcile starts
the preparation (`begin`) and checks again until everything is in place (`take`). A failure is
reported once, for the application; the next requested start tries again.

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
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import close_old_connections, transaction
from django.db.models import Min, Q

from headgate_ground.files import lock_of, read_file, replace_file, take_lock, use_folder
from headgate_ground.tolerant import at_s
from listeners.loops.backlogs import loop_errors
from queries.domain.code.archives import StoredFolder, forgotten, named, sha256_of
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.deploys.request import ChangeKind
from queries.domain.sparks import SPARKS
from queries.domain.states import OPEN_DRIVER_STATES, OperationOutcome, RunOutcome
from queries.launchers.base import Launcher, LaunchRefused
from queries.models.applications import ApplicationRevision, UploadedCode
from queries.models.deploys import Deploy, DeployChange
from queries.models.drivers import Driver, Installation, Run
from queries.models.history import Operation
from queries.selectors import code as places
from queries.selectors.code import count_of_roots
from queries.services.code.git import FetchFailed, fetch
from queries.services.code.packages import InstallFailed, install
from queries.services.code.uploads import DRAFT

logger = logging.getLogger(__name__)

#: Parallel preparations: each uses a core and much of the network bandwidth.
AT_ONCE = 2
_at_work: dict[Path, threading.Thread] = {}
_lock = threading.Lock()
_slots = threading.Semaphore(AT_ONCE)


@dataclass(frozen=True, slots=True)
class InPlace:
    """The folders of an application's code and packages on this host."""

    roots: tuple[str, ...] = ()  # of code, in import order
    packages: str = ""  # folder; "" if none


def take(spec: ApplicationSpec) -> InPlace:
    """Return the folders of the code and packages.

    Raises `LaunchRefused` if they could not be prepared, with the recorded failure, which it
    clears. While they are being prepared, raises it with `passing`.
    """
    reasons = [_pop_failure(missing_path) for missing_path in places.missing_places(spec)]
    if reason := " ".join(filter(None, reasons)):
        raise LaunchRefused(reason)
    if reasons:
        raise LaunchRefused("Its code or packages are being prepared.", passing=True)
    roots = places.roots_of(spec)
    if roots is None:
        assert spec.code is not None, "what lies in python_path is always named"
        raise LaunchRefused(
            f"The code {spec.code.upload[:19]} is not on host {settings.HEADGATE_HOST}. "
            "Upload it again, or share HEADGATE_HOME/code between the hosts."
        )
    folder = places.packages_folder(spec) if spec.packages.strip() else None
    code_root = places.root_of(spec.code)
    used_paths = [
        path for path in (code_root.parent if code_root else None, folder) if path is not None
    ]
    if not all(map(use_folder, used_paths)):  # one has just been released
        raise LaunchRefused("Its code or packages are being prepared.", passing=True)
    return InPlace(roots, str(folder or ""))


def _pop_failure(path: Path) -> str:
    """Return and clear the reason why a place could not be prepared; "" if none is known."""
    marker = places.marker(path)
    reason = read_file(marker) or ""
    marker.unlink(missing_ok=True)
    return reason


def begin(spec: ApplicationSpec) -> None:
    """Start preparing the missing places, unless that is already in progress."""
    missing = places.missing_places(spec)
    for path in missing:
        is_code = spec.code is not None and path == places.git_note(spec.code)
        work = partial(fetch, spec.code) if spec.code and is_code else partial(install, spec)
        with _lock:
            if path in _at_work or places.marker(path).exists():
                continue
            thread = threading.Thread(
                target=_fill, args=(path, spec, work), name="code and packages", daemon=True
            )
            _at_work[path] = thread
        thread.start()


def wait(timeout_s: float) -> None:
    """Wait until nothing is being prepared, at most `timeout_s`."""
    with _lock:
        threads = list(_at_work.values())
    for thread in threads:
        thread.join(timeout_s)


def _fill(path: Path, spec: ApplicationSpec, work: Callable[[], None]) -> None:
    try:
        with _slots:
            _alone(path, spec, work)
    except Exception as error:  # thread boundary: the application reports the failure
        is_expected = isinstance(error, FetchFailed | InstallFailed)
        if not is_expected:
            logger.exception("code or packages could not be put into place")
        _note(path, str(error) if is_expected else f"An error in Headgate: {type(error).__name__}.")
    finally:
        close_old_connections()
        with _lock:
            _at_work.pop(path, None)


def _alone(path: Path, spec: ApplicationSpec, work: Callable[[], None]) -> None:
    """Do the work unless another process on this host is doing it or has done it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = take_lock(lock_of(path))
    if lock is None:
        return
    try:
        if path in places.missing_places(spec):
            work()
            logger.info("put into place: %s", path.name[:12])
    finally:
        os.close(lock)


def _note(path: Path, reason: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(places.marker(path), reason)
    except OSError:
        logger.exception("could not record a failure: %s", reason)


@dataclass(frozen=True, slots=True)
class Frozen:
    """The code and packages that a driver imports."""

    roots: tuple[str, ...] = ()  # copies, in import order
    sha256: str = ""  # of all of them
    packages: str = ""  # folder; "" if none


NO_CODE = Frozen()


def freeze(spec: ApplicationSpec, launcher: Launcher) -> Frozen:
    """Return the code and packages for a driver that is launched now.

    Raises `LaunchRefused` if they are not available, with `passing` while they are being prepared.
    """
    prepared_code = take(spec)
    roots, sha256 = launcher.freeze_code(prepared_code.roots)
    return Frozen(roots, sha256, prepared_code.packages)


def frozen(driver: Driver, launcher: Launcher) -> Frozen:
    """Return the code and packages frozen for a driver whose launch must be completed.

    Raises `LaunchRefused` if the copy is gone and cannot be restored.
    """
    spec = ApplicationSpec.model_validate(driver.application_revision.spec)
    prepared_code = take(spec)
    copies = launcher.frozen_code(count_of_roots(spec), driver.code_sha256)
    if copies is None:  # the same code gives the same copies
        copies, now = launcher.freeze_code(prepared_code.roots)
        if now != driver.code_sha256:
            raise LaunchRefused(
                f"The copy of the code for driver {driver.epoch} ({driver.code_sha256[:12]}) "
                "is gone, and the files have changed since. Start the application again; a new "
                "driver runs the current files."
            )
    return Frozen(copies, driver.code_sha256, prepared_code.packages)


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
        for spark, shipped in product(SPARKS, (False, True)) if isinstance(packages, str) else ():
            # Regardless of the current Spark and master: a driver may run on the previous ones.
            if folder := places.folder_of_packages(packages, spark, shipped=shipped):
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
    used_revisions = Q(application__archived_at=None) | Q(
        pk__in=drivers.values("application_revision")
    )
    revisions = ApplicationRevision.objects.filter(used_revisions)
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
                expired_uploads = UploadedCode.objects.filter(pk=pk, uploaded_at__lt=before)
                removed += expired_uploads.delete()[0]
    return removed


def _fetched(notes: Path) -> set[str]:
    """Return the contents of the commits whose notes still exist."""
    files = [note for note in _listed(notes) if note.is_file()]
    return {sha256 for note in files if (sha256 := read_file(note, 64))}


def _remove(
    folder: Path,
    referenced_names: Iterable[str],
    before: datetime,
    oldest_driver: datetime | None = None,
) -> int:
    """Delete the prunable contents of a folder; return how many."""
    contents = [StoredFolder(path.name, _used_at(path)) for path in _listed(folder)]
    going = forgotten(
        contents, named=set(referenced_names), before=before, oldest_driver=oldest_driver
    )
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
