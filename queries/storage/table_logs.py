"""Read the logs of Delta and Iceberg tables: only the new entries, within limits.

A Delta log can have a hundred thousand files, so it is usually not listed: the newest version is
found by trying to read the next ones. It is listed if there are very many of these, or if a version
that is needed is gone. Nothing is written.
"""

import zlib
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from queries.domain.tables.delta_log import (
    LAST_CHECKPOINT,
    LOG,
    Commit,
    TableState,
    checksum_name,
    commit_name,
    read_checksum,
    read_commit,
    read_last_checkpoint,
    version_of,
)
from queries.domain.tables.iceberg_metadata import (
    HINT,
    METADATA,
    IcebergTable,
    metadata_name,
    read_hint,
    read_metadata,
)
from queries.storage.hadoop import Content, Listing, StorageFailed

#: Maximum size, in bytes, of a commit or a checksum (enough for several thousand files), and of an
#: Iceberg table's metadata (enough for about twenty thousand snapshots).
MOST_OF_COMMIT, MOST_OF_METADATA = 4 * 1024 * 1024, 32 * 1024 * 1024
#: Commits per call, so that an answer has at most `hadoop.MOST_ANSWER`.
COMMITS_PER_READ = 10
#: Commits that are read in one pass, and files in the commits that are kept in memory. The rest of
#: a longer backlog is read by the next passes.
COMMITS_PER_PASS, MOST_FILES = 500, 200_000
MOST_NAMES = 200_000
_TOO_LARGE = "has more than"


class Files(Protocol):
    """A storage: `HadoopStorage`, or `LocalFiles`."""

    def list(self, place: str, *, most: int) -> Listing:
        """Return what is in a folder."""

    def read(self, place: str, names: Iterable[str], *, most: int) -> dict[str, Content]:
        """Return the contents of small files."""


class NoTable(Exception):
    """There is no readable table; the message is a sentence."""


@dataclass(slots=True)
class DeltaLog:
    """What is known of a Delta table's log."""

    newest: int = -1
    commits: dict[int, Commit] = field(default_factory=dict)
    written: dict[int, datetime] = field(default_factory=dict)  # the times of the commits' files
    states: dict[int, TableState] = field(default_factory=dict)
    earliest: int | None = None  # the first version in the log; None: not looked for

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
    known: DeltaLog | None = None,
) -> DeltaLog:
    """Return a Delta table's log: its newest version, and the commits from `needed` on.

    `needed` are the versions from which queries continue, and `snapshots` those as of which they
    read the whole table. `known` is the previous result, which is updated.
    Raises `StorageFailed`, and `NoTable`.
    """
    place = f"{location}/{LOG}"
    log = known if known is not None and _goes_on(files, place, known) else _begin(files, place)
    _find_newest(files, place, log)
    first = min(needed, default=log.newest)
    log.commits = {one: commit for one, commit in log.commits.items() if one >= first}
    log.written = {one: at for one, at in log.written.items() if one >= min(first, log.newest)}
    _read_states(files, place, log, snapshots)
    log.earliest = None
    for version in sorted(needed):
        if version <= log.newest and version not in log.commits:
            _take(files, place, log, [version])
            if version not in log.commits:
                log.earliest = _earliest(files, place, log)
                return log
    missing = [one for one in range(first, log.newest + 1) if one not in log.commits]
    for at in range(0, min(len(missing), COMMITS_PER_PASS), COMMITS_PER_READ):
        if sum(len(one.added) + len(one.removed) for one in log.commits.values()) > MOST_FILES:
            break
        _take(files, place, log, missing[at : at + COMMITS_PER_READ])
    return log


def read_iceberg(
    files: Files, location: str, known: IcebergMetadata | None = None
) -> IcebergMetadata:
    """Return an Iceberg table of a Hadoop catalog. Raises `StorageFailed`, and `NoTable`."""
    place = f"{location}/{METADATA}"
    hint = files.read(place, [HINT], most=100).get(HINT)
    version = read_hint(hint.data) if hint is not None else None
    if version is None:
        version = _newest_metadata(files, place)
    if version is None:
        raise NoTable(f"There is no Iceberg table of a Hadoop catalog at {location}.")
    told = version, hint.modified_at if hint is not None else None
    same = known is not None and known.version >= version and known.hint == told
    found = _metadata(files, place, known.version + 1 if known is not None and same else version)
    if found is None:
        if known is not None and same:
            return known
        raise NoTable(f"{place}/{metadata_name(version)} cannot be read as a table's metadata.")
    while (newer := _metadata(files, place, found.version + 1)) is not None:
        found = newer  # the hint is written after the metadata
    return replace(found, hint=told)


# --- Delta --------------------------------------------------------------------------------


def _goes_on(files: Files, place: str, known: DeltaLog) -> bool:
    """Return whether the newest known commit is still there: the table was not replaced."""
    name = commit_name(known.newest)
    with suppress(StorageFailed):
        found = files.read(place, [name], most=MOST_OF_COMMIT).get(name)
        return found is not None and found.modified_at == known.written.get(
            known.newest, found.modified_at
        )
    return False


def _begin(files: Files, place: str) -> DeltaLog:
    """Return a log that is read up to a version that exists."""
    found = files.read(place, [LAST_CHECKPOINT], most=MOST_OF_COMMIT).get(LAST_CHECKPOINT)
    version = read_last_checkpoint(found.data) if found is not None else 0
    log = DeltaLog(newest=-1 if version is None else version)
    _take(files, place, log, [max(log.newest, 0)])
    if log.commits:
        log.newest = max(log.commits)
        return log
    versions = _versions(files, place)
    if not versions:
        raise NoTable(f"There is no Delta table at {place.removesuffix(f'/{LOG}')}.")
    log.newest = max(versions)
    _take(files, place, log, [log.newest])
    return log


def _find_newest(files: Files, place: str, log: DeltaLog) -> None:
    """Read the commits after the newest known one: one at first, then more at a time."""
    width, begin = 1, log.newest
    while True:
        wanted = range(log.newest + 1, log.newest + 1 + width)
        _take(files, place, log, wanted)
        found = [version for version in wanted if version in log.commits]
        log.newest = max(found, default=log.newest)
        if len(found) < width:
            return
        if log.newest - begin > COMMITS_PER_PASS:  # a list is cheaper, and what is old can wait
            log.newest = max(_versions(files, place), default=log.newest)
            _take(files, place, log, [log.newest])
            return
        width = COMMITS_PER_READ


def _take(files: Files, place: str, log: DeltaLog, versions: Sequence[int]) -> None:
    """Read commits, without those that are gone. One that is too large is not whole."""
    names = {commit_name(version): version for version in versions}
    try:
        found = files.read(place, names, most=MOST_OF_COMMIT)
    except StorageFailed as error:
        if len(versions) > 1:
            for version in versions:
                _take(files, place, log, [version])
            return
        if _TOO_LARGE not in str(error):
            raise
        log.commits[versions[0]] = Commit(versions[0], whole=False)
        return
    for name, content in found.items():
        version = names[name]
        log.commits[version] = read_commit(version, content.data)
        if content.modified_at is not None:
            log.written[version] = content.modified_at


def _read_states(files: Files, place: str, log: DeltaLog, snapshots: Collection[int]) -> None:
    """Read the checksums of the newest version, and of some others.

    Delta writes one a moment after its commit, so the one before may be the newest.
    """
    wanted = {log.newest, log.newest - 1, *snapshots} - log.states.keys()
    names = {checksum_name(one): one for one in sorted(wanted) if 0 <= one <= log.newest}
    kept = {log.newest, log.newest - 1, *snapshots, max(log.states, default=0)}
    log.states = {one: state for one, state in log.states.items() if one in kept}
    try:
        found = files.read(place, names, most=MOST_OF_COMMIT)
    except StorageFailed as error:
        if _TOO_LARGE in str(error):
            return  # what it says stays unknown
        raise
    for name, content in found.items():
        log.states[names[name]] = read_checksum(names[name], content.data)


def _earliest(files: Files, place: str, log: DeltaLog) -> int:
    """Return the first version of the unbroken end of the log."""
    versions = set(_versions(files, place))
    version = log.newest
    while version - 1 in versions:
        version -= 1
    return version


def _versions(files: Files, place: str) -> list[int]:
    listing = files.list(place, most=MOST_NAMES)
    if listing.more:
        raise StorageFailed(f"{place} has more than {MOST_NAMES:,} names.")
    found = (version_of(entry.name) for entry in listing.entries)
    return [version for version in found if version is not None]


# --- Iceberg ------------------------------------------------------------------------------


def _metadata(files: Files, place: str, version: int) -> IcebergMetadata | None:
    """Return the table as of a version; None if its metadata is missing or cannot be read."""
    plain, packed = metadata_name(version), f"v{version}.gz.metadata.json"
    found = files.read(place, [plain, packed], most=MOST_OF_METADATA)
    data = None
    if plain in found:
        data = found[plain].data
    elif packed in found:
        with suppress(zlib.error):
            data = zlib.decompressobj(31).decompress(found[packed].data, MOST_OF_METADATA)
    table = read_metadata(data) if data is not None else None
    return IcebergMetadata(version, table) if table is not None else None


def _newest_metadata(files: Files, place: str) -> int | None:
    listing = files.list(place, most=MOST_NAMES)
    names = {entry.name.replace(".gz.", ".") for entry in listing.entries}
    versions = (read_hint(name[1:].partition(".")[0].encode()) for name in names)
    return max(
        (one for one in versions if one is not None and metadata_name(one) in names), default=None
    )
