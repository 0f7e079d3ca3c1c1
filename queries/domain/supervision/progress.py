"""Tell a start that is slow from one that is stuck: a busy host makes every start slow.

A start makes progress while its driver reports new steps, or while its processes use processor
time. The steps are the driver's own report, and an application's code can use processor time on
purpose, so no start may take longer than `Limits.start_max_s`.
"""

from datetime import datetime, timedelta

from queries.domain.states import Phase, Reason
from queries.domain.supervision.observation import DriverSeen, Limits, StartMark

#: Seconds of processor time, by all of a driver's processes, that count as progress. Loading
#: classes for a Spark session takes about 15 s; a JVM that only waits uses 2 s in some minutes.
LEAST_CPU_S = 2.0
#: Characters of a step that are recorded: a driver's own code can report anything.
STEP_LENGTH = 40


def advanced(driver: DriverSeen, now: datetime) -> StartMark:
    """Return how far a driver has come: a new mark if it advanced since the last, or the last."""
    mark = driver.progress or StartMark(driver.created_at)
    sighting = driver.sighting
    step = mark.step if sighting.status is None else str(sighting.status.step)[:STEP_LENGTH]
    used = mark.cpu_s if sighting.cpu_s is None else sighting.cpu_s
    if step == mark.step and used < mark.cpu_s + LEAST_CPU_S:
        return mark
    return StartMark(now, used, step)


def is_stuck(*, began_at: datetime, advanced_at: datetime, limits: Limits, now: datetime) -> bool:
    """Return whether a start has not advanced for its limit, or has taken its maximum."""
    stuck = now - max(began_at, advanced_at) > timedelta(seconds=limits.start_s)
    return stuck or has_taken_longest(began_at, limits, now)


def waits_for_start(phase: Phase, reason: Reason, *, busy: bool) -> bool:
    """Return whether a query or script waits for a start, which is given up when it is stuck.

    Whatever waits for the same must not give up earlier. On a busy host, a first batch takes long.
    """
    if phase is Phase.STARTING:
        return reason is Reason.WAITS_DRIVER or (busy and reason is Reason.WAITS_COMMIT)
    abandoned = (Phase.STOPPING, Reason.START_TIMED_OUT)  # its failure is recorded with its end
    return (phase, reason) in {(Phase.PENDING, Reason.WAITS_SLOT), abandoned}


def has_taken_longest(began_at: datetime, limits: Limits, now: datetime) -> bool:
    """Return whether a start has taken its maximum, which ends it even while it advances."""
    return now - began_at > timedelta(seconds=limits.start_max_s)
