"""Remove impossible values from Spark's progress, as sent by a driver, before it is stored."""

from collections.abc import Callable
from typing import Any

from headgate_ground.tolerant.values import count, duration_ms, rate, time_of


def sound_progress(body: dict[str, Any], *, at: str, batch: int) -> dict[str, Any]:
    """Return Spark's progress JSON without impossible values, which readers treat as unknown.

    Negative counts, non-numeric rates and durations, and parts of the wrong type are removed, in
    the same way as Spark itself omits unknown values; a state operator or source keeps its
    position. The event's own `at` and `batch` replace an invalid start time and batch number.
    Everything else remains as Spark wrote it, including a watermark after the year 9999. A body
    without any of this is returned itself, because almost every body is.
    """
    sound = _sound_part(body)
    changes: dict[str, Any] = {}
    if "batchId" not in sound:
        changes["batchId"] = batch
    if time_of(sound.get("timestamp")) is None:
        changes["timestamp"] = at
    for name in ("stateOperators", "sources"):
        parts = sound.get(name, ())
        better = [_sound_part(part) for part in parts]
        if any(part is not other for part, other in zip(better, parts, strict=True)):
            changes[name] = better
    if "sink" in sound and (sink := _sound_part(sound["sink"])) is not sound["sink"]:
        changes["sink"] = sink
    spent = sound.get("durationMs", {})
    if any(duration_ms(ms) is None for ms in spent.values()):
        changes["durationMs"] = {
            name: ms for name, ms in spent.items() if duration_ms(ms) is not None
        }
    return {**sound, **changes} if changes else sound


#: The counts of Spark 4.3: its StreamingQueryProgress, SourceProgress, SinkProgress and
#: StateOperatorProgress.
_COUNTS = frozenset(
    {"batchId", "numInputRows", "numOutputRows", "numRowsTotal", "numRowsUpdated"}
    | {"numRowsRemoved", "memoryUsedBytes", "numRowsDroppedByWatermark"}
    | {"numShufflePartitions", "numStateStoreInstances"}
)
_DURATIONS = frozenset({"batchDuration", "allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs"})
_RATES = frozenset({"inputRowsPerSecond", "processedRowsPerSecond"})
_LISTS = frozenset({"stateOperators", "sources"})
_OBJECTS = frozenset({"durationMs", "eventTime", "sink", "observedMetrics", "customMetrics"})


def _list(value: object) -> object:
    return value if isinstance(value, list) else None


def _object(value: object) -> object:
    return value if isinstance(value, dict) else None


#: What returns None for an impossible value, by the value's name.
_READ: dict[str, Callable[[object], object]] = {
    **dict.fromkeys(_COUNTS, count),
    **dict.fromkeys(_DURATIONS, duration_ms),
    **dict.fromkeys(_RATES, rate),
    **dict.fromkeys(_LISTS, _list),
    **dict.fromkeys(_OBJECTS, _object),
}


def _sound_part(part: object) -> dict[str, Any]:
    """Return a part without impossible values: the part itself if there are none."""
    if not isinstance(part, dict):
        return {}
    bad = [
        name
        for name, value in part.items()
        if (read := _READ.get(name)) is not None and read(value) is None
    ]
    return {name: part[name] for name in part if name not in bad} if bad else part


def total(parts: object, name: str) -> int | None:
    """Return a count's sum over state operators; None without any, or if one lacks the count."""
    operators = parts if isinstance(parts, list) else []
    counts = [
        count(operator.get(name)) if isinstance(operator, dict) else None for operator in operators
    ]
    valid_counts = [operator for operator in counts if operator is not None]
    return count(sum(valid_counts)) if valid_counts and len(valid_counts) == len(counts) else None
