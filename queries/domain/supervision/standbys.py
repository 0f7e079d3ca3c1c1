"""Decide about an application's standby driver: a started Spark session that runs no query.

It takes over when the application needs its next driver (`halves.py`). Its own end is recorded like
any driver's (invariant I3), and does not count as a failure.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from queries.domain.protocol import ExitReport
from queries.domain.states import DriverState, Reason
from queries.domain.supervision.decision import DriverAction
from queries.domain.supervision.observation import DriverSeen, Limits, Liveness, StartMark
from queries.domain.supervision.outcomes import exit_of, was_fenced
from queries.domain.supervision.progress import advanced, is_stuck

#: A standby that dies is launched again after this long, twice as long after each further death
#: within `COUNTED`, and at most after `LONGEST`.
FIRST_WAIT, LONGEST = timedelta(seconds=10), timedelta(minutes=30)
COUNTED = timedelta(hours=1)
#: How long a run that had nothing to read is left alone: its first batch may still come, and would
#: take several times as long beside a JVM that starts.
CALM_AFTER = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class StandbyWanted:
    """Whether an application should have a standby now."""

    why_not: Reason = Reason.NONE  # NONE: it should
    may_start: bool = False  # its driver is calm, and this host has room that nobody waits for
    deaths: int = 0  # of its standbys, unasked, within `COUNTED`
    last_death: datetime | None = None

    @property
    def not_before(self) -> datetime | None:
        """Return when the next standby may be launched after a death; None if there was none."""
        if self.last_death is None or not self.deaths:
            return None
        wait: timedelta = FIRST_WAIT * 2 ** min(self.deaths - 1, 20)
        return self.last_death + min(LONGEST, wait)


def is_calm(proven_at: datetime | None, first_commit_at: datetime | None, now: datetime) -> bool:
    """Return whether a run has its first batch behind it, or has had nothing to read for long."""
    if proven_at is None:
        return False
    return first_commit_at is not None or now - proven_at >= CALM_AFTER


#: The states in which a standby may take over.
TAKES_OVER = frozenset({DriverState.STARTING, DriverState.LIVE})


def may_take_over(standby: DriverSeen, limits: Limits, now: datetime) -> bool:
    """Return whether a standby is ready, or ahead of a driver that would be launched now.

    It is ahead as soon as its process exists, unless its start is stuck.
    """
    sighting = standby.sighting
    if sighting.without_files or sighting.liveness not in {Liveness.SPAWNING, Liveness.ALIVE}:
        return False
    ready = sighting.status is not None and sighting.status.ready
    at = advanced(standby, now).at
    return ready or not is_stuck(
        began_at=standby.created_at, advanced_at=at, limits=limits, now=now
    )


@dataclass(frozen=True, slots=True)
class StandbyDecision:
    """What happens to an application's standby now."""

    action: DriverAction = DriverAction.NOTHING
    state: DriverState | None = None  # None: there is no row to change
    end_wanted: Reason = Reason.NONE
    exit: ExitReport | None = None  # it has ended, in this way
    progress: StartMark | None = None  # of its start; None: it has ended, or there is none


def decide_standby(
    standby: DriverSeen | None, wanted: StandbyWanted, limits: Limits, now: datetime
) -> StandbyDecision:
    """Return what to do about a standby, or about launching one if it is None."""
    if standby is None:
        waits = wanted.not_before is not None and wanted.not_before > now
        launch = not wanted.why_not and wanted.may_start and not waits
        return StandbyDecision(DriverAction.LAUNCH if launch else DriverAction.NOTHING)
    liveness = standby.sighting.liveness
    if liveness in {Liveness.EXITED, Liveness.GONE}:
        report = exit_of(standby, at=now.isoformat())
        state = DriverState.FENCED if was_fenced(report) else DriverState.ENDED
        return StandbyDecision(state=state, end_wanted=standby.end_wanted, exit=report)
    progress = advanced(standby, now)
    late = is_stuck(began_at=standby.created_at, advanced_at=progress.at, limits=limits, now=now)
    ready = standby.sighting.status is not None and standby.sighting.status.ready
    why = standby.end_wanted or wanted.why_not
    if not why and late and not ready and liveness is not Liveness.ORPHANED:
        why = Reason.START_TIMED_OUT
    if liveness is Liveness.ABSENT:  # it ends once its exit is recorded, so nothing spawns it
        act = DriverAction.SEAL if why else DriverAction.SPAWN
        return StandbyDecision(act, standby.state, why, progress=progress)
    if liveness is Liveness.ORPHANED:
        return StandbyDecision(DriverAction.KILL, standby.state, why, progress=progress)
    if not why:
        state = DriverState.LIVE if ready else standby.state
        return StandbyDecision(state=state, progress=progress)
    since = standby.end_wanted_at or now
    kill = why is Reason.START_TIMED_OUT or now - since > timedelta(seconds=limits.leave_s)
    action = DriverAction.KILL if kill else DriverAction.TERMINATE
    return StandbyDecision(action, DriverState.STOPPING, why, progress=progress)
