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
class Asked:
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
class Change:
    """How a verb changes the desired state; each change increases the generation by one."""

    verb: Verb
    desired: Desired
    stop_mode: StopMode
    pin: bool  # use the newest revision


def start(asked: Asked) -> Change | None:
    """Return the change for a start; None if the query is already running or starting."""
    _alive(asked)
    if asked.desired is Desired.RUNNING and asked.phase not in FAILED_PHASES:
        return None
    return Change(Verb.START, Desired.RUNNING, StopMode.GRACEFUL, pin=True)


def again(asked: Asked) -> Change | None:
    """Return the change that retries a failed query unchanged; None if it is not held."""
    _alive(asked)
    if asked.desired is not Desired.RUNNING or asked.phase not in FAILED_PHASES:
        return None
    return Change(Verb.START, Desired.RUNNING, StopMode.GRACEFUL, pin=False)


def stop(asked: Asked, mode: StopMode) -> Change | None:
    """Return the change for a stop; None if the query has already stopped or is stopping.

    An immediate stop overrides a graceful one; a graceful stop does not slow down an immediate one.
    """
    _alive(asked)
    if asked.desired is Desired.STOPPED:
        if asked.phase in STOPPED_PHASES and not asked.has_run:
            return None
        if not (mode is StopMode.NOW and asked.stop_mode is StopMode.GRACEFUL):
            return None
    return Change(Verb.STOP, Desired.STOPPED, mode, pin=False)


def restart(asked: Asked) -> Change | None:
    """Return the change for a restart; None if one is under way."""
    _alive(asked)
    if asked.open_restart and asked.desired is Desired.RUNNING and asked.phase not in FAILED_PHASES:
        return None
    return Change(Verb.RESTART, Desired.RUNNING, StopMode.GRACEFUL, pin=True)


def archive(asked: Asked) -> None:
    """Raise `NotAllowed` unless the query may be deleted now."""
    _alive(asked)
    stopping = asked.has_run or asked.phase is Phase.STOPPING
    if stopping and asked.away:
        raise NotAllowed(
            f"{asked.name} may still run on host {asked.away}, which is not responding.",
            way_out="Stop the query, wait for that host or declare it gone, then delete the query.",
        )
    if asked.desired is not Desired.STOPPED or stopping:
        raise NotAllowed(
            f"{asked.name} is {asked.phase.label.lower()} and can be deleted only when stopped.",
            way_out="Stop it first.",
        )


def _alive(asked: Asked) -> None:
    if asked.archived:
        raise NotAllowed(f"{asked.name} has been deleted.", way_out="Define it again.")
