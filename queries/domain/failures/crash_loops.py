"""A crash loop: so many failures in so short a time that they are one incident.

It does not change supervision: restarts continue with backoff. It shows an operator one incident
instead of many failures.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

#: So many failures within `WINDOW` open an incident; see decisions/0005.
FAILURES = 5
WINDOW = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """One incident: its first and last failure, and how many there were in all."""

    first_at: datetime
    last_at: datetime
    count: int


def crash_loop(failures: Iterable[datetime], *, now: datetime) -> CrashLoop | None:
    """Return the incident that is open now, from the times of one query's failures.

    It is opened by `FAILURES` within `WINDOW`. It begins with the first failure that
    came after no other within `WINDOW`, and stays one incident while each next failure comes
    within `WINDOW` of the one before, however far backoff spreads them. It ends `WINDOW`
    after the last.
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
