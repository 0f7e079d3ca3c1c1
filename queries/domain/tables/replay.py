"""Offsets of Delta and Iceberg sources, and how a table handles batches that are written again.

Sources: Delta's DeltaSourceOffset (source versions 1 and 3) and Iceberg's StreamingOffset
(version 1), checked with Delta 4.4.0 and Iceberg 1.11.0.

Delta's sink and Iceberg's streaming writer store the query's id and the batch's number with each
commit, and silently skip a batch whose number is not above the newest of that id. Sources: Delta's
DeltaSink (`txn` actions: the application id is the query's id) and Iceberg's SparkWrite (snapshot
summaries).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate_ground.tolerant import count
from queries.domain.tables.metadata import DeltaCommit, IcebergTable, TableState


@dataclass(frozen=True, slots=True)
class DeltaOffset:
    """How far a source has read a Delta table: all before a version, and part of that version."""

    table: str  # the table's id
    version: int
    index: int  # the last file of the version that is read; negative: none of it is
    initial: bool = False  # `index` counts the files of the table as of the version


@dataclass(frozen=True, slots=True)
class IcebergOffset:
    """How far a source has read an Iceberg table: some files of a snapshot, and all before it."""

    snapshot: int | None  # None: nothing is read
    position: int = 0  # files of the snapshot that are read
    initial: bool = False  # `position` counts all files of the table as of the snapshot


def delta_offset(value: Any) -> DeltaOffset | None:
    """Return an offset of a Delta source; None for any other value."""
    if not isinstance(value, Mapping) or not isinstance(value.get("reservoirId"), str):
        return None
    version, index = count(value.get("reservoirVersion")), value.get("index")
    if version is None or type(index) is not int:
        return None
    return DeltaOffset(value["reservoirId"], version, index, value.get("isStartingVersion") is True)


def iceberg_offset(value: Any) -> IcebergOffset | None:
    """Return an offset of an Iceberg source; None for any other value.

    A source that started on an empty table has the snapshot -1.
    """
    if not isinstance(value, Mapping) or "snapshot_id" not in value:
        return None
    snapshot, position = value["snapshot_id"], count(value.get("position"))
    if snapshot == -1:
        return IcebergOffset(None)
    if count(snapshot) is None or position is None:
        return None
    return IcebergOffset(snapshot, position, value.get("scan_all_files") is True)


@dataclass(frozen=True, slots=True)
class InTable:
    """The batches of one query in a table."""

    newest: int | None  # None: none was found
    certain: bool = True  # False: part of the table's history could not be read


def in_delta(query: str, state: TableState, commits: Iterable[DeltaCommit]) -> InTable:
    """Return a query's newest batch in a Delta table.

    `commits` are those after `state`, or the newest ones if `state` does not list batches.
    """
    batches = [commit.txns[query] for commit in commits if query in commit.txns]
    if state.txns is not None and query in state.txns:
        batches.append(state.txns[query])
    return InTable(max(batches, default=None), certain=bool(batches) or state.txns is not None)


def in_iceberg(query: str, table: IcebergTable) -> InTable:
    """Return a query's newest batch in an Iceberg table: that of its newest snapshot."""
    mine = [snapshot for snapshot in table.lineage if snapshot.query == query]
    newest = mine[-1].epoch if mine else None
    return InTable(newest, certain=newest is not None or table.whole)


def rewound(name: str, in_table: InTable, batch: int, newest: int) -> list[str]:
    """Describe the effect of a rewind to `batch` on the table; `newest` is the newest batch begun.

    The query keeps its id, and plans the batches after `batch` again.
    """
    if in_table.newest is None:
        return [_no_batch_text(name, in_table), "The rows of the replayed batches are added."]
    batches = _span(batch + 1, in_table.newest)
    if in_table.newest <= batch:
        return [
            f"{_has(name, in_table.newest)} The replayed batches are not in the table, so all "
            "of them are added."
        ]
    lines = [
        f"{_has(name, in_table.newest)} {batches} will run again and be skipped by the table: "
        "their rows are not written a second time."
    ]
    lines.append(_LOST.format(span=batches, first=batch + 1))
    if in_table.newest < newest:
        after = _span(in_table.newest + 1, newest)
        lines.append(f"{after} will be added: the table has no batch with that number.")
    return lines


def restarted(name: str, in_table: InTable) -> list[str]:
    """Describe the table's behaviour if the query keeps its id and restarts at batch 0."""
    if in_table.newest is None:
        return [_no_batch_text(name, in_table), "Rows that are read again are added."]
    batches = _span(0, in_table.newest)
    return [
        f"{_has(name, in_table.newest)} The query keeps its ID and numbers its batches from 0 "
        "again, "
        f"so the table skips {batches[0].lower()}{batches[1:]}, whatever they contain: those rows "
        "are lost. Instead, clone the query and reset the clone, or write to a new table."
    ]


def continued(name: str, in_table: InTable, batch: int) -> list[str]:
    """Say what the table does if the query keeps its id and continues after `batch`, elsewhere."""
    if in_table.newest is None:
        return [_no_batch_text(name, in_table), "Rows that are read again are added a second time."]
    if in_table.newest <= batch:
        return [
            f"{_has(name, in_table.newest)} The next batch is {batch + 1:,}, so nothing is "
            "skipped; rows that are read again are in the table twice."
        ]
    batches = _span(batch + 1, in_table.newest)
    return [
        f"{_has(name, in_table.newest)} {batches} will be skipped, and the rows in skipped batches "
        "are lost."
    ]


def new_id(name: str, *, same: bool) -> list[str]:
    """Describe a table's handling of a new query id; `same`: the original writes to it too."""
    if not same:
        return [f"Table {name} skips no batch of the new query, because it has a new ID."]
    return [
        f"The query gets a new ID, so table {name} skips nothing: rows that are written under both "
        "IDs are in the table twice."
    ]


def resumed(name: str, in_table: InTable, batch: int | None) -> list[str]:
    """Describe how the table handles a batch that runs again with the same id and number.

    `batch` is the batch that has started and has not committed; None if there is none.
    """
    if batch is not None and in_table.newest is None and not in_table.certain:
        return [_no_batch_text(name, in_table)]
    if batch is None or in_table.newest is None or in_table.newest < batch:
        return [f"Table {name} skips nothing: it does not have the next batch."]
    return [
        f"{_has(name, in_table.newest)} Batch {batch:,} was written before Spark could commit "
        "it, so the table skips it. If the batch now reads other rows than before, they are lost."
    ]


def unknown(name: str, why: str) -> list[str]:
    """Describe the known facts if the table's log could not be read."""
    return [
        f"What table {name} will do is unknown: {why} A table skips all batches of a query's ID "
        "up to the newest one that the table has."
    ]


_LOST = (
    "{span} may be split differently than before: batch {first:,} reads all that its source offers "
    "now, up to the query's rate limit. New rows in skipped batches are lost. To write them, clone "
    "the query to a new table instead."
)


def _has(name: str, newest: int) -> str:
    return f"Table {name} has the batches of this query up to {newest:,}."


def _no_batch_text(name: str, in_table: InTable) -> str:
    if in_table.certain:
        return f"Table {name} has no batch of this query's ID, so it skips nothing."
    return (
        f"No batch of this query's ID was found in table {name}, but part of its history could not "
        "be read: it may skip batches."
    )


def _span(first: int, last: int) -> str:
    return f"Batches {first:,} to {last:,}" if last > first else f"Batch {first:,}"
