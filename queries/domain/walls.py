"""The isolation (walls) around drivers: which kinds exist, and what each lets Python authors do."""

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """What separates the code of a driver's authors from the rest of the host."""

    BUBBLEWRAP = "bubblewrap"
    NEITHER = "neither"

    @property
    def sentence(self) -> str:
        """Return what a Python author can do with this isolation."""
        return _SENTENCES[self]


AUTO = "auto"

_SENTENCES = {
    Mode.BUBBLEWRAP: (
        "Each driver sees its own folder, its checkpoints, the data roots and a read-only "
        "system: an author's code cannot reach any other file or process on this host."
    ),
    Mode.NEITHER: (
        "Drivers run as the worker's account: an author of Python can read that account's files, "
        "secrets and database, and end its processes. Spark's parser, which checks authors' SQL, "
        "runs as that account too. Such a worker serves one team: unless HEADGATE_ROOT_WORKER=1 is "
        "set, a second team and authors who are not admins are refused."
    ),
}


#: What it means if the worker runs as root.
_AS_ROOT = {
    Mode.BUBBLEWRAP: (
        "The worker runs as root, so a driver's code has root's user ID without root's "
        "capabilities: it can read files in /usr and /etc that only root is allowed to read, "
        "services that check only the user ID treat it as root, and a kernel vulnerability leads "
        "to root. Run the worker under a separate account."
    ),
    Mode.NEITHER: "The worker runs as root, so a driver's code can do anything on this host.",
}


@dataclass(frozen=True, slots=True)
class IsolationChoice:
    """The isolation that a host's worker uses, and why it does not use another kind."""

    mode: Mode
    asked: str  # HEADGATE_WALLS
    lacks: str = ""  # what this host lacks for the desired walls
    root: bool = False  # whether the worker runs as root
    late: bool = False  # the test did not finish: the host may well have the walls
    holds: str = ""  # system calls and limits that have been proven to apply to drivers here

    @property
    def refused(self) -> bool:
        """Return whether this host cannot isolate drivers as requested, and so starts none.

        With `auto`, a host that is too busy or too full for the test does not start drivers without
        walls.
        """
        return bool(self.lacks) and (self.asked != AUTO or self.late)

    @property
    def told(self) -> str:
        """Return the choice and its reason as sentences, for the log and for pages."""
        wanted = Mode.BUBBLEWRAP if self.asked == AUTO else self.asked
        why = f" {wanted} cannot be used here: {self.lacks}" if self.lacks else ""
        if self.late:
            return (
                f"The isolation of drivers could not be tested: {self.lacks} No drivers are "
                "started until it has been; it is tested again before each start."
            )
        if self.refused:
            return (
                f"HEADGATE_WALLS is {self.asked}, so no drivers are started:{why} Fix this, or set "
                "HEADGATE_WALLS to auto or neither."
            )
        root = f" {_AS_ROOT[self.mode]}" if self.root else ""
        holds = f" {self.holds}" if self.holds else ""
        return f"Isolation of drivers: {self.mode}. {self.mode.sentence}{holds}{root}{why}"


def choose(setting: str, lacks: str = "", *, late: bool = False) -> IsolationChoice:
    """Return the isolation to use; `lacks` is why the desired kind is impossible, "" if it is not.

    `auto` means bubblewrap if possible. `late`: `lacks` is why that is not known yet. Raises
    `ValueError` for a kind that does not exist, which is never replaced by another.
    """
    if late:
        return IsolationChoice(
            Mode.BUBBLEWRAP if setting == AUTO else Mode(setting), setting, lacks, late=True
        )
    if setting == AUTO:
        return IsolationChoice(Mode.NEITHER if lacks else Mode.BUBBLEWRAP, setting, lacks)
    mode = Mode(setting)
    return IsolationChoice(mode, setting, "" if mode is Mode.NEITHER else lacks)
