"""The operator's verbs as pure changes, and every change of phase there can be.

`TRANSITIONS` is compared with the state diagram in `docs/architecture.md` and with what
`decide` does, both by tests: neither the picture nor the table can lie.
"""

from dataclasses import dataclass

from queries.domain.errors import NotAllowed
from queries.domain.states import FAILED_PHASES, STOPPED_PHASES, Desired, Phase, StopMode, Verb

_P = Phase

#: (from, to) of every change of phase that supervision makes.
TRANSITIONS: frozenset[tuple[Phase, Phase]] = frozenset(
    {
        (_P.STOPPED, _P.PENDING),
        (_P.STOPPED, _P.STARTING),
        (_P.STOPPED, _P.FAILED),
        (_P.COMPLETED, _P.PENDING),
        (_P.COMPLETED, _P.STARTING),
        (_P.COMPLETED, _P.STOPPED),
        (_P.PENDING, _P.STARTING),
        (_P.PENDING, _P.BACKOFF),
        (_P.PENDING, _P.FAILED),
        (_P.PENDING, _P.STOPPED),
        (_P.STARTING, _P.RUNNING),
        (_P.STARTING, _P.PENDING),
        (_P.STARTING, _P.COMPLETED),
        (_P.STARTING, _P.BACKOFF),
        (_P.STARTING, _P.BROKEN),
        (_P.STARTING, _P.FAILED),
        (_P.STARTING, _P.STOPPING),
        (_P.STARTING, _P.STOPPED),
        (_P.STARTING, _P.LOST),
        (_P.RUNNING, _P.PENDING),
        (_P.RUNNING, _P.STARTING),
        (_P.RUNNING, _P.COMPLETED),
        (_P.RUNNING, _P.BACKOFF),
        (_P.RUNNING, _P.BROKEN),
        (_P.RUNNING, _P.FAILED),
        (_P.RUNNING, _P.STOPPING),
        (_P.RUNNING, _P.STOPPED),
        (_P.RUNNING, _P.LOST),
        (_P.STOPPING, _P.STOPPED),
        (_P.STOPPING, _P.PENDING),
        (_P.STOPPING, _P.STARTING),
        (_P.STOPPING, _P.COMPLETED),
        (_P.STOPPING, _P.BACKOFF),
        (_P.STOPPING, _P.FAILED),
        (_P.STOPPING, _P.BROKEN),
        (_P.STOPPING, _P.LOST),
        (_P.BACKOFF, _P.PENDING),
        (_P.BACKOFF, _P.STARTING),
        (_P.BACKOFF, _P.STOPPED),
        (_P.BACKOFF, _P.FAILED),
        (_P.BROKEN, _P.PENDING),
        (_P.BROKEN, _P.STARTING),
        (_P.BROKEN, _P.STOPPED),
        (_P.FAILED, _P.PENDING),
        (_P.FAILED, _P.STARTING),
        (_P.FAILED, _P.BACKOFF),
        (_P.FAILED, _P.STOPPED),
        (_P.LOST, _P.STARTING),
        (_P.LOST, _P.RUNNING),
        (_P.LOST, _P.STOPPING),
        (_P.LOST, _P.STOPPED),
        (_P.LOST, _P.PENDING),
        (_P.LOST, _P.BACKOFF),
        (_P.LOST, _P.BROKEN),
        (_P.LOST, _P.COMPLETED),
        (_P.LOST, _P.FAILED),
    }
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operator's verb looks at."""

    name: str
    desired: Desired
    phase: Phase
    stop_mode: StopMode
    archived: bool
    has_run: bool
    open_restart: bool  # a restart has been asked for and has not ended


@dataclass(frozen=True, slots=True)
class Change:
    """What a verb makes of what is wanted; the generation rises by one with it."""

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
    if asked.desired is not Desired.STOPPED or asked.has_run:
        raise NotAllowed(
            f"{asked.name} is {asked.phase.label.lower()} and can be deleted only when stopped.",
            way_out="Stop it first.",
        )


def _alive(asked: Asked) -> None:
    if asked.archived:
        raise NotAllowed(f"{asked.name} has been deleted.", way_out="Define it anew.")
