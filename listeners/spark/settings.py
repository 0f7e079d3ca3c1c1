"""The tunables of a driver's telemetry, handed over as JSON in the driver's spec."""

from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """How much may be stored, how often to look, how long to wait."""

    force_fallback: bool = False  # never use the private queue
    queue_capacity: int = 10_000  # events in our private queue (Spark's own default)
    heartbeat_s: float = 2.0
    repair_s: float = 2.0  # between looks for batches that the bus did not bring
    grace_s: float = 10.0  # a batch may be this late before it is fetched
    hold_s: float = 10.0  # an event waits this long for its run to become known
    hold_events: int = 1_000
    spool_mb: int = 256  # on disk, sent and unsent together
    spool_sent_mb: int = 32  # of them, after sending, for the repair of lost entries
    max_unread: int = 20_000  # entries in its stream above which the sender holds back
    socket_timeout_s: float = 2.0
    slow_call_ms: float = 1_000.0  # a user's listener is called slow above it

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Self:
        """Return settings from JSON; names that this version does not know are ignored."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in raw.items() if name in known})
