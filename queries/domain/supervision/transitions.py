"""The operator's verbs as pure changes, and every change of phase there can be.

`TRANSITIONS` is compared with the state diagram in `docs/architecture.md` and with what
`decide` does, both by tests.
"""

from dataclasses import dataclass

from queries.domain.errors import NotAllowed
from queries.domain.states import FAILED_PHASES, STOPPED_PHASES, Desired, Phase, StopMode, Verb

#: From each phase, those that supervision may make of it.
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
#: (from, to) of every change of phase that supervision makes.
TRANSITIONS: frozenset[tuple[Phase, Phase]] = frozenset(
    (before, Phase(after)) for before, names in _NEXT.items() for after in names.split()
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operator's verb depends on."""

    name: str
    desired: Desired
    phase: Phase
    stop_mode: StopMode
    archived: bool
    has_run: bool
    open_restart: bool  # a restart was requested and is not finished


@dataclass(frozen=True, slots=True)
class Change:
    """How a verb changes the desired state; the generation rises by one with it."""

    verb: Verb
    desired: Desired
    stop_mode: StopMode
    pin: bool  # take the newest revision


def start(asked: Asked) -> Change | None:
    """Return the change that a start makes, or None where it is satisfied or under way."""
    _alive(asked)
    if asked.desired is Desired.RUNNING and asked.phase not in FAILED_PHASES:
        return None
    return Change(Verb.START, Desired.RUNNING, StopMode.GRACEFUL, pin=True)


def again(asked: Asked) -> Change | None:
    """Return the change that tries a failed query again as it is; None where nothing holds it."""
    _alive(asked)
    if asked.desired is not Desired.RUNNING or asked.phase not in FAILED_PHASES:
        return None
    return Change(Verb.START, Desired.RUNNING, StopMode.GRACEFUL, pin=False)


def stop(asked: Asked, mode: StopMode) -> Change | None:
    """Return the change that a stop makes, or None where it is satisfied or under way.

    A stop at once overtakes a graceful one; a graceful one does not slow an immediate one.
    """
    _alive(asked)
    if asked.desired is Desired.STOPPED:
        if asked.phase in STOPPED_PHASES and not asked.has_run:
            return None
        if not (mode is StopMode.NOW and asked.stop_mode is StopMode.GRACEFUL):
            return None
    return Change(Verb.STOP, Desired.STOPPED, mode, pin=False)


def restart(asked: Asked) -> Change | None:
    """Return the change that a restart makes, or None where one is under way."""
    _alive(asked)
    if asked.open_restart and asked.desired is Desired.RUNNING and asked.phase not in FAILED_PHASES:
        return None
    return Change(Verb.RESTART, Desired.RUNNING, StopMode.GRACEFUL, pin=True)


def archive(asked: Asked) -> None:
    """Raise `NotAllowed` unless the query may be deleted now."""
    _alive(asked)
    stopping = asked.has_run or asked.phase is Phase.STOPPING
    if asked.desired is not Desired.STOPPED or stopping:
        raise NotAllowed(
            f"{asked.name} is {asked.phase.label.lower()} and can be deleted only when stopped.",
            way_out="Stop it first.",
        )


def _alive(asked: Asked) -> None:
    if asked.archived:
        raise NotAllowed(f"{asked.name} has been deleted.", way_out="Define it again.")
