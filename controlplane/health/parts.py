"""The form in which each part of the system tells its health, and the words they share."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from queries.domain.masking import mask_text


class State(StrEnum):
    """The state of a part."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"  # it cannot be checked, because another part is down


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the system."""

    name: str
    state: State
    sentence: str
    since: datetime | None  # since when there is a problem, as far as known

    @property
    def ok(self) -> bool:
        """Tell whether the part works."""
        return self.state == State.OK


def ok(name: str, sentence: str) -> Part:
    """Return a part that works."""
    return Part(name, State.OK, sentence, None)


def problem(name: str, sentence: str, since: datetime | None = None) -> Part:
    """Return a part that has a problem, since when as far as that is known."""
    return Part(name, State.PROBLEM, sentence, since)


def unknown(name: str, why: str) -> Part:
    """Return a part that cannot be checked."""
    return Part(name, State.UNKNOWN, f"Not known: {why}.", None)


def clock(at: datetime) -> str:
    """Return a time of day as sentences tell it: "08:30:00 UTC"."""
    return f"{at:%H:%M:%S} UTC"


def first_line(error: Exception) -> str:
    """Return what an error says, masked, or its type where it says nothing."""
    lines = mask_text(str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__
