"""The operator's verbs as pure changes, and every possible phase change.

Tests compare `TRANSITIONS` with the state diagram in `docs/architecture.md` and with what `decide`
does.
"""

from dataclasses import dataclass

from queries.domain.errors import NotAllowed
from queries.domain.states import FAILED_PHASES, STOPPED_PHASES, Desired, Phase, StopMode, Verb

#: The phases to which supervision may move a query from each phase.
_NEXT = {
    Phase.STOPPED: "PENDING STARTING FAILED",
    Phase.COMPLETED: "PENDING STARTING STOPPED",
    Phase.PENDING: "STARTING BACKOFF FAILED STOPPED STOPPING",
    Phase.STARTING: "RUNNING PENDING COMPLETED BACKOFF BROKEN FAILED STOPPING STOPPED LOST",
    Phase.RUNNING: "PENDING STARTING COMPLETED BACKOFF BROKEN FAILED STOPPING STOPPED LOST",
    Phase.STOPPING: "STOPPED PENDING STARTING COMPLETED BACKOFF FAILED BROKEN LOST",
    Phase.BACKOFF: "PENDING STARTING STOPPED FAILED STOPPING",
    Phase.BROKEN: "PENDING STARTING STOPPED STOPPING",
    Phase.FAILED: "PENDING STARTING BACKOFF STOPPED STOPPING",
    Phase.LOST: "STARTING RUNNING STOPPING STOPPED PENDING BACKOFF BROKEN COMPLETED FAILED",
}
#: (from, to) of every phase change that supervision makes.
TRANSITIONS: frozenset[tuple[Phase, Phase]] = frozenset(
    (before, Phase(after)) for before, names in _NEXT.items() for after in names.split()
)


@dataclass(frozen=True, slots=True)
class TransitionInput:
    """What the effect of an operator's verb depends on."""

    name: str
    desired: Desired
    phase: Phase
    stop_mode: StopMode
    archived: bool
    has_run: bool
    open_restart: bool  # a restart was requested and is not finished
    away: str = ""  # the host of its open run, if that host is not responding


@dataclass(frozen=True, slots=True)
class DesiredStateChange:
    """How a verb changes the desired state; each change increases the generation by one."""

    verb: Verb
    desired: Desired
    stop_mode: StopMode
    pin: bool  # use the newest revision


def start(current: TransitionInput) -> DesiredStateChange | None:
    """Return the change for a start; None if the query is already running or starting."""
    _alive(current)
    if current.desired is Desired.RUNNING and current.phase not in FAILED_PHASES:
        return None
    return DesiredStateChange(Verb.START, Desired.RUNNING, StopMode.GRACEFUL, pin=True)


def retry(current: TransitionInput) -> DesiredStateChange | None:
    """Return the change that retries a failed query unchanged; None if it is not held."""
    _alive(current)
    if current.desired is not Desired.RUNNING or current.phase not in FAILED_PHASES:
        return None
    return DesiredStateChange(Verb.START, Desired.RUNNING, StopMode.GRACEFUL, pin=False)


def stop(current: TransitionInput, mode: StopMode) -> DesiredStateChange | None:
    """Return the change for a stop; None if the query has already stopped or is stopping.

    An immediate stop overrides a graceful one; a graceful stop does not slow down an immediate one.
    """
    _alive(current)
    if current.desired is Desired.STOPPED:
        if current.phase in STOPPED_PHASES and not current.has_run:
            return None
        if not (mode is StopMode.NOW and current.stop_mode is StopMode.GRACEFUL):
            return None
    return DesiredStateChange(Verb.STOP, Desired.STOPPED, mode, pin=False)


def restart(current: TransitionInput) -> DesiredStateChange | None:
    """Return the change for a restart; None if one is under way."""
    _alive(current)
    if (
        current.open_restart
        and current.desired is Desired.RUNNING
        and current.phase not in FAILED_PHASES
    ):
        return None
    return DesiredStateChange(Verb.RESTART, Desired.RUNNING, StopMode.GRACEFUL, pin=True)


def archive(current: TransitionInput) -> None:
    """Raise `NotAllowed` unless the query may be deleted now."""
    _alive(current)
    stopping = current.has_run or current.phase is Phase.STOPPING
    if stopping and current.away:
        raise NotAllowed(
            f"{current.name} may still run on host {current.away}, which is not responding.",
            way_out="Stop the query, wait for that host or declare it gone, then delete the query.",
        )
    if current.desired is not Desired.STOPPED or stopping:
        raise NotAllowed(
            f"{current.name} is {current.phase.label.lower()} and can be deleted only when "
            "stopped.",
            way_out="Stop it first.",
        )


def _alive(current: TransitionInput) -> None:
    if current.archived:
        raise NotAllowed(f"{current.name} has been deleted.", way_out="Define it again.")
