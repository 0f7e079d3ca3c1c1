"""What is made ready outside, so that a driver finds it within its walls: folders and secrets."""

import contextlib
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from queries.checkpoints.inside import Inside
from queries.domain.checkpoints.lock_files import (
    OWNER,
    earlier_lock_file,
    earlier_owner_file,
    lock_folder,
)
from queries.domain.masking import references
from queries.domain.protocol import SECRETS, DriverSpec
from queries.driver_folder import DriverFolder, direct
from queries.files import PYTHON_BYTE, NotPlain, is_locked, lock_holder, read_file
from queries.launchers.base import LaunchRefused
from queries.launchers.process.walls import mounts


def prepare(spec: DriverSpec, folder: DriverFolder) -> None:
    """Make the folders that the driver will write to, and bring over what names their owners.

    Raises `LaunchRefused` while a driver of an earlier release holds one of its checkpoints: its
    lock is not among what the new one sees.
    """
    for place in spec.checkpoints:
        refuse_held(place)
    with Inside(Path("/")) as root:
        for path in mounts.writable(spec, folder):
            try:
                root.folder(path.lstrip("/"))
            except NotPlain as error:
                raise LaunchRefused(
                    f"{path} is no folder of its own: there is a link in its path ({error}). "
                    "Remove the link, or give the query a new checkpoint."
                ) from error
        for place in spec.checkpoints:
            if (held := lock_folder(place)) and (owner := earlier_owner(place)):
                with contextlib.suppress(FileExistsError):
                    root.write(str(held / OWNER).lstrip("/"), owner, mode=0o600)


def hand_over(named: Iterable[object], *, secrets: Path, folder: DriverFolder) -> None:
    """Copy the secrets that JSON values name into the driver's folder; a missing one is left out.

    The driver says that it is missing, when it needs it.
    """
    found = references(list(named))
    names = sorted(name.partition(":")[2] for name in found if name.startswith("file:"))
    copies = folder.control / SECRETS
    copies.mkdir(mode=0o700, exist_ok=True)
    copies.chmod(stat.S_IMODE(folder.control.stat().st_mode))  # as its account may read that
    for name in names:
        if Path(name).name != name:
            continue
        with contextlib.suppress(OSError, UnicodeDecodeError):
            direct(copies / name, (secrets / name).read_text(encoding="utf-8"))


def take_back(folder: DriverFolder) -> None:
    """Remove the copies, once the driver has ended."""
    if folder.control != folder.root:
        shutil.rmtree(folder.control / SECRETS, ignore_errors=True)


def refuse_held(place: str) -> None:
    """Raise `LaunchRefused` while a driver of an earlier release holds a checkpoint."""
    earlier = earlier_lock_file(place)
    if earlier is None:
        return
    if lock_holder(Path(earlier)) is not None or is_locked(Path(earlier), PYTHON_BYTE):
        raise LaunchRefused(
            f"The checkpoint {place} is held by a driver of an earlier release. Stop that driver, "
            "or wait until it has ended.",
            passing=True,
        )


def earlier_owner(place: str) -> str:
    """Return what an earlier release wrote of a checkpoint's owner, "" for nothing."""
    try:
        return read_file(Path(earlier_owner_file(place))) or ""
    except NotPlain:
        return ""
