"""Read and copy checkpoints wherever they are: on this host's disks, or on remote storage.

Steps of procedures use the two copies; a step that finds no storage JVM listening waits for it.
"""

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from django.conf import settings
from django.utils import timezone

from controlplane.nudge import changed, read_checkpoint_soon, read_snapshot_soon
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import Copied, remove
from queries.checkpoints.snapshot import snapshot as take_snapshot
from queries.domain.checkpoints.ownership import local_path
from queries.domain.errors import NotAllowed
from queries.launchers.base import Launcher, LaunchRefused
from queries.models.applications import Application
from queries.models.checkpoints import Snapshot
from queries.models.definitions import Checkpoint, Query
from queries.selectors.hosts import OnAnotherHost, about_mirror, logs_at, mirror_of, way_to
from queries.services.checkpoints.storage_jvms import NoStorage, storage_of, work_folder
from queries.services.procedures.engine import DONE, StepContext, StepResult, waiting
from queries.storage.hadoop import HadoopStorage, StorageFailed
from queries.storage.remote_checkpoint import Mirror, copy_between, delete, fetch

T = TypeVar("T")

#: How old a mirror may be before a page that shows it asks for a new reading: a reading costs some
#: ten requests to the storage.
READ_EVERY = timedelta(seconds=10)


#: How old a mirror may be for a request to be judged by it; steps always read anew.
FRESH_FOR = timedelta(seconds=15)


class NotReadYet(NotAllowed):
    """A checkpoint on remote storage has not been read yet, or not recently."""

    code = "not-read-yet"


class StorageRefused(NotAllowed):
    """The storage of a checkpoint refused, or cannot be reached."""

    code = "storage-refused"


def read_if_old(checkpoint: Checkpoint, *, now: datetime) -> None:
    """Ask this host's worker to read a remote checkpoint, unless that was done a moment ago."""
    if local_path(checkpoint.location) is None and is_old(checkpoint.location, now=now):
        read_checkpoint_soon(checkpoint.pk)


def is_old(location: str, *, now: datetime) -> bool:
    """Return whether the caller should have a location's mirror read: no one else has done so."""
    mirror = mirror_of(location)
    at = mirror.about().read_at
    return (at is None or now - at > READ_EVERY) and mirror.request_read(
        now, again_after=READ_EVERY
    )


def read_checkpoint(checkpoint_id: int, *, launcher: Launcher, now: datetime) -> bool:
    """Read a remote checkpoint's logs to this host's mirror; return whether to try again soon."""
    checkpoint = Checkpoint.objects.filter(pk=checkpoint_id, retired_at=None).first()
    if checkpoint is None or local_path(checkpoint.location) is not None:
        return False
    location = checkpoint.location
    mirror = mirror_of(location)
    first = mirror.about().read_at is None

    def read(storage: HadoopStorage) -> bool:
        if mirror.refresh(storage, location, now=now) or first:
            changed(f"query:{checkpoint.query_id}")  # the page fills before the state is counted
        return mirror.refresh_state(storage, location, now=now)

    return read_mirror(checkpoint.query, mirror, read, launcher=launcher, now=now)


def read_snapshot(snapshot_id: int, *, launcher: Launcher, now: datetime) -> bool:
    """Read a remote snapshot's logs to this host's mirror; return whether to try again soon."""
    snapshot = Snapshot.objects.filter(pk=snapshot_id, removed_at=None).first()
    if snapshot is None or local_path(snapshot.location) is not None:
        return False
    location = snapshot.location
    mirror = mirror_of(location)

    def read(storage: HadoopStorage) -> bool:
        return mirror.refresh(storage, location, now=now)

    return read_mirror(snapshot.checkpoint.query, mirror, read, launcher=launcher, now=now)


def read_mirror(
    query: Query,
    mirror: Mirror,
    read: Callable[[HadoopStorage], bool],
    *,
    launcher: Launcher,
    now: datetime,
) -> bool:
    """Let `read` fill a mirror, which returns whether there is news; note how it ended.

    Returns whether to try again soon, because the storage JVM is starting.
    """
    before = mirror.about()
    try:
        news = read(storage_of(query.application, launcher=launcher, now=now))
    except NoStorage as error:
        mirror.note(f"{error}…", read_at=before.read_at)
        return True
    except (LaunchRefused, StorageFailed, OSError) as error:
        problem = f"The mirror {mirror.folder} cannot be written: {error}"
        problem = problem if isinstance(error, OSError) else str(error)
        mirror.note(problem, read_at=before.read_at)
        news = before.problem != problem
    if news:
        changed(f"query:{query.pk}")
    return False


def prune(*, now: datetime) -> None:
    """Delete mirrors that no page has requested for a day, and day-old stages of dead workers."""
    long_ago = (now - timedelta(days=1)).timestamp()
    stages = Path(settings.DRIVERS_DIR).glob("probes/stage-*")
    for folder in (*Path(settings.MIRRORS_DIR).glob("*"), *stages):
        with suppress(FileNotFoundError):
            newest = max(path.stat().st_mtime for path in (folder, *folder.glob("asked")))
            if newest < long_ago:
                shutil.rmtree(folder, ignore_errors=True)


def copy_to_this_host(
    context: StepContext,
    location: str,
    destination: Path,
    batch: int | None = None,
    *,
    keep_commit: bool = True,
) -> Copied | StepResult:
    """Copy a checkpoint as of a batch to a folder on this host, with its own ID.

    Returns a step to wait for if the storage JVM is not up. Raises `CannotCopy`, and
    `StorageRefused` with the storage's own words.
    """
    if local_path(location) is not None:
        return take_snapshot(location, destination, batch, keep_commit=keep_commit, new_id=True)

    def copied(storage: HadoopStorage) -> Copied:
        return fetch(
            storage,
            location,
            destination,
            work_folder(),
            batch=batch,
            keep_commit=keep_commit,
        )

    began = time.monotonic()
    return _timed(location, with_storage(context, copied), began)


def copy_beside(
    context: StepContext,
    location: str,
    destination: str,
    batch: int | None = None,
    *,
    new_id: bool = False,
) -> Copied | StepResult:
    """Copy a checkpoint as of a batch to another location of the same kind.

    Returns and raises as `copy_to_this_host` does. An unfinished copy is replaced.
    """
    if (path := local_path(destination)) is not None:
        folder = Path(path)
        if folder.exists():  # a worker died before it recorded the copy
            remove(folder)
        return take_snapshot(location, folder, batch, new_id=new_id)

    def copied(storage: HadoopStorage) -> Copied:
        work = work_folder()
        return copy_between(storage, location, destination, work, batch=batch, new_id=new_id)

    began = time.monotonic()
    return _timed(location, with_storage(context, copied), began)


def fresh_logs(context: StepContext, location: str) -> CheckpointLogs | StepResult:
    """Return a checkpoint's logs as they are now: its own, or a mirror that was just read.

    Returns a step to wait for if the storage JVM is not up. Raises `NotAllowed` if they are on
    another host, and `StorageRefused`.
    """
    if local_path(location) is not None:
        return readable_logs(location)
    mirror = mirror_of(location)

    def read(storage: HadoopStorage) -> CheckpointLogs:
        mirror.refresh(storage, location, now=context.now)
        return CheckpointLogs(mirror.checkpoint)

    return with_storage(context, read)


def upload(context: StepContext, folder: Path, destination: str) -> StepResult:
    """Put a checkpoint that was built in a folder where it belongs."""

    def put(storage: HadoopStorage) -> StepResult:
        storage.delete(destination)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                storage.write(destination, str(path.relative_to(folder)), path.read_bytes())
        return DONE

    return with_storage(context, put)


def delete_copy(
    location: str, application: Application, *, launcher: Launcher, now: datetime
) -> StepResult:
    """Delete a copy of a checkpoint; does nothing if it is gone."""
    if (path := local_path(location)) is not None:
        remove(Path(path))
        return DONE
    try:
        delete(storage_of(application, launcher=launcher, now=now), location)
    except NoStorage as error:
        return waiting(str(error))
    except (LaunchRefused, StorageFailed) as error:
        raise _refused(error) from error
    return DONE


def with_storage(
    context: StepContext, act: Callable[[HadoopStorage], T], application: Application | None = None
) -> T | StepResult:
    """Return what `act` returns, or a step to wait for until the storage JVM is up.

    The storage is that of `application`, or of the query's.
    """
    try:
        reached = application or context.query.application
        return act(storage_of(reached, launcher=context.launcher, now=context.now))
    except NoStorage as error:
        return waiting(str(error))
    except (LaunchRefused, StorageFailed) as error:
        raise _refused(error) from error


def _timed(location: str, copied: Copied | StepResult, began: float) -> Copied | StepResult:
    """Remember how fast a copy was, for the next one's expected time."""
    if isinstance(copied, Copied):
        mirror_of(location).note_copy(copied.files, time.monotonic() - began)
    return copied


def readable_logs(location: str, *, fresh_for: timedelta | None = FRESH_FOR) -> CheckpointLogs:
    """Return a checkpoint's logs for a request: its own, or a recently read mirror.

    Raises `NotAllowed` if they are on another host, and `NotReadYet` for a checkpoint on remote
    storage that was not read within `fresh_for` (None: ever); this host's worker then reads it.
    """
    if local_path(location) is None:
        return _mirrored(location, fresh_for, timezone.now())
    try:
        return logs_at(location)
    except OnAnotherHost as error:
        raise NotAllowed(str(error), way_out=way_to(error.host)) from error


def _mirrored(location: str, fresh_for: timedelta | None, now: datetime) -> CheckpointLogs:
    checkpoint = Checkpoint.objects.filter(location=location, retired_at=None).first()
    if checkpoint is not None:
        read_if_old(checkpoint, now=now)
        application = checkpoint.query.application
        return CheckpointLogs(fresh_mirror(location, application, fresh_for, now=now))
    snapshot = Snapshot.objects.filter(location=location, removed_at=None).first()
    if snapshot is None:
        raise NotAllowed(
            f"No checkpoint or snapshot of a query is at {location}.", way_out="Reload the page."
        )
    if mirror_of(location).about().read_at is None and is_old(location, now=now):
        read_snapshot_soon(snapshot.pk)
    application = snapshot.checkpoint.query.application
    # It never changes: once is enough.
    return CheckpointLogs(fresh_mirror(location, application, None, now=now))


def fresh_mirror(
    location: str,
    application: Application | None,
    fresh_for: timedelta | None = FRESH_FOR,
    *,
    now: datetime,
    what: str = "checkpoint",
) -> Path:
    """Return the folder of a mirror that was read within `fresh_for` (None: ever).

    Raises `NotReadYet` if it was not, with the reason if the application's mirror is unanswered.
    """
    mirror = mirror_of(location)
    about = mirror.about()
    if about.read_at is not None and (fresh_for is None or now - about.read_at <= fresh_for):
        return mirror.checkpoint
    if application is not None:
        about = about_mirror(location, application, now=now, what=what)
    detail = f" {about.problem}" if about.problem else ""
    raise NotReadYet(f"{location} is being read.{detail}", way_out="Try again in a few seconds.")


def _refused(error: Exception) -> StorageRefused:
    return StorageRefused(str(error), way_out="Check the storage, its keys and its address.")
