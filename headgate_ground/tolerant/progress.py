"""Remove impossible values from Spark's progress, as sent by a driver, before it is stored."""

from collections.abc import Mapping
from typing import Any

from headgate_ground.tolerant.values import count, duration_ms, rate, time_of


def sound_progress(body: Mapping[str, Any], *, at: str, batch: int) -> dict[str, Any]:
    """Return Spark's progress JSON without impossible values, which readers treat as unknown.

    Negative counts, non-numeric rates and durations, and parts of the wrong type are removed, in
    the same way as Spark itself omits unknown values; a state operator or source keeps its
    position. The event's own `at` and `batch` replace an invalid start time and batch number.
    Everything else remains as Spark wrote it, including a watermark after the year 9999.
    """
    sound = {name: value for name, value in body.items() if _is_sound(name, value)}
    sound.setdefault("batchId", batch)
    if time_of(sound.get("timestamp")) is None:
        sound["timestamp"] = at
    for name in ("stateOperators", "sources"):
        if name in sound:
            sound[name] = [_sound_part(one) for one in sound[name]]
    if "sink" in sound:
        sound["sink"] = _sound_part(sound["sink"])
    if "durationMs" in sound:
        spent = sound["durationMs"]
        sound["durationMs"] = {
            name: ms for name, ms in spent.items() if duration_ms(ms) is not None
        }
    return sound


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


def _is_sound(name: str, value: object) -> bool:
    if name in _COUNTS:
        return count(value) is not None
    if name in _DURATIONS:
        return duration_ms(value) is not None
    if name in _RATES:
        return rate(value) is not None
    if name in _LISTS:
        return isinstance(value, list)
    return isinstance(value, dict) if name in _OBJECTS else True


def _sound_part(part: object) -> dict[str, Any]:
    if not isinstance(part, dict):
        return {}
    return {name: value for name, value in part.items() if _is_sound(name, value)}


def total(parts: object, name: str) -> int | None:
    """Return a count's sum over state operators; None without any, or if one lacks the count."""
    each = parts if isinstance(parts, list) else []
    counts = [count(one.get(name)) if isinstance(one, dict) else None for one in each]
    known = [one for one in counts if one is not None]
    return count(sum(known)) if known and len(known) == len(counts) else None
