"""The locations of a driver's files: those that control it, and those that it writes."""

from dataclasses import dataclass
from pathlib import Path

from headgate_ground.files import read_file
from queries.domain.protocol import CONTROL, CURRENT, OWN


@dataclass(frozen=True, slots=True)
class DriverFolder:
    """The folders of one driver."""

    root: Path  # names the driver: in command lines, process environments, messages
    control: Path  # written by launcher and shim
    own: Path  # written by the driver

    @classmethod
    def of(cls, root: Path) -> "DriverFolder":
        """Return the folders below a directory; they do not have to exist."""
        return cls(root, root / CONTROL, root / OWN)

    @classmethod
    def make(cls, root: Path) -> "DriverFolder":
        """Create the folders of a driver that will be started."""
        made = cls.of(root)
        for folder in (made.control, made.own):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return made


def current_file(application: Path) -> Path:
    """Return the file that names an application's newest driver."""
    return application / CONTROL / CURRENT


def read_current(application: Path) -> str | None:
    """Return the content of that file, or None if it does not exist."""
    return read_file(current_file(application))
