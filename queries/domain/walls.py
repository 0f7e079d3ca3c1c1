"""The walls around drivers: which there are, and what an author of Python can do within them."""

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """What keeps the code of a driver's authors from the rest of the host."""

    ACCOUNTS = "accounts"
    BUBBLEWRAP = "bubblewrap"
    NEITHER = "neither"

    @property
    def sentence(self) -> str:
        """Return what an author of Python can then do."""
        return _SENTENCES[self]


AUTO = "auto"

_SENTENCES = {
    Mode.ACCOUNTS: (
        "The drivers of each application run as an account of its own without capabilities: an "
        "author's code reads and writes the files of its application and what the host lets every "
        "account read, and signals no process of another account."
    ),
    Mode.BUBBLEWRAP: (
        "Each driver sees its own folder, its checkpoints, the data roots and a read-only system: "
        "an author's code reaches no other file and no other process of this host."
    ),
    Mode.NEITHER: (
        "Drivers run as the worker's account: an author of Python can read its files, secrets and "
        "database, and end its processes. Give the right to write Python only to people you trust "
        "with these."
    ),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The walls that a host's worker uses, and why it has no others."""

    mode: Mode
    asked: str  # HEADGATE_WALLS
    lacks: str = ""  # what this host lacks for the walls that were wanted

    @property
    def refused(self) -> bool:
        """Whether this host cannot give what was asked for by name: no driver is started."""
        return bool(self.lacks) and self.asked != AUTO

    @property
    def told(self) -> str:
        """Return the choice and its reason in sentences, for the log and for pages."""
        wanted = Mode.BUBBLEWRAP if self.asked == AUTO else self.asked
        why = f" {wanted} cannot be used here: {self.lacks}" if self.lacks else ""
        if self.refused:
            return (
                f"HEADGATE_WALLS is {self.asked}, so no driver is started:{why} Mend that, or set "
                "HEADGATE_WALLS to auto or neither."
            )
        return f"Walls of drivers: {self.mode}. {self.mode.sentence}{why}"


def choose(asked: str, lacks: str = "") -> Choice:
    """Return the walls to use; `lacks` says why what is wanted cannot be had, "" where it can.

    `auto` wants bubblewrap: accounts have to be made and named by an admin.
    """
    if asked == AUTO:
        return Choice(Mode.NEITHER if lacks else Mode.BUBBLEWRAP, asked, lacks)
    mode = Mode(asked)
    return Choice(mode, asked, "" if mode is Mode.NEITHER else lacks)
