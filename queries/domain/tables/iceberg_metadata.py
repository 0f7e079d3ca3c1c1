"""Parse the metadata of an Iceberg table in a Hadoop catalog, without Spark.

`metadata/version-hint.text` contains the newest version N; `metadata/vN.metadata.json` describes
the table with all its snapshots.

Source: Iceberg's table specification ("Table Metadata", "Snapshots", "Snapshot summary") and
HadoopTableOperations, checked with Iceberg 1.11.0 and format version 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import orjson

from headgate_ground.tolerant.values import at_ms, count, whole

METADATA = "metadata"  # the folder in the table
HINT = "version-hint.text"
#: Iceberg's defaults (`TableProperties`).
MAX_AGE, MIN_SNAPSHOTS = timedelta(days=5), 1
#: Keys in a snapshot's summary for the query and its batch (Iceberg: `SparkWrite`).
_QUERY, _EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"


@dataclass(frozen=True, slots=True)
class IcebergSnapshot:
    """One snapshot: what its commit added; what is unknown is None."""

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
    parsed = [_snapshot(row) for row in rows]
    snapshots = {snapshot.id: snapshot for snapshot in parsed if snapshot is not None}
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
        whole=complete and None not in parsed,
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
    number = _number(ms)
    try:
        return timedelta(milliseconds=number) if number is not None else None
    except OverflowError:  # "never": Long.MaxValue
        return None


def _number(value: Any) -> int | None:
    return whole(value) if isinstance(value, str) else count(value)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
