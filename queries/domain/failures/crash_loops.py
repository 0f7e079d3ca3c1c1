"""Crash loops: enough failures in a short time to be one incident.

Supervision is not affected: restarts continue with backoff. Operators see one incident instead of
many failures.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

#: This many failures within `WINDOW` open an incident; see decisions/0005.
FAILURES = 5
WINDOW = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """One incident: its first and last failure, and the total number of failures."""

    first_at: datetime
    last_at: datetime
    count: int


def crash_loop(failures: Iterable[datetime], *, now: datetime) -> CrashLoop | None:
    """Return the incident that is open now, from the times of one query's failures.

    `FAILURES` failures within `WINDOW` open it. It begins with the first failure that had no other
    failure within the `WINDOW` before it, and remains one incident as long as each failure comes
    within `WINDOW` of the previous one, however far apart backoff spreads them. It ends `WINDOW`
    after the last failure.
    """
    times = sorted((at for at in failures if at <= now), reverse=True)
    chain: list[datetime] = []
    for at in times:
        if (chain[-1] if chain else now) - at > WINDOW:
            break
        chain.append(at)
    opened = any(
        newer - older <= WINDOW for newer, older in zip(chain, chain[FAILURES - 1 :], strict=False)
    )
    if not opened:
        return None
    return CrashLoop(first_at=chain[-1], last_at=chain[0], count=len(chain))
