"""Read and copy checkpoints that are not on this host's disks.

Everything that reads a checkpoint's logs, and everything that decides which files belong to a
batch, works on folders. So this module copies what they need to a folder: a *mirror* contains the
newest log entries; a *stage* contains all logs in full but, for the state, only the names and the
small files that list others. What belongs to a copy is chosen on the stage, then copied by the
storage system itself.
"""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from headgate_ground.files import KEEP_FREE, free_bytes, read_file, replace_file
from headgate_ground.tolerant import time_of, whole
from headgate_ground.untrusted import remove_tree
from queries.checkpoints import state
from queries.checkpoints.inside import Inside
from queries.checkpoints.logs import MOST_OF_ENTRY, modified_at, numbers_of
from queries.checkpoints.snapshot import ATTEMPTS, CannotCopy, Copied, snapshot
from queries.domain.checkpoints.ownership import FOLDER
from queries.domain.readings import counted
from queries.storage.hadoop import (
    MOST_OF_PART,
    FileContent,
    FileEntry,
    HadoopStorage,
    StorageFailed,
)

#: Entries per log in a mirror: Spark keeps the newest 100 batches (`minBatchesToRetain`).
NEWEST = 110
#: Objects in a checkpoint that can be copied; a listing of that many takes minutes.
MOST_OBJECTS = 500_000
MOST_NAMES = 100_000
#: Files of the state that a mirror lists (`operators.FILES_AT_MOST`), and how often, in seconds.
STATE_FILES, STATE_EVERY_S = 20_000, 60
LOGS = ("offsets", "commits")
ABOUT = "about.json"
CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class MirrorState:
    """When a mirror was read, and the storage's error if reading has failed since."""

    read_at: datetime | None  # the last success
    problem: str = ""  # of the latest attempt
    tried_at: datetime | None = None  # that attempt; None: there was none


@dataclass(frozen=True, slots=True)
class CopyCost:
    """What a copy of a checkpoint costs: each object is read once and written once."""

    objects: int
    bytes: int
    complete: bool  # False: there are more than were listed
    rate: float | None  # objects per second of the last copy; None if there was none

    @property
    def seconds(self) -> float | None:
        """The expected seconds, None if unknown."""
        return self.objects / self.rate if self.rate else None


@dataclass(frozen=True, slots=True)
class Mirror:
    """A local copy of a remote checkpoint's newest log entries."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        """The folder that looks like the checkpoint."""
        return self.folder / CHECKPOINT

    def about(self) -> MirrorState:
        """Return when it was read; nothing is known before the first reading."""
        try:
            note = json.loads(read_file(self.folder / ABOUT) or "{}")
            at = modified_at(self.folder / ABOUT)
            return MirrorState(time_of(note.get("read_at")), str(note.get("problem", "")), at)
        except (OSError, ValueError, AttributeError):
            return MirrorState(None)

    def note(self, problem: str, *, read_at: datetime | None) -> None:
        """Write down how an attempt to read ended."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        note = {"read_at": read_at and read_at.isoformat(), "problem": problem}
        replace_file(self.folder / ABOUT, json.dumps(note), durable=False)

    def request_read(self, now: datetime, *, again_after: timedelta) -> bool:
        """Return whether the caller should have it read: no request since `again_after`."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        marker = self.folder / "asked"
        try:
            if now.timestamp() - marker.stat().st_mtime < again_after.total_seconds():
                return False
        except FileNotFoundError:
            marker.touch()
        os.utime(marker, (now.timestamp(), now.timestamp()))
        return True

    def unanswered_since(self) -> datetime | None:
        """Return when a reading was first requested, if no worker has responded since."""
        if (self.folder / ABOUT).exists() or not (self.folder / "asked").exists():
            return None
        return modified_at(self.folder)  # when `asked` was created in it

    def refresh(self, storage: HadoopStorage, location: str, *, now: datetime) -> bool:
        """Read new data; return whether anything changed. Raises `StorageFailed`."""
        wanted = {entry.name: entry for entry in _newest(storage, location)}
        self.checkpoint.mkdir(mode=0o700, parents=True, exist_ok=True)
        described_files = {
            name: path for name, path in self._files().items() if _is_described(name)
        }
        fresh = [
            name for name, entry in wanted.items() if not _same(described_files.get(name), entry)
        ]
        times = _times(storage, location) if not described_files else {}
        for name, content in _contents(storage, location, [wanted[name] for name in fresh]):
            _put(self.checkpoint / name, content, times.get(name))
        for name in described_files.keys() - wanted.keys():
            described_files[name].unlink(missing_ok=True)
        self.note("", read_at=now)
        return bool(fresh) or wanted.keys() != described_files.keys()

    def refresh_state(self, storage: HadoopStorage, location: str, *, now: datetime) -> bool:
        """Note the names and sizes of the state's files, as empty space of that size.

        A listing costs a request per thousand files, so it is repeated only every `STATE_EVERY_S`;
        returns whether it was. Raises `StorageFailed`.
        """
        listed = self.folder / "listed"
        if listed.exists() and now.timestamp() - listed.stat().st_mtime < STATE_EVERY_S:
            return False
        listing = storage.list(f"{location}/state", deep=True, most=STATE_FILES)
        sizes = {f"state/{entry.name}": entry.bytes for entry in listing.entries}
        files = self._files()
        for name, size in sizes.items():
            if not _is_described(name) and not _last(name).startswith("."):
                path = self.checkpoint / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    file.truncate(size)
        for name in files.keys() - sizes.keys():
            if not _is_described(name):
                files[name].unlink(missing_ok=True)
        listed.touch()
        os.utime(listed, (now.timestamp(), now.timestamp()))
        return True

    def cost(self) -> CopyCost:
        """Return the cost of a copy of the checkpoint, as of the last listing of its state."""
        sizes = [path.stat().st_size for path in self._files().values()]
        state = sum(1 for name in self._files() if not _is_described(name))
        return CopyCost(len(sizes), sum(sizes), state < STATE_FILES, self.rate())

    def rate(self) -> float | None:
        """Return how many objects a second the last copy took; None if there was none."""
        with suppress(OSError, ValueError):
            return float((self.folder / "rate").read_text())
        return None

    def note_copy(self, objects: int, seconds: float) -> None:
        """Remember how fast a copy was."""
        if objects and seconds > 0:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.folder / "rate", f"{objects / seconds:.3f}", durable=False)

    def _files(self) -> dict[str, Path]:
        paths = (path for path in self.checkpoint.rglob("[!.]*") if path.is_file())
        return {str(path.relative_to(self.checkpoint)): path for path in paths}


def copy(
    storage: HadoopStorage,
    location: str,
    work: Path,
    bring: Callable[[Mapping[str, int]], tuple[str, ...]],
    put: Callable[[str, bytes], None],
    *,
    batch: int | None = None,
    keep_commit: bool = True,
    new_id: bool = False,
) -> Copied:
    """Copy a remote checkpoint as of a batch, as `snapshot` does for local ones.

    `bring` copies files, whose sizes it gets by name, and returns those that were gone; `put`
    writes a file that the copy does not share with the original. `work` is a folder for the stage,
    removed at the end. Raises `CannotCopy` and `StorageFailed`.
    """
    for attempt in range(ATTEMPTS):
        try:
            sizes = _stage(storage, location, work / "stage")
            draft = work / "draft"
            chosen = snapshot(
                (work / "stage").as_uri(), draft, batch, keep_commit=keep_commit, new_id=new_id
            )
            names = [str(path.relative_to(draft)) for path in draft.rglob("*") if path.is_file()]
            own = {"metadata"} if new_id else set()
            own |= {f"offsets/{chosen.filled}"} if chosen.filled is not None else set()
            if missing := bring({name: sizes[name] for name in sorted(set(names) - own)}):
                raise CannotCopy(
                    f"{counted(len(missing), 'file')} of {location} disappeared while the "
                    f"checkpoint was copied, {missing[0]} first.",
                    way_out="Try again: Spark purges old batches while a query runs.",
                )
            for name in sorted(own):
                put(name, (draft / name).read_bytes())
            size = sum(sizes.get(name, 0) for name in names)
            return Copied(chosen.batch, len(names), size, chosen.filled)
        except CannotCopy as error:
            if batch is not None or attempt == ATTEMPTS - 1:
                message = error.message.replace(str(work / "stage"), location)
                raise CannotCopy(message, way_out=error.way_out) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
    raise AssertionError("the last attempt returns or raises")


def copy_between(
    storage: HadoopStorage,
    location: str,
    destination: str,
    work: Path,
    *,
    batch: int | None = None,
    new_id: bool = False,
) -> Copied:
    """Copy a checkpoint to another place on its storage.

    The destination is deleted first: it can contain only leftovers of an interrupted attempt. A
    copy counts once a database row names it; folders of object stores cannot be renamed. Their
    files get new times, so the times of the log entries are kept in a manifest next to the copy.
    """

    def bring(sizes: Mapping[str, int]) -> tuple[str, ...]:
        delete(storage, destination)  # of a worker that died, or of an attempt at another batch
        return storage.copy(location, sizes, destination).missing

    copied = copy(
        storage,
        location,
        work,
        bring,
        lambda name, data: storage.write(destination, name, data),
        batch=batch,
        new_id=new_id,
    )
    times = {
        **{
            entry.name: entry.modified_at.isoformat()
            for log in LOGS
            for entry in _below(storage, location, log)
            if entry.modified_at is not None
        },
        **{name: at.isoformat() for name, at in _times(storage, location).items()},
    }
    storage.write(*_manifest(destination), json.dumps({"times": times}).encode())
    return copied


def delete(storage: HadoopStorage, location: str) -> None:
    """Delete a copy of a checkpoint and its manifest; does nothing if they are gone."""
    storage.delete("/".join(_manifest(location)))
    storage.delete(location)


def fetch(
    storage: HadoopStorage,
    location: str,
    destination: Path,
    work: Path,
    *,
    batch: int | None = None,
    keep_commit: bool = True,
    new_id: bool = True,
) -> Copied:
    """Copy a checkpoint as of a batch to a folder on this host, which must not exist.

    All files come over the storage JVM's socket: code in its sandbox could replace files in a
    folder.
    """
    copy_folder = work.with_name(f"{work.name}-copy")

    def bring(sizes: Mapping[str, int]) -> tuple[str, ...]:
        remove_tree(copy_folder)  # of an attempt at another batch
        return download(storage, location, sizes, copy_folder)

    def put(name: str, data: bytes) -> None:
        with Inside(copy_folder) as folder:
            folder.put(name, 0, data)

    try:
        copied = copy(
            storage,
            location,
            work,
            bring,
            put,
            batch=batch,
            keep_commit=keep_commit,
            new_id=new_id,
        )
        destination.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        copy_folder.rename(destination)
        return copied
    finally:
        remove_tree(copy_folder)


def download(
    storage: HadoopStorage, location: str, sizes: Mapping[str, int], to: Path
) -> tuple[str, ...]:
    """Bring files to a folder of ours, with their times; return the names that were gone.

    Raises `StorageFailed` if they do not fit on the disk.
    """
    with Inside(to) as folder:
        needed, free = sum(sizes.values()) + KEEP_FREE, free_bytes(to)
        if needed > free:
            raise StorageFailed(
                f"{location}: its files have {needed - KEEP_FREE:,} bytes, and the disk of "
                f"{to.parent} has {free:,} bytes left. Free some space."
            )
        return storage.download(location, sizes, folder.put)


def _newest(storage: HadoopStorage, location: str) -> list[FileEntry]:
    """Return the newest entries of the logs, the sources' logs, and the state's descriptions."""
    collected_entries = []
    for log in LOGS:
        entries = _below(storage, location, log)
        newest_batches = set(numbers_of(_last(entry.name) for entry in entries)[-NEWEST:])
        collected_entries += [entry for entry in entries if _number(entry) in newest_batches]
    for source in _folders(storage, location, "sources"):
        entries = _below(storage, location, source)
        entries.sort(key=lambda entry: _number(entry) or 0)
        collected_entries += [entry for entry in entries if not _last(entry.name).startswith(".")][
            -NEWEST:
        ]
    for operator in _folders(storage, location, "state"):
        collected_entries += _below(storage, location, f"{operator}/_metadata", deep=True)
    top = storage.list(location, most=1000).entries
    return [
        *collected_entries,
        *(entry for entry in top if not entry.folder and entry.name == "metadata"),
    ]


def _manifest(location: str) -> tuple[str, str]:
    """Return the folder and name of a copy's manifest."""
    parent, _, name = location.rpartition("/")
    return f"{parent}/{FOLDER}", f"{name}.copied.json"


def _times(storage: HadoopStorage, location: str) -> dict[str, datetime]:
    """Return the times of the log entries that a copy got from its original; {} if it is none."""
    folder, name = _manifest(location)
    manifest = storage.read(folder, [name], most=MOST_OF_ENTRY).get(name)
    try:
        pairs = json.loads(manifest.data)["times"].items() if manifest is not None else ()
        times = ((entry, time_of(at)) for entry, at in pairs)
        return {entry: at for entry, at in times if at is not None}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # damaged: the copy's own times are shown


def _stage(storage: HadoopStorage, location: str, stage: Path) -> dict[str, int]:
    """Build the stage; return the size of each file of the checkpoint."""
    listing = storage.list(location, deep=True, most=MOST_OBJECTS)
    if listing.more:
        raise CannotCopy(f"{location} contains more than {MOST_OBJECTS:,} objects.")
    stage.mkdir(mode=0o700, parents=True)
    entries = [e for e in listing.entries if not _last(e.name).startswith(".")]
    for entry in entries:
        if not _is_read(entry.name):
            path = stage / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    wanted = [entry for entry in entries if _is_read(entry.name)]
    for name, content in _contents(storage, location, wanted):
        _put(stage / name, content)
    return {entry.name: entry.bytes for entry in entries}


def _contents(
    storage: HadoopStorage, location: str, entries: Iterable[FileEntry]
) -> Iterator[tuple[str, FileContent]]:
    """Yield the contents of files, read in parts of bounded size.

    A file that is too large is returned as empty, so only that file becomes unreadable.
    """
    names: list[str] = []
    size = 0
    for entry in entries:
        if entry.bytes > MOST_OF_ENTRY:
            yield entry.name, FileContent(b"", entry.modified_at)
            continue
        if size + entry.bytes > MOST_OF_PART:
            yield from storage.read(location, names, most=MOST_OF_ENTRY).items()
            names, size = [], 0
        names.append(entry.name)
        size += entry.bytes
    yield from storage.read(location, names, most=MOST_OF_ENTRY).items()


def _is_read(name: str) -> bool:
    """Return whether the choice of files reads a file's content, and not only its name."""
    if not name.startswith("state/"):
        return True
    file = state.parse(_last(name))
    return "/_metadata/" in name or (file is not None and file.kind == "zip")


def _is_described(name: str) -> bool:
    """Return whether a mirror contains a file's content, and not only its name and size."""
    return not name.startswith("state/") or "/_metadata/" in name


def _below(
    storage: HadoopStorage, location: str, folder: str, *, deep: bool = False
) -> list[FileEntry]:
    listing = storage.list(f"{location}/{folder}", deep=deep, most=MOST_NAMES)
    if listing.more:
        raise StorageFailed(f"{location}/{folder} contains more than {MOST_NAMES:,} names.")
    return [
        FileEntry(f"{folder}/{entry.name}", entry.bytes, entry.modified_at)
        for entry in listing.entries
        if not entry.folder
    ]


def _folders(storage: HadoopStorage, location: str, folder: str) -> list[str]:
    listing = storage.list(f"{location}/{folder}", most=1000)
    return [f"{folder}/{entry.name}" for entry in listing.entries if entry.folder]


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _number(entry: FileEntry) -> int | None:
    return whole(_last(entry.name).removesuffix(".compact"))


def _same(path: Path | None, entry: FileEntry) -> bool:
    """Return whether a mirror has an entry: Spark never rewrites one, so its size decides."""
    if path is None:
        return False
    return entry.bytes > MOST_OF_ENTRY or path.stat().st_size == entry.bytes


def _put(path: Path, content: FileContent, at: datetime | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{uuid.uuid4().hex}")  # a step and a page may read at the same time
    draft.write_bytes(content.data)
    if (time := at or content.modified_at) is not None:
        os.utime(draft, (time.timestamp(), time.timestamp()))
    draft.rename(path)
