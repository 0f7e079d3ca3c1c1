"""Read the logs of Delta and Iceberg tables: only the new entries, within limits.

A Delta log can have a hundred thousand files, so it is usually not listed: the newest version is
found by reading subsequent ones. It is listed if there are very many of these, or if a version that
is needed is gone. Nothing is written.

The state of a Delta table at a version is in a checksum, or follows from a checkpoint and the
commits after it. A checkpoint is Parquet, so it is unpacked in an isolated process, not here.
"""

import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from headgate_ground.tool_process import ToolFailed
from queries.domain.tables.metadata import (
    HINT,
    LAST_CHECKPOINT,
    LOG,
    METADATA,
    MOST_PARTS,
    NEW,
    SIDECARS,
    DeltaCheckpoint,
    DeltaCommit,
    IcebergTable,
    TableState,
    checkpoints_in,
    checksum_name,
    commit_name,
    commit_of,
    metadata_name,
    read_checksum,
    read_commit,
    read_hint,
    read_last_checkpoint,
    read_metadata,
    replayed,
    version_of,
)
from queries.storage.checkpoint_process import CheckpointProcess
from queries.storage.hadoop import FileContent, Listing, StorageFailed, TooLarge

#: Maximum size, in bytes, of a commit or a checksum (enough for several thousand files), and of an
#: Iceberg table's metadata (enough for about twenty thousand snapshots).
MOST_OF_COMMIT, MOST_OF_METADATA = 4 * 1024 * 1024, 32 * 1024 * 1024
#: Maximum size of one file of a checkpoint (a few hundred thousand files of the table), and of all.
MOST_OF_CHECKPOINT, MOST_OF_CHECKPOINTS = 32 * 1024 * 1024, 256 * 1024 * 1024
#: Commits per call, so that an answer has at most `hadoop.MOST_ANSWER`.
COMMITS_PER_READ = 10
#: Commits that are read in one pass, and files in the commits that are kept in memory. The rest of
#: a longer backlog is read by the next passes.
COMMITS_PER_PASS, MOST_FILES = 500, 200_000
MOST_NAMES = 200_000
#: Seconds until a checkpoint that could not be read is tried again.
_AGAIN_S = 600.0

#: Starts the process that unpacks checkpoints; raises `ToolFailed`.
Unpack = Callable[[], CheckpointProcess]


class Files(Protocol):
    """A storage: `HadoopStorage`, or `LocalFiles`."""

    def list(self, location: str, *, most: int) -> Listing:
        """Return a folder's entries."""

    def read(self, location: str, names: Iterable[str], *, most: int) -> dict[str, FileContent]:
        """Return the contents of small files."""


class NoTable(Exception):
    """There is no readable table; the message is a sentence."""


@dataclass(slots=True)
class DeltaLog:
    """What is known of a Delta table's log."""

    newest: int = -1
    commits: dict[int, DeltaCommit] = field(default_factory=dict)
    written: dict[int, datetime] = field(default_factory=dict)  # the times of the commits' files
    states: dict[int, TableState] = field(default_factory=dict)
    earliest: int | None = None  # the first version in the log; None: not looked for
    hint: FileContent | None = None  # `_last_checkpoint`
    bare: int | None = None  # a version of which only the checkpoint is there, not the commit
    unread: dict[DeltaCheckpoint, tuple[str, float]] = field(
        default_factory=dict
    )  # why, when tried
    unknown: str = ""  # why the table's state is unknown, as a sentence

    @property
    def state(self) -> TableState:
        """The table as of the newest version that is described."""
        return self.states[max(self.states)] if self.states else TableState(self.newest)


@dataclass(frozen=True, slots=True)
class IcebergMetadata:
    """An Iceberg table as of the newest version of its metadata."""

    version: int
    table: IcebergTable
    hint: tuple[int | None, datetime | None] = (None, None)  # as it was read, and its file's time


def read_delta(
    files: Files,
    location: str,
    *,
    needed: Collection[int] = (),
    snapshots: Collection[int] = (),
    whole: bool = False,
    earlier_log: DeltaLog | None = None,
    unpack: Unpack | None = None,
) -> DeltaLog:
    """Return a Delta table's log: its newest version, and the commits from `needed` on.

    `needed` are the versions from which queries continue, and `snapshots` those at which they read
    the whole table; with `whole`, the files of the newest version are counted, too. `earlier_log`
    is the previous result, which is updated. Without `unpack`, checkpoints are not read. Raises
    `StorageFailed`, and `NoTable`.
    """
    folder = f"{location}/{LOG}"
    log = (
        earlier_log
        if earlier_log is not None and _goes_on(files, folder, earlier_log)
        else _begin(files, folder)
    )
    _find_newest(files, folder, log)
    first = min(needed, default=log.newest)
    log.commits = {
        version_number: commit
        for version_number, commit in log.commits.items()
        if version_number >= first
    }
    log.written = {
        version_number: at
        for version_number, at in log.written.items()
        if version_number >= min(first, log.newest)
    }
    _read_states(files, folder, log, snapshots)
    counted = {*snapshots, log.newest} if whole else set(snapshots)
    _work_out_states(files, folder, log, counted, unpack)
    log.earliest = None
    for version in sorted(needed):
        if version <= log.newest and version not in log.commits:
            _take(files, folder, log, [version])
            if version in snapshots and version in log.states:
                continue  # the table as of then can be read without that commit
            if version not in log.commits:
                log.earliest = _earliest(files, folder, log)
                return log
    missing = [
        version_number
        for version_number in range(first, log.newest + 1)
        if version_number not in log.commits
    ]
    for at in range(0, min(len(missing), COMMITS_PER_PASS), COMMITS_PER_READ):
        if (
            sum(
                len(version_number.added) + len(version_number.removed)
                for version_number in log.commits.values()
            )
            > MOST_FILES
        ):
            break
        _take(files, folder, log, missing[at : at + COMMITS_PER_READ])
    return log


def read_iceberg(
    files: Files, location: str, earlier_metadata: IcebergMetadata | None = None
) -> IcebergMetadata:
    """Return an Iceberg table of a Hadoop catalog. Raises `StorageFailed`, and `NoTable`."""
    folder = f"{location}/{METADATA}"
    hint = files.read(folder, [HINT], most=100).get(HINT)
    version = read_hint(hint.data) if hint is not None else None
    if version is None:
        version = _newest_metadata(files, folder)
    if version is None:
        raise NoTable(f"There is no Iceberg table of a Hadoop catalog at {location}.")
    hint_state = version, hint.modified_at if hint is not None else None
    same = (
        earlier_metadata is not None
        and earlier_metadata.version >= version
        and earlier_metadata.hint == hint_state
    )
    metadata = _metadata(
        files,
        folder,
        earlier_metadata.version + 1 if earlier_metadata is not None and same else version,
    )
    if metadata is None:
        if earlier_metadata is not None and same:
            return earlier_metadata
        raise NoTable(f"{folder}/{metadata_name(version)}, which {HINT} names, does not exist.")
    while (newer := _metadata(files, folder, metadata.version + 1)) is not None:
        metadata = newer  # the hint is written after the metadata
    return replace(metadata, hint=hint_state)


# --- Delta --------------------------------------------------------------------------------


def _goes_on(files: Files, folder: str, earlier_log: DeltaLog) -> bool:
    """Return whether the newest known commit is still there: the table was not replaced."""
    name = commit_name(earlier_log.newest)
    try:
        contents = files.read(folder, [name, LAST_CHECKPOINT], most=MOST_OF_COMMIT)
    except TooLarge:  # it has not been read before, either
        return earlier_log.newest not in earlier_log.written
    except StorageFailed:
        return False
    hint, earlier_log.hint = earlier_log.hint, contents.get(LAST_CHECKPOINT)
    if name not in contents:
        return earlier_log.newest == earlier_log.bare and earlier_log.hint == hint
    return contents[name].modified_at == earlier_log.written.get(
        earlier_log.newest, contents[name].modified_at
    )


def _begin(files: Files, folder: str) -> DeltaLog:
    """Return a log that is read up to a version that exists."""
    hint = files.read(folder, [LAST_CHECKPOINT], most=MOST_OF_COMMIT).get(LAST_CHECKPOINT)
    checkpoint = read_last_checkpoint(hint.data) if hint is not None else None
    log = DeltaLog(newest=checkpoint.version if checkpoint is not None else -1, hint=hint)
    _take(files, folder, log, [max(log.newest, 0)])
    if log.commits:
        log.newest = max(log.commits)
        return log
    names = _names(files, folder)
    log.newest = max((*_versions(names), *checkpoints_in(names)), default=-1)
    if log.newest < 0:
        raise NoTable(f"There is no Delta table at {folder.removesuffix(f'/{LOG}')}.")
    _take(files, folder, log, [log.newest])
    log.bare = None if log.newest in log.commits else log.newest
    return log


def _find_newest(files: Files, folder: str, log: DeltaLog) -> None:
    """Read the commits after the newest known one: one at first, then more at a time."""
    width, begin = 1, log.newest
    while True:
        wanted = range(log.newest + 1, log.newest + 1 + width)
        _take(files, folder, log, wanted)
        versions = [version for version in wanted if version in log.commits]
        log.newest = max(versions, default=log.newest)
        if len(versions) < width:
            return
        if log.newest - begin > COMMITS_PER_PASS:  # a list is cheaper, and what is old can wait
            log.newest = max(_versions(_names(files, folder)), default=log.newest)
            _take(files, folder, log, [log.newest])
            return
        width = COMMITS_PER_READ


def _take(files: Files, folder: str, log: DeltaLog, versions: Sequence[int]) -> None:
    """Read commits into a log, without those that are gone."""
    commits, written = _commits(files, folder, versions)
    log.commits |= commits
    log.written |= written


def _commits(
    files: Files, folder: str, versions: Sequence[int]
) -> tuple[dict[int, DeltaCommit], dict[int, datetime]]:
    """Return the commits and their files' times, without those that are gone.

    A commit that is too large is incomplete.
    """
    names = {commit_name(version): version for version in versions}
    try:
        contents = files.read(folder, names, most=MOST_OF_COMMIT)
    except StorageFailed as error:
        if len(versions) > 1:
            parts = [_commits(files, folder, [version]) for version in versions]
            return {k: v for content, _ in parts for k, v in content.items()}, {
                k: v for _, content in parts for k, v in content.items()
            }
        if not isinstance(error, TooLarge):
            raise
        return {versions[0]: DeltaCommit(versions[0], whole=False)}, {}
    commits = {
        names[name]: read_commit(names[name], content.data) for name, content in contents.items()
    }
    times = {names[name]: content.modified_at for name, content in contents.items()}
    return commits, {version: at for version, at in times.items() if at is not None}


def _read_states(files: Files, folder: str, log: DeltaLog, snapshots: Collection[int]) -> None:
    """Read the checksums of the newest version, and of some others.

    Delta writes one a moment after its commit, so the one before may be the newest.
    """
    counted_versions = {version for version, state in log.states.items() if state.files is not None}
    wanted = {log.newest, log.newest - 1, *snapshots} - counted_versions
    names = {
        checksum_name(version): version for version in sorted(wanted) if 0 <= version <= log.newest
    }
    wanted_states = {log.newest, log.newest - 1, *snapshots, max(log.states, default=0)}
    log.states = {
        version: state for version, state in log.states.items() if version in wanted_states
    }
    try:
        contents = files.read(folder, names, most=MOST_OF_COMMIT)
    except TooLarge:
        return  # what it says stays unknown
    for name, content in contents.items():
        log.states[names[name]] = read_checksum(names[name], content.data)


def _work_out_states(
    files: Files, folder: str, log: DeltaLog, counted: set[int], unpack: Unpack | None
) -> None:
    """Compute states without a checksum: the newest version, and those in `counted`, with files.

    States that cannot be determined stay unknown, and `log.unknown` is the reason.
    """
    log.unknown = ""
    for version in sorted(
        {log.newest, *(number for number in counted if 0 <= number <= log.newest)}
    ):
        earlier_state = log.states.get(version)
        if earlier_state is not None and _is_enough(earlier_state, count=version in counted):
            continue
        try:
            base = _base(files, folder, log, version, unpack, count=version in counted)
            state = replayed(base, _between(files, folder, log, base.version + 1, version))
        except _Unknown as error:
            log.unknown = str(error)
            continue
        keeps = version == log.newest and version in counted  # the next version builds on it
        log.states[version] = state if keeps else replace(state, live=None)


class _Unknown(Exception):
    """A table's state cannot be worked out; the message is a sentence."""


def _is_enough(state: TableState, *, count: bool) -> bool:
    """Return whether a state says all that is needed of it, with the number of files or without."""
    return bool(state.table) and state.conf is not None and not (count and state.files is None)


def _base(
    files: Files, folder: str, log: DeltaLog, version: int, unpack: Unpack | None, *, count: bool
) -> TableState:
    """Return a state at or before a version from which it can be worked out; raise `_Unknown`."""
    states = [
        state
        for at, state in log.states.items()
        if version - COMMITS_PER_PASS <= at < version
        and _is_enough(state, count=False)
        and (state.live is not None or not count)
    ]
    if states:
        return max(states, key=lambda state: state.version)
    hinted = read_last_checkpoint(log.hint.data) if log.hint is not None else None
    why = "its log has no checkpoint, and its first commits were removed or are very many."
    if hinted is not None and hinted.version <= version and unpack is not None:
        try:
            return _checkpoint(files, folder, log, hinted, unpack)
        except _Unknown as error:
            why = str(error)
    if version < COMMITS_PER_PASS and (0 in log.commits or _commits(files, folder, [0])[0]):
        return NEW
    if unpack is not None:
        older = (at for at in checkpoints_in(_names(files, folder)).items() if at[0] <= version)
        newest = max(older, default=None)
        if newest is not None:
            return _checkpoint(files, folder, log, newest[1], unpack)
    raise _Unknown(why)


def _between(
    files: Files, folder: str, log: DeltaLog, first: int, last: int
) -> Iterator[DeltaCommit]:
    """Return the commits from one version to another; raise `_Unknown` if one is gone."""
    if last - first >= COMMITS_PER_PASS:
        raise _Unknown(f"its newest checkpoint is more than {COMMITS_PER_PASS} versions old.")
    for begin in range(first, last + 1, COMMITS_PER_READ):
        wanted = range(begin, min(begin + COMMITS_PER_READ, last + 1))
        commits = {
            version_number: log.commits[version_number]
            for version_number in wanted
            if version_number in log.commits
        }
        if missing := [
            version_number for version_number in wanted if version_number not in commits
        ]:
            commits |= _commits(files, folder, missing)[0]
        for version in wanted:
            if version not in commits:
                raise _Unknown(f"the commit of version {version:,} is missing in its log.")
            yield commits[version]


def _checkpoint(
    files: Files, folder: str, log: DeltaLog, checkpoint: DeltaCheckpoint, unpack: Unpack
) -> TableState:
    """Return the table as of a checkpoint; raise `_Unknown` if it cannot be read.

    A checkpoint that could not be read is not retried for a while.
    """
    now = time.monotonic()
    log.unread = {
        unread: problem_and_time
        for unread, problem_and_time in log.unread.items()
        if now - problem_and_time[1] < _AGAIN_S
    }
    if checkpoint in log.unread:
        raise _Unknown(log.unread[checkpoint][0])
    try:
        return _unpacked(files, folder, checkpoint, unpack)
    except (TooLarge, ToolFailed) as error:
        why = f"its checkpoint of version {checkpoint.version:,} cannot be read: {error}"
        log.unread[checkpoint] = why, time.monotonic()
        raise _Unknown(why) from error


def _unpacked(files: Files, folder: str, checkpoint: DeltaCheckpoint, unpack: Unpack) -> TableState:
    names, size, more = list(checkpoint.names), 0, False
    parts: list[DeltaCommit] = []
    with unpack() as process:
        while names:
            name = names.pop(0)
            if len(parts) == MOST_PARTS:
                raise TooLarge(f"it has more than {MOST_PARTS} files.")
            content = files.read(folder, [name], most=MOST_OF_CHECKPOINT).get(name)
            if content is None:
                raise ToolFailed(f"{name} does not exist.")
            size += len(content.data)
            if size > MOST_OF_CHECKPOINTS:
                raise TooLarge(f"it has more than {MOST_OF_CHECKPOINTS:,} bytes.")
            if name.endswith(".json"):
                part = read_commit(checkpoint.version, content.data)
            else:
                actions, left_out = process.actions(content.data)
                part, more = commit_of(checkpoint.version, actions), more or left_out
            names += [f"{SIDECARS}/{sidecar}" for sidecar in part.sidecars]
            parts.append(part)
    state = replayed(NEW, parts)
    return replace(state, files=None, bytes=None, live=None) if more else state


def _earliest(files: Files, folder: str, log: DeltaLog) -> int:
    """Return the first version of the unbroken end of the log."""
    versions = set(_versions(_names(files, folder)))
    version = log.newest
    while version - 1 in versions:
        version -= 1
    return version


def _versions(names: Iterable[str]) -> list[int]:
    numbers = (version_of(name) for name in names)
    return [version for version in numbers if version is not None]


def _names(files: Files, folder: str) -> list[str]:
    listing = files.list(folder, most=MOST_NAMES)
    if listing.more:
        raise TooLarge(f"{folder} has more than {MOST_NAMES:,} names.")
    return [entry.name for entry in listing.entries]


# --- Iceberg ------------------------------------------------------------------------------


def _metadata(files: Files, folder: str, version: int) -> IcebergMetadata | None:
    """Return the table as of a version; None if there is no such version.

    Raises `NoTable` if its metadata cannot be read, and `StorageFailed` if it is too large.
    """
    plain, packed = metadata_name(version), f"v{version}.gz.metadata.json"
    contents = files.read(folder, [plain, packed], most=MOST_OF_METADATA)
    name = plain if plain in contents else packed
    if name not in contents:
        return None
    data = contents[name].data
    if name == packed:
        with suppress(zlib.error):
            data = zlib.decompressobj(31).decompress(data, MOST_OF_METADATA + 1)
        if len(data) > MOST_OF_METADATA:
            limit = f"{MOST_OF_METADATA} bytes, unpacked"
            raise TooLarge(f"{folder}/{name} has more than {limit}.")
    table = read_metadata(data)
    if table is None:
        raise NoTable(f"{folder}/{name} cannot be read as a table's metadata.")
    return IcebergMetadata(version, table)


def _newest_metadata(files: Files, folder: str) -> int | None:
    names = {name.replace(".gz.", ".") for name in _names(files, folder)}
    versions = (read_hint(name[1:].partition(".")[0].encode()) for name in names)
    return max(
        (
            version
            for version in versions
            if version is not None and metadata_name(version) in names
        ),
        default=None,
    )
