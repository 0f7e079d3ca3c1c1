"""The executors of a cluster driver: how many there are, and which were lost recently."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

#: A query's page mentions a loss for this long.
RECENT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor, as its driver reported it."""

    id: str
    address: str  # "host:port"
    cores: int
    active: bool
    added_at: datetime
    removed_at: datetime | None
    reason: str  # why it was removed, in Spark's words


@dataclass(frozen=True, slots=True)
class Executors:
    """All executors of a driver; empty with a local master."""

    active: tuple[Executor, ...] = ()
    lost: tuple[Executor, ...] = ()  # newest first
    news: str = ""  # what was lost in the last minutes, and whether it was replaced

    @property
    def cores(self) -> int:
        """How many tasks can run at once."""
        return sum(one.cores for one in self.active)


def executors(told: Iterable[Mapping[str, Any]], *, now: datetime) -> Executors:
    """Return the executors of a driver's row; `told` is its JSON form."""
    seen = [_executor(one) for one in told]
    active = tuple(one for one in seen if one.active)
    lost = tuple(one for one in seen if not one.active)
    recent = [one for one in lost if one.removed_at and now - one.removed_at <= RECENT]
    return Executors(active, lost, _news(recent, active))


def _news(lost: list[Executor], active: tuple[Executor, ...]) -> str:
    if not lost:
        return ""
    first = lost[-1]
    which = (
        f"Executor {first.id} on {first.address} was"
        if len(lost) == 1
        else f"{len(lost)} executors were"
    )
    why = f" ({first.reason.rstrip('. ')})" if first.reason and len(lost) == 1 else ""
    assert first.removed_at is not None
    found = sum(one.added_at >= first.removed_at for one in active)
    again = f"{found} replaced" if found else "not replaced yet"
    return (
        f"{which} lost at {first.removed_at:%H:%M:%S} UTC{why}; {again}. "
        f"{len(active)} with {sum(one.cores for one in active)} cores are active."
    )


def _executor(told: Mapping[str, Any]) -> Executor:
    removed = told.get("removed_at")
    return Executor(
        id=told["id"],
        address=told["address"],
        cores=told["cores"],
        active=told["active"],
        added_at=datetime.fromisoformat(told["added_at"]),
        removed_at=datetime.fromisoformat(removed) if removed else None,
        reason=told.get("reason", ""),
    )
