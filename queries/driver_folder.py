"""Where the files of a driver are: those that direct it, and those that it writes itself.

A driver that an earlier release started has all of them in one folder, and is read there until
it ends.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from queries.domain.protocol import CONTROL, CURRENT, OWN
from queries.files import read_file, replace_file


@dataclass(frozen=True, slots=True)
class DriverFolder:
    """The folders of one driver."""

    root: Path  # names the driver: on command lines, in its processes' environment, to people
    control: Path  # written by launcher and shim
    own: Path  # written by the driver

    @classmethod
    def of(cls, root: Path) -> "DriverFolder":
        """Return the folders of a directory, made or not."""
        control = root / CONTROL
        if root.is_dir() and not control.is_dir():
            return cls(root, root, root)
        return cls(root, control, root / OWN)

    @classmethod
    def make(cls, root: Path) -> "DriverFolder":
        """Make the folders of a driver that is to be started; one of an earlier release stays."""
        if root.is_dir() and any(root.iterdir()):
            made = cls.of(root)
            if made.control == root:
                return made
        for folder in (root / CONTROL, root / OWN):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(root, root / CONTROL, root / OWN)


def direct(path: Path, text: str) -> None:
    """Replace a file that a driver reads: of its account's group where the folder is shared."""
    shared = path.parent.stat().st_mode & stat.S_ISGID
    replace_file(path, text, mode=0o640 if shared else 0o600)


def share(folder: Path, gid: int) -> None:
    """Let the group of a driver's account read a control folder, and what is put into it later."""
    os.chown(folder, -1, gid)
    folder.chmod(0o2750)


def current_file(application: Path) -> Path:
    """Return the file that names an application's newest driver."""
    return application / CONTROL / CURRENT


def read_current(application: Path) -> str | None:
    """Return what that file says, of an earlier release's too; None where there is none."""
    text = read_file(current_file(application))
    return text if text is not None else read_file(application / CURRENT)
