"""Continuous epochs in the form of Spark's progress.

Spark reports no progress for a continuous query, but its checkpoint contains each continuous
epoch's end offsets and commit time. The figures that other triggers report are calculated from
these and marked as derived, so that lists, charts and lag treat them alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

#: The value of the key "derived" in a derived progress.
DERIVED = "from the checkpoint: Spark reports no progress of continuous processing"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One committed continuous epoch."""

    number: int
    began: datetime  # when the previous one was committed, or when the run began
    committed: datetime
    start: Mapping[str, Any] = field(default_factory=dict)  # by source; empty: unknown
    end: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryIdentity:
    """The query that the epochs belong to, as Spark identifies it."""

    query_id: str
    run_id: str
    name: str
    source: str  # description of its source
    sink: str


def progress_of(epoch: Epoch, of: QueryIdentity) -> dict[str, Any]:
    """Return a continuous epoch as Spark's progress JSON.

    Rows are differences between offsets; an epoch with an unknown start (the first of a new
    checkpoint) has no rows and no rates.
    """
    duration_ms = max(0, round((epoch.committed - epoch.began).total_seconds() * 1000))
    sources = [
        _source(of.source, epoch.start.get(source_key), end, duration_ms)
        for source_key, end in epoch.end.items()
    ]
    row_counts = [source["numInputRows"] for source in sources if "numInputRows" in source]
    return {
        "id": of.query_id,
        "runId": of.run_id,
        "name": of.name,
        "timestamp": epoch.began.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
        "batchId": epoch.number,
        "batchDuration": duration_ms,
        "durationMs": {"triggerExecution": duration_ms},
        **(_rates(sum(row_counts), duration_ms) if row_counts else {}),
        "sources": sources,
        "sink": {"description": of.sink, "numOutputRows": -1},
        "derived": DERIVED,
    }


def rows_between(start: Any, end: Any) -> int | None:
    """Return the number of rows between two offsets of a source; None if unknown.

    Known forms: Kafka's {topic: {partition: next offset}}, and the rate source's {partition:
    {"value": …}}, whose values increase by the number of partitions. A new partition was read from
    its beginning, which is 0 if it has just been added.
    """
    if not isinstance(start, dict) or not isinstance(end, dict) or not start:
        return None
    if all(_is_rate(partition_end) for partition_end in end.values()):
        return sum(
            _rate_steps(start, key, partition_end) // len(end) for key, partition_end in end.items()
        )
    try:
        return sum(
            int(offset) - int(start.get(topic, {}).get(partition, 0))
            for topic, partitions in end.items()
            for partition, offset in partitions.items()
        )
    except (AttributeError, TypeError, ValueError):
        return None


def _rate_steps(start: dict[str, Any], key: str, end: dict[str, Any]) -> int:
    return int(end["value"]) - int(start.get(key, end)["value"])


def _is_rate(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("value"), int) and "runTimeMs" in value


def _source(description: str, start: Any, end: Any, duration_ms: int) -> dict[str, Any]:
    rows = rows_between(start, end)
    return {
        "description": description,
        "startOffset": start,
        "endOffset": end,
        "latestOffset": None,
        **(_rates(rows, duration_ms) if rows is not None else {}),
    }


def _rates(rows: int, duration_ms: int) -> dict[str, Any]:
    rate = rows * 1000 / duration_ms if duration_ms else None
    return {
        "numInputRows": rows,
        "inputRowsPerSecond": rate,
        "processedRowsPerSecond": rate,
    }
