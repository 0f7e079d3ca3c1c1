"""Parse the metadata of Delta and Iceberg tables, without Spark.

`N.json` is the commit of version N: one action per line. `N.crc` describes the table as of version
N; by default, Delta writes it with each commit, and other writers (delta-rs) never do. A checkpoint
of version N has the actions in force at that version, in one or more files; `_last_checkpoint`
contains the version of the newest one.

Source: Delta's PROTOCOL.md ("Delta Log Entries", "Version Checksum File", "Checkpoints", "Last
Checkpoint File"), checked with Delta 4.4.0.

`metadata/version-hint.text` contains the newest version N; `metadata/vN.metadata.json` describes
the table with all its snapshots.

Source: Iceberg's table specification ("Table Metadata", "Snapshots", "Snapshot summary") and
HadoopTableOperations, checked with Iceberg 1.11.0 and format version 2.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import orjson

from headgate_ground.tolerant import at_ms, count, whole

LOG = "_delta_log"  # the log's folder in the table
LAST_CHECKPOINT = "_last_checkpoint"
SIDECARS = "_sidecars"  # the folder in the log with further files of checkpoints
#: Delta's defaults (`DeltaConfigs`): a table's configuration has no entry for them.
LOG_RETENTION, FILE_RETENTION = timedelta(days=30), timedelta(days=7)

#: Live files of a table that are counted; of a table with more, they are unknown.
MOST_LIVE = 100_000
#: Files of one checkpoint that are read; Delta writes one for each million actions.
MOST_PARTS = 200

_COMMIT = re.compile(r"(\d{20})\.json")
#: One file, one of several parts, or the main file of a "V2" checkpoint, which has a UUID.
_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint"
    r"(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|(?:\.[\da-f-]{36})?\.(?:parquet|json))"
)
_SIDECAR = re.compile(r"[\w.-]{1,200}\.parquet")
_UNITS = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
}
_PART = re.compile(rf"([+-]?\d{{1,12}})\s+({'|'.join(_UNITS)})s?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """One version of a table: the files that its commit added and removed."""

    version: int
    at: datetime | None = None  # when it was committed; None if the commit does not say
    added: tuple[tuple[str, int | None], ...] = ()  # (path, bytes) of data that readers get
    rearranged: tuple[tuple[str, int | None], ...] = ()  # added without new data, as by OPTIMIZE
    removed: tuple[tuple[str, datetime | None], ...] = ()  # (path, when it was removed)
    changes: bool = False  # it removes data: an update, a delete, a merge or an overwrite
    txns: Mapping[str, int] = field(default_factory=dict)  # application id -> its version
    table: str = ""  # the table's id, if the commit sets it
    conf: Mapping[str, str] | None = None  # the table's configuration, if the commit sets it
    sidecars: tuple[str, ...] = ()  # names of files with more actions, of a checkpoint
    whole: bool = True  # False: a line could not be read, so the other fields may be incomplete


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as of one version; unknown values are None."""

    version: int
    table: str = ""  # its id; "" if unknown
    conf: Mapping[str, str] | None = None
    files: int | None = None
    bytes: int | None = None
    txns: Mapping[str, int] | None = None  # application id -> its newest version
    live: Mapping[str, int | None] | None = None  # path -> bytes of each of its files

    @property
    def log_retention(self) -> timedelta | None:
        """Return how long log files are kept; None if unknown or unlimited."""
        if self.conf is None or self.conf.get("delta.enableExpiredLogCleanup") == "false":
            return None
        return _retention(self.conf, "delta.logRetentionDuration", LOG_RETENTION)

    @property
    def file_retention(self) -> timedelta | None:
        """Return how long VACUUM keeps removed files by default; None if unknown."""
        if self.conf is None:
            return None
        return _retention(self.conf, "delta.deletedFileRetentionDuration", FILE_RETENTION)


@dataclass(frozen=True, slots=True)
class DeltaCheckpoint:
    """The files of one checkpoint, by name."""

    version: int
    names: tuple[str, ...]


#: A table before its first commit.
NEW = TableState(-1, txns={}, live={})


def commit_name(version: int) -> str:
    """Return the name of a version's commit."""
    return f"{version:020}.json"


def checksum_name(version: int) -> str:
    """Return the name of the file that describes the table as of a version."""
    return f"{version:020}.crc"


def version_of(name: str) -> int | None:
    """Return the version of a commit's name; None for any other name."""
    match = _COMMIT.fullmatch(name)
    return whole(match[1]) if match else None


def read_commit(version: int, text: bytes) -> DeltaCommit:
    """Return the contents of a commit; lines that cannot be read are skipped."""
    return commit_of(version, [_object(line) for line in text.split(b"\n") if line.strip()])


def commit_of(version: int, lines: Iterable[Any]) -> DeltaCommit:
    """Return the contents of a commit or checkpoint file; lines without an action are skipped."""
    actions, complete = [], True
    for line in lines:
        complete &= isinstance(line, dict)
        actions.append(line if isinstance(line, dict) else {})
    info = _first(actions, "commitInfo")
    meta = _first(actions, "metaData")
    added: list[tuple[str, int | None]] = []
    rearranged: list[tuple[str, int | None]] = []
    removed, changes, txns, sidecars = [], False, {}, []
    for action in actions:
        match action:
            case {"add": {"path": str(path), **file}}:
                into = rearranged if file.get("dataChange") is False else added
                into.append((path, count(file.get("size"))))
            case {"remove": {"path": str(path), **file}}:
                removed.append((path, at_ms(file.get("deletionTimestamp"))))
                changes |= file.get("dataChange") is not False
            case {"txn": {"appId": str(app), "version": number}} if count(number) is not None:
                txns[app] = number
            case {"sidecar": {"path": str(path)}} if _SIDECAR.fullmatch(path):
                sidecars.append(path)
            case {"add": _} | {"remove": _} | {"txn": _} | {"sidecar": _}:
                complete = False
    return DeltaCommit(
        version=version,
        at=at_ms(info.get("inCommitTimestamp")) or at_ms(info.get("timestamp")),
        added=tuple(added),
        rearranged=tuple(rearranged),
        removed=tuple(removed),
        changes=changes,
        txns=txns,
        table=_text(meta.get("id")),
        conf=_conf(meta) if meta else None,
        sidecars=tuple(sidecars),
        whole=complete,
    )


def replayed(state: TableState, commits: Iterable[DeltaCommit]) -> TableState:
    """Return the table as of the last of these commits, which follow `state` without a gap.

    A checkpoint's files, in any order, are replayed on `NEW`. An incomplete commit leaves its
    table's ID, which commits hardly ever change, and nothing else.
    """
    version, table, conf = state.version, state.table, state.conf
    txns = None if state.txns is None else dict(state.txns)
    live = None if state.live is None else dict(state.live)
    files, size = state.files, state.bytes
    for commit in commits:
        version, table = commit.version, commit.table or table
        if commit.conf is not None or not commit.whole:
            conf = commit.conf
        if not commit.whole:
            txns = live = None
        if txns is not None:
            txns |= commit.txns
        files = size = None
        if live is not None:
            for path, _ in commit.removed:
                live.pop(path, None)
            live |= dict((*commit.rearranged, *commit.added))
            live = live if len(live) <= MOST_LIVE else None
    if live is not None:
        sizes = [file_size for file_size in live.values() if file_size is not None]
        files, size = len(live), sum(sizes) if len(sizes) == len(live) else None
    return TableState(version, table, conf, files, size, txns, live)


def read_checksum(version: int, text: bytes) -> TableState:
    """Return the table as of a version, from its checksum file; unreadable values are unknown."""
    checksum = _object(text) or {}
    meta = checksum.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    listed = checksum.get("setTransactions")
    txns: dict[str, int] | None = None
    if isinstance(listed, list):
        txns = {
            txn["appId"]: txn["version"]
            for txn in listed
            if isinstance(txn, dict)
            and isinstance(txn.get("appId"), str)
            and count(txn.get("version")) is not None
        }
    return TableState(
        version=version,
        table=_text(meta.get("id")),
        conf=_conf(meta) if meta else None,
        files=count(checksum.get("numFiles")),
        bytes=count(checksum.get("tableSizeBytes")),
        txns=txns,
    )


def read_last_checkpoint(text: bytes) -> DeltaCheckpoint | None:
    """Return the checkpoint that `_last_checkpoint` describes; None if it cannot be read."""
    pointer = _object(text) or {}
    version, parts, main = (
        count(pointer.get("version")),
        count(pointer.get("parts")),
        pointer.get("v2Checkpoint"),
    )
    if version is None:
        return None
    path = main.get("path") if isinstance(main, dict) else None
    if isinstance(path, str) and _CHECKPOINT.fullmatch(path):
        return DeltaCheckpoint(version, (path,))
    begin = f"{version:020}.checkpoint"
    if not parts:
        return DeltaCheckpoint(version, (f"{begin}.parquet",))
    parts = min(parts, MOST_PARTS + 1)  # one more than is read: too many
    names = (f"{begin}.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1))
    return DeltaCheckpoint(version, tuple(names))


def checkpoints_in(names: Iterable[str]) -> dict[int, DeltaCheckpoint]:
    """Return a log's complete checkpoints by their versions, from the names in its folder."""
    parts: dict[tuple[int, int], list[str]] = {}
    checkpoints: dict[int, DeltaCheckpoint] = {}
    for name in sorted(names):
        match = _CHECKPOINT.fullmatch(name)
        if match is None or (version := whole(match["version"])) is None:
            continue
        if match["parts"] is None:
            checkpoints[version] = DeltaCheckpoint(version, (name,))
            continue
        own = parts.setdefault((version, int(match["parts"])), [])
        own.append(name)
        if len(own) == int(match["parts"]):
            checkpoints[version] = DeltaCheckpoint(version, tuple(own))
    return checkpoints


def interval(text: str) -> timedelta | None:
    """Return a duration such as "interval 30 days" or "1 day 12 hours"; None if it is not one.

    Delta does not allow months and years.
    """
    rest = text.strip()
    if rest[:9].lower() == "interval ":
        rest = rest[9:].strip()
    total, has_parts = timedelta(), False
    while rest:
        part = _PART.match(rest)
        if part is None:
            return None
        try:
            total += int(part[1]) * _UNITS[part[2].lower()]
        except OverflowError:
            return None
        rest, has_parts = rest[part.end() :].strip(), True
    return total if has_parts and total >= timedelta() else None


def _retention(conf: Mapping[str, str], key: str, default: timedelta) -> timedelta | None:
    return interval(conf[key]) if key in conf else default


def _conf(meta: Mapping[str, Any]) -> dict[str, str]:
    conf = meta.get("configuration")
    return {str(key): str(value) for key, value in conf.items()} if isinstance(conf, dict) else {}


def _first(actions: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next((action[kind] for action in actions if isinstance(action.get(kind), dict)), {})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


METADATA = "metadata"  # the folder in the table
HINT = "version-hint.text"
#: Iceberg's defaults (`TableProperties`).
MAX_AGE, MIN_SNAPSHOTS = timedelta(days=5), 1
#: Keys in a snapshot's summary for the query and its batch (Iceberg: `SparkWrite`).
_QUERY, _EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"


@dataclass(frozen=True, slots=True)
class IcebergSnapshot:
    """One snapshot and the files that its commit added; unknown values are None."""

    id: int
    parent: int | None = None
    at: datetime | None = None
    sequence: int = 0  # 0 in tables of format version 1
    operation: str = ""  # "append", "replace", "overwrite", "delete"
    files: int | None = None  # added
    bytes: int | None = None  # added
    all_files: int | None = None  # of the whole table
    query: str = ""  # the id of the streaming query that wrote it
    epoch: int | None = None  # its batch


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """A table as of one version of its metadata."""

    id: str  # "" if unknown
    lineage: tuple[IcebergSnapshot, ...] = ()  # the snapshots up to the current one, oldest first
    whole: bool = True  # False: a snapshot could not be read
    max_age: timedelta | None = None  # of a snapshot, for `expire_snapshots`; None if unknown
    min_snapshots: int = field(default=MIN_SNAPSHOTS)  # newest snapshots that are kept at any age


def metadata_name(version: int) -> str:
    """Return the name of a version's metadata file."""
    return f"v{version}.metadata.json"


def read_hint(text: bytes) -> int | None:
    """Return the version in `version-hint.text`; None if it is not a number."""
    return whole(text.strip())


def read_metadata(text: bytes) -> IcebergTable | None:
    """Return the table of a metadata file; None if the file is not readable.

    A snapshot that cannot be read is left out, and ends the lineage.
    """
    try:
        metadata = orjson.loads(text)
    except ValueError:
        return None
    if not isinstance(metadata, dict):
        return None
    rows = metadata.get("snapshots", [])
    rows = rows if isinstance(rows, list) else [None]
    parsed_snapshots = [_snapshot(row) for row in rows]
    snapshots = {snapshot.id: snapshot for snapshot in parsed_snapshots if snapshot is not None}
    lineage, complete = _lineage(count(metadata.get("current-snapshot-id")), snapshots)
    properties, main = (
        _dict(metadata.get("properties")),
        _dict(_dict(metadata.get("refs")).get("main")),
    )
    age_ms = _setting(main, "max-snapshot-age-ms", properties, "history.expire.max-snapshot-age-ms")
    min_to_keep = _setting(
        main, "min-snapshots-to-keep", properties, "history.expire.min-snapshots-to-keep"
    )
    return IcebergTable(
        id=metadata["table-uuid"] if isinstance(metadata.get("table-uuid"), str) else "",
        lineage=lineage,
        whole=complete and None not in parsed_snapshots,
        max_age=_span(age_ms),
        min_snapshots=count(_number(min_to_keep)) or MIN_SNAPSHOTS,
    )


def _lineage(
    current: int | None, snapshots: Mapping[int, IcebergSnapshot]
) -> tuple[tuple[IcebergSnapshot, ...], bool]:
    """Return the ancestors of a snapshot and itself, and whether the current one is known."""
    ancestors: dict[int, IcebergSnapshot] = {}
    at = current
    while at is not None and at in snapshots and at not in ancestors:
        ancestors[at] = snapshots[at]
        at = snapshots[at].parent
    return tuple(reversed(ancestors.values())), current is None or current in ancestors


def _snapshot(row: Any) -> IcebergSnapshot | None:
    if not isinstance(row, dict) or count(row.get("snapshot-id")) is None:
        return None
    summary = _dict(row.get("summary"))
    operation = summary.get("operation")
    return IcebergSnapshot(
        id=row["snapshot-id"],
        parent=count(row.get("parent-snapshot-id")),
        at=at_ms(row.get("timestamp-ms")),
        sequence=count(row.get("sequence-number")) or 0,
        operation=operation if isinstance(operation, str) else "",
        files=_added(summary, "added-data-files"),
        bytes=_added(summary, "added-files-size"),
        all_files=_number(summary.get("total-data-files")),
        query=str(summary.get(_QUERY, "")),
        epoch=_number(summary.get(_EPOCH)),
    )


def _added(summary: Mapping[str, Any], key: str) -> int | None:
    """Return a count of a summary; Iceberg omits counts of 0, so 0 if the summary has others."""
    if key in summary:
        return _number(summary[key])
    return 0 if "total-data-files" in summary else None


def _setting(
    branch: Mapping[str, Any], own: str, properties: Mapping[str, Any], key: str
) -> object:
    return branch[own] if own in branch else properties.get(key)


def _span(ms: object) -> timedelta | None:
    if ms is None:
        return MAX_AGE
    milliseconds = _number(ms)
    try:
        return timedelta(milliseconds=milliseconds) if milliseconds is not None else None
    except OverflowError:  # "never": Long.MaxValue
        return None


def _number(value: Any) -> int | None:
    return whole(value) if isinstance(value, str) else count(value)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
