"""Calculate how far a query is behind a table, and when the versions that it needs can be removed.

A version is one commit: a version of a Delta table, or a snapshot of an Iceberg table. Versions are
numbered. The current Iceberg snapshot has its sequence number, and its ancestors the ones below; in
tables of format version 1, which have none, snapshots are counted from 1.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum

from queries.domain.kafka.retention import RUNNING_SHARE, Risk, span
from queries.domain.readings import counted
from queries.domain.tables.metadata import DeltaCommit, IcebergSnapshot, IcebergTable, TableState
from queries.domain.tables.places import Changes
from queries.domain.tables.replay import DeltaOffset, IcebergOffset


class Removal(StrEnum):
    """What removes a version, or its files."""

    LOG = "log"  # Delta removes old commits from its log
    VACUUM = "vacuum"  # someone runs VACUUM on a Delta table
    EXPIRE = "expire"  # someone runs expire_snapshots on an Iceberg table


#: What is removed; when, and the setting that decides when this is possible.
_WHEN = {
    Removal.LOG: (
        "the commit of version {version} can be removed from the table's log",
        "at the next checkpoint of the log (delta.logRetentionDuration)",
    ),
    Removal.VACUUM: (
        "files of version {version}, which a later version removed, can be deleted",
        "if someone runs VACUUM (delta.deletedFileRetentionDuration)",
    ),
    Removal.EXPIRE: (
        "the snapshot that the query continues from, {version}, can be expired",
        "if someone runs expire_snapshots (history.expire.max-snapshot-age-ms)",
    ),
}


@dataclass(frozen=True, slots=True)
class RemovalDeadline:
    """When a version that the query needs can be removed at the earliest, and by what."""

    at: datetime
    since: datetime  # when the retention period began
    removal: Removal
    version: int


@dataclass(frozen=True, slots=True)
class TableLag:
    """How far a query is behind a table; unknown values are None."""

    next: int | None = None  # the version that is read next, or partly read
    latest: int | None = None  # the version that will be written next
    earliest: int | None = None  # the first version that still exists
    versions: int | None = None
    files: int | None = None
    bytes: int | None = None
    unread_at: datetime | None = None  # when the first unread version was committed
    clock: RemovalDeadline | None = None
    problem: str = ""  # why the query cannot continue from its offset, as a sentence
    note: str = ""  # what is ahead: where it will fail, or what its first reading takes


def delta_lag(
    offset: DeltaOffset,
    *,
    latest: int,
    commits: Mapping[int, DeltaCommit],
    state: TableState,
    initial: TableState | None = None,
    written: Mapping[int, datetime] | None = None,
    earliest: int | None = None,
    changes: Changes = Changes.UNKNOWN,
) -> TableLag:
    """Return the lag behind a Delta table whose newest version is `latest`.

    `commits` are the unread versions, as far as known; `written` are their files' times, which
    determine their removal. `initial` is the table as of the offset's version, if the source is
    still reading the table as of that version. `earliest` is the log's first version, if known.
    `changes` is how the source handles versions that change rows.
    """
    if state.table and offset.table != state.table:
        return TableLag(latest=latest + 1, problem=_REPLACED)
    first = commits.get(offset.version)
    begin = offset.version
    rest = _rest(offset, first, changes)
    if first is not None and offset.index >= 0 and not offset.initial and not rest and first.whole:
        begin += 1  # all of it is read
    if begin > latest + 1:
        return TableLag(latest=latest + 1, problem=_shorter(begin, latest))
    if earliest is not None and begin < earliest:
        return TableLag(
            next=begin,
            latest=latest + 1,
            earliest=earliest,
            versions=latest + 1 - begin,
            problem=_removed(begin, earliest),
        )
    unread = range(begin, latest + 1)
    files_by_version = {
        version: _files_read(commit, changes) for version, commit in commits.items()
    }
    files_by_version[offset.version] = rest
    parts: list[tuple[int | None, int | None]] = []
    fails: DeltaCommit | None = None  # the first version that the query cannot get past
    for version in unread:
        commit = commits.get(version)
        if version == offset.version and offset.initial:
            parts.append(_snapshot_rest(offset, initial))
        elif commit is None or not commit.whole or _is_unclear(commit, changes):
            parts.append((None, None))
            if commit is not None and fails is None and _fails(commit, changes):
                fails = commit
        else:
            parts.append(
                (
                    len(files_by_version[version]),
                    _total(size for _, size in files_by_version[version]),
                )
            )
    times = written or {}
    return TableLag(
        next=begin,
        latest=latest + 1,
        earliest=earliest,
        versions=len(unread),
        files=_total(files for files, _ in parts),
        bytes=_total(size for _, size in parts),
        unread_at=_committed_at(begin, commits, times) if unread else None,
        clock=_delta_clock(offset, unread, commits, state, times, files_by_version)
        if unread
        else None,
        note=_failing(fails) if fails is not None else _reading(offset) if offset.initial else "",
    )


def first_lag(state: TableState) -> TableLag:
    """Return what a query without an offset will read from a Delta table: its current state.

    Versions are unknown, as it may change before the query starts.
    """
    if state.files is None:
        return TableLag(note=_FIRST)
    size = "" if state.bytes is None else f" with {counted(state.bytes, 'byte')}"
    takes = f"the first reading takes {counted(state.files, 'file')}{size}."
    note = f"{_FIRST} As of version {state.version:,}, {takes}"
    return TableLag(files=state.files, bytes=state.bytes, note=note)


def iceberg_lag(offset: IcebergOffset, table: IcebergTable) -> TableLag:
    """Return the lag behind an Iceberg table's current snapshot."""
    lineage, numbers = table.lineage, _numbers(table.lineage)
    latest = numbers[-1] + 1 if numbers else 1
    earliest = numbers[0] if numbers else None
    at = 0
    parts: list[tuple[int | None, int | None]] = []
    if offset.snapshot is not None:
        position = next(
            (i for i, snapshot in enumerate(lineage) if snapshot.id == offset.snapshot), None
        )
        if position is None:
            problem = _expired(offset.snapshot) if table.whole else _UNREADABLE
            return TableLag(latest=latest, earliest=earliest, problem=problem)
        rest = _snapshot_files(offset, lineage[position])
        at = position if rest[0] != 0 else position + 1
        parts = [rest] if at == position else []
    unread = lineage[at:]
    parts += [_appended(snapshot) for snapshot in unread[len(parts) :]]
    return TableLag(
        next=numbers[at] if unread else latest,
        latest=latest,
        earliest=earliest,
        versions=len(unread) if table.whole else None,
        files=_total(files for files, _ in parts) if table.whole else None,
        bytes=_total(size for _, size in parts) if table.whole else None,
        unread_at=unread[0].at if unread else None,
        clock=_iceberg_clock(offset, table, numbers),
    )


def clock_words(clock: RemovalDeadline, *, now: datetime) -> str:
    """Return when and how something can be removed: "In 3 h, … if someone runs VACUUM (…)."."""
    what, when = _WHEN[clock.removal]
    left = clock.at - now
    begin = f"In {span(left)}" if left >= timedelta(minutes=1) else "From now on"
    return f"{begin}, {what.format(version=f'{clock.version:,}')} {when}."


def table_risk(
    tables: Iterable[tuple[str, TableLag]], *, running: bool, within: timedelta, now: datetime
) -> Risk | None:
    """Return the data that a query has lost, or will soon lose, from its tables, or None.

    As in `queries.domain.kafka.retention.risk`, a running query is at risk only once half of the
    retention period has passed.
    """
    due = []
    for name, lag in tables:
        if lag.problem:
            return Risk(now, f"{name}: {lag.problem}")
        clock = lag.clock
        if clock is not None and clock.at - now <= within:
            whole = (clock.at - clock.since).total_seconds()
            used_share = (now - clock.since).total_seconds() / whole if whole > 0 else 1.0
            if not running or used_share >= RUNNING_SHARE:
                due.append((clock.at, f"{name}: {clock_words(clock, now=now)}"))
    return Risk(*min(due)) if due else None


# --- Delta --------------------------------------------------------------------------------

_REPLACED = (
    "the table was dropped and created again, or replaced by another: the offset belongs to the "
    "former table. Reset the query to read the new one."
)
_UNREADABLE = "a snapshot in the table's metadata cannot be read, so the lag is unknown."


def _shorter(begin: int, latest: int) -> str:
    return (
        f"the query has read up to version {begin:,}, but the table's log ends at {latest:,}: the "
        "table was replaced, or its log was truncated. Reset the query to read the current table."
    )


def _removed(begin: int, earliest: int) -> str:
    return (
        f"versions {begin:,} to {earliest - 1:,} were removed from the table's log before the "
        "query read them. Reset the query to earliest: it then reads the table as it is now, and "
        "later versions."
    )


def _failing(commit: DeltaCommit) -> str:
    options = "skipChangeCommits" if commit.added else "skipChangeCommits or ignoreDeletes"
    return (
        f"version {commit.version:,} {'changes' if commit.added else 'deletes'} rows of the table. "
        f"The query will fail there, because its source does not set {options}. How many files it "
        "will read is therefore unknown."
    )


def _reading(offset: DeltaOffset) -> str:
    return (
        f"the query is reading the table as of version {offset.version:,} for the first time; "
        "later versions follow."
    )


_FIRST = "No batch has committed yet, so the lag is unknown."


def _rest(
    offset: DeltaOffset, first: DeltaCommit | None, changes: Changes
) -> Sequence[tuple[str, int | None]]:
    """Return the unread files of the offset's version; Delta counts its added files from 0."""
    files = () if first is None else _files_read(first, changes)
    return files if offset.index < 0 else files[offset.index + 1 :]


def _files_read(commit: DeltaCommit, changes: Changes) -> Sequence[tuple[str, int | None]]:
    """Return the files of a version that a source reads."""
    return () if commit.changes and changes is Changes.SKIP else commit.added


def _fails(commit: DeltaCommit, changes: Changes) -> bool:
    """Return whether a source fails at a version."""
    if changes is Changes.PASS_DELETES:
        return commit.changes and bool(commit.added)
    return commit.changes and changes is Changes.FAIL


def _is_unclear(commit: DeltaCommit, changes: Changes) -> bool:
    """Return whether it is unknown what a source reads from a version."""
    return _fails(commit, changes) or (commit.changes and changes is Changes.UNKNOWN)


def _snapshot_rest(
    offset: DeltaOffset, initial: TableState | None
) -> tuple[int | None, int | None]:
    """Return the unread (files, bytes) of the table as of the offset's version."""
    if initial is None or initial.files is None:
        return None, None
    if offset.index < 0:
        return initial.files, initial.bytes
    return max(0, initial.files - offset.index - 1), None  # which ones are read is unknown


def _committed_at(
    version: int, commits: Mapping[int, DeltaCommit], written: Mapping[int, datetime]
) -> datetime | None:
    commit = commits.get(version)
    return (commit.at if commit is not None else None) or written.get(version)


def _delta_clock(
    offset: DeltaOffset,
    unread: Sequence[int],
    commits: Mapping[int, DeltaCommit],
    state: TableState,
    written: Mapping[int, datetime],
    files_by_version: Mapping[int, Sequence[tuple[str, int | None]]],
) -> RemovalDeadline | None:
    clocks = []
    since = written.get(unread[0]) or _committed_at(unread[0], commits, {})
    at = _log_cut(since, state.log_retention)
    if since is not None and at is not None:
        clocks.append(RemovalDeadline(at, since, Removal.LOG, unread[0]))
    clocks += _vacuumed(offset, unread, commits, state.file_retention, files_by_version)
    return min(clocks, key=lambda deadline: deadline.at, default=None)


def _log_cut(since: datetime | None, retention: timedelta | None) -> datetime | None:
    """Return when a commit can first be removed from the log; None if never, or unknown.

    Delta compares a commit with the current time minus the retention, truncated to the day in UTC,
    and removes the commits between two checkpoints together, so the removal may be later. Source:
    Delta's MetadataCleanup, checked with 4.4.0.
    """
    if since is None or retention is None:
        return None
    day = datetime.combine(since.date(), time(), since.tzinfo)
    return _later(day if day == since else _later(day, timedelta(days=1)), retention)


def _vacuumed(
    offset: DeltaOffset,
    unread: Sequence[int],
    commits: Mapping[int, DeltaCommit],
    retention: timedelta | None,
    files_by_version: Mapping[int, Sequence[tuple[str, int | None]]],
) -> list[RemovalDeadline]:
    """Return when files of unread versions that later versions removed can be deleted."""
    if retention is None:
        return []
    holder: dict[str, int] = {}
    deadlines = []
    for version in unread:
        commit = commits.get(version)
        if commit is None:
            continue
        for path, removed_at in commit.removed:
            # While the source reads the table as of a version, any of its files may be unread.
            older = offset.version if offset.initial and version > offset.version else None
            mine = holder.pop(path, older)
            at = _later(removed_at, retention)
            if mine is not None and removed_at is not None and at is not None:
                deadlines.append(RemovalDeadline(at, removed_at, Removal.VACUUM, mine))
        holder |= {path: version for path, _ in files_by_version[version]}
    return deadlines


# --- Iceberg ------------------------------------------------------------------------------


def _expired(snapshot: int) -> str:
    return (
        f"snapshot {snapshot}, from which the query continues, has expired or was rolled back. "
        "Reset the query to continue with the snapshots that are left."
    )


def _numbers(lineage: Sequence[IcebergSnapshot]) -> range:
    """Return the number of each snapshot; the last one is the current one's sequence number."""
    last = max(lineage[-1].sequence, len(lineage)) if lineage else 0
    return range(last - len(lineage) + 1, last + 1)


def _snapshot_files(
    offset: IcebergOffset, snapshot: IcebergSnapshot
) -> tuple[int | None, int | None]:
    """Return the unread (files, bytes) of the snapshot that is partly read."""
    if not offset.initial and snapshot.operation != "append":
        return 0, 0
    total = snapshot.all_files if offset.initial else snapshot.files
    if total is None:
        return None, None
    left = max(0, total - offset.position)
    if left == 0:
        return 0, 0
    return left, snapshot.bytes if not offset.position and not offset.initial else None


def _appended(snapshot: IcebergSnapshot) -> tuple[int | None, int | None]:
    """Return the (files, bytes) that a source gets from a snapshot: it only reads appends."""
    return (snapshot.files, snapshot.bytes) if snapshot.operation == "append" else (0, 0)


def _iceberg_clock(
    offset: IcebergOffset, table: IcebergTable, numbers: Collection[int]
) -> RemovalDeadline | None:
    """Return when the snapshot to continue from can expire; never while it is the current one."""
    for snapshot, number in zip(table.lineage[: -table.min_snapshots], numbers, strict=False):
        if offset.snapshot in (None, snapshot.id):
            at = _later(snapshot.at, table.max_age)
            return (
                RemovalDeadline(at, snapshot.at, Removal.EXPIRE, number)
                if snapshot.at and at
                else None
            )
    return None


def _later(moment: datetime | None, length: timedelta | None) -> datetime | None:
    """Return the time `length` later; None if unknown, or beyond the range of datetime."""
    try:
        return moment + length if moment is not None and length is not None else None
    except OverflowError:
        return None


def _total(numbers: Iterable[int | None]) -> int | None:
    """Return a sum; None if a part of it is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
