"""Prepare folders and secrets outside the sandbox, so that a driver finds them inside."""

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from headgate_ground.files import NotPlain, replace_file
from headgate_ground.masking import references
from queries.checkpoints.inside import Inside
from queries.domain.protocol import SECRETS, DriverSpec
from queries.driver_folder import DriverFolder
from queries.launchers.base import LaunchRefused
from queries.launchers.process.isolation import mounts


def prepare(spec: DriverSpec, folder: DriverFolder) -> None:
    """Create the folders to which the driver will write.

    Raises `LaunchRefused` if the path of one of the folders contains a link.
    """
    with Inside(Path("/")) as root:
        for path in mounts.writable(spec, folder):
            try:
                root.folder(path.lstrip("/"))
            except NotPlain as error:
                raise LaunchRefused(
                    f"The path {path} contains a link ({error}). Remove the link, or give the "
                    "query a new checkpoint."
                ) from error


def named_secrets(named: Iterable[object], secrets: Path) -> dict[str, str]:
    """Return the secrets by name that JSON values refer to with "file:NAME", without missing ones.

    The driver reports a missing secret when it needs it.
    """
    found = {}
    for name in sorted(references(list(named))):
        kind, _, file = name.partition(":")
        if kind == "file" and Path(file).name == file:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                found[file] = (secrets / file).read_text(encoding="utf-8")
    return found


def hand_over(named: Iterable[object], *, secrets: Path, folder: DriverFolder) -> None:
    """Copy secrets that JSON values refer to into the driver's folder."""
    copies = folder.control / SECRETS
    copies.mkdir(mode=0o700, exist_ok=True)
    for name, secret in named_secrets(named, secrets).items():
        replace_file(copies / name, secret)


def take_back(folder: DriverFolder) -> None:
    """Remove the copies once the driver has ended."""
    shutil.rmtree(folder.control / SECRETS, ignore_errors=True)
