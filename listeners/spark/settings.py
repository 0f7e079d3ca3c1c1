"""The settings of a driver's telemetry, passed as JSON in the driver's spec."""

from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Storage limits, intervals and timeouts."""

    force_fallback: bool = False  # never use the private queue
    queue_capacity: int = 10_000  # events in our private queue (Spark's own default)
    heartbeat_s: float = 2.0
    repair_s: float = 2.0  # between checks for batches that the bus did not deliver
    grace_s: float = 10.0  # delay after which a batch is fetched
    hold_s: float = 10.0  # how long an event waits for its run to become known
    hold_events: int = 1_000
    spool_mb: int = 256  # on disk, sent and unsent together
    spool_sent_mb: int = 32  # part of that kept after sending, for repairing lost entries
    max_unread: int = 20_000  # entries in its stream above which the sender pauses
    socket_timeout_s: float = 2.0
    slow_call_ms: float = 1_000.0  # calls of a user's listener above this count as slow

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Self:
        """Return settings from JSON, ignoring names that are unknown to this version."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in raw.items() if name in names})
