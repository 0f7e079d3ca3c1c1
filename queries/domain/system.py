"""The health of the system's parts: their states, and the words that their sentences share."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from headgate_ground.masking import mask_text


class PartState(StrEnum):
    """The state of a part."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"  # it cannot be checked, because another part is down


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the system."""

    name: str
    state: PartState
    sentence: str
    since: datetime | None  # since when there has been a problem, as far as known

    @property
    def ok(self) -> bool:
        """Return whether the part works."""
        return self.state == PartState.OK


def ok(name: str, sentence: str) -> Part:
    """Return a part that works."""
    return Part(name, PartState.OK, sentence, None)


def problem(name: str, sentence: str, since: datetime | None = None) -> Part:
    """Return a part that has a problem, and since when, as far as known."""
    return Part(name, PartState.PROBLEM, sentence, since)


def unknown(name: str, why: str) -> Part:
    """Return a part that cannot be checked."""
    return Part(name, PartState.UNKNOWN, f"Unknown: {why}.", None)


def clock(at: datetime) -> str:
    """Return a time of day as shown in sentences: "08:30:00 UTC"."""
    return f"{at:%H:%M:%S} UTC"


def first_line(error: Exception) -> str:
    """Return an error's message, masked, or its type if the message is empty."""
    lines = mask_text(str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


SETUP = "setup"  # whether users and scripts can begin

#: How the kernel's errors ENOSPC and EDQUOT read.
FULL_DISK = ("No space left on device", "Disk quota exceeded")
#: A part for each full file system of queries' data: this, and where it is mounted.
OF_DATA = "disk "

#: The parts that `/readyz` requires.
READY_PARTS = ("database", "redis", "worker", "ingester", SETUP)
#: Parts that `/readyz` reports in addition: if one of several hosts is silent, the others still
#: work, and so do starts and stops while other periodic work than the sweep is late.
REPORTED_PARTS = (*READY_PARTS, "hosts", "ticks")


@dataclass(frozen=True, slots=True)
class SystemHealth:
    """All parts at the time `at`."""

    at: datetime
    parts: tuple[Part, ...]

    @property
    def ok(self) -> bool:
        """Return whether every part works."""
        return all(part.ok for part in self.parts)

    @property
    def ready(self) -> bool:
        """Return whether users and scripts can define, start and watch queries."""
        return all(part.ok for part in self.parts if part.name in READY_PARTS)

    @property
    def problems(self) -> tuple[Part, ...]:
        """Return the parts that have their own problem, worst first as listed."""
        return tuple(part for part in self.parts if part.state == PartState.PROBLEM)
