"""Grant an application's account access to its driver's folder, its checkpoints, and their parents.

Accounts can pass through the control plane's folders, but cannot list them (0711). An account's own
files are private (0700); the files that control its driver belong to the worker and can be read by
the account's group.
"""

import os
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from queries.account_files import acting_as, give, is_ours
from queries.checkpoints.sink_log import LOG
from queries.domain.checkpoints.lock_files import FOLDER, local_path, lock_folder
from queries.domain.definitions.data_roots import lies_in, root_of
from queries.domain.protocol import CONTROL, DriverSpec
from queries.driver_folder import DriverFolder, share
from queries.launchers.base import LaunchRefused
from queries.launchers.process.walls import mounts
from queries.launchers.process.walls.accounts import Account, Accounts

DATA = "data"  # the folder in HEADGATE_HOME for everybody's data; sticky, like /tmp


def open_folders(folder: DriverFolder, account: Account, drivers: Path) -> None:
    """Let an account reach a driver's folder, write to the driver's part, and read the other part.

    Raises `LaunchRefused` if the account cannot reach the folder.
    """
    let_through(drivers, drivers.parent)
    for place in (folder.root, *folder.root.parents):
        if place == drivers:
            break
        os.chown(place, -1, account.gid)
        place.chmod(0o710)
        last = place
    current = last / CONTROL  # contains the file that specifies the application's newest driver
    current.mkdir(mode=0o700, exist_ok=True)
    for control in (current, folder.control):
        share(control, account.gid)
    give(folder.own, account.uid, account.gid)
    if (blocked := unreachable(folder.own, account)) is not None:
        raise LaunchRefused(not_through(blocked, account))


def prepare(spec: DriverSpec, folder: DriverFolder, accounts: Accounts) -> None:
    """Give an account the folders its driver writes to, and let it read its code and connectors.

    Raises `LaunchRefused` if that is impossible.
    """
    account = Account.of(spec.account)
    for path in mounts.writable(replace(spec, folders=()), folder):
        give_folder(Path(path), account, accounts)
    for path in mounts.readable(spec, folder):
        _let_read(Path(path), account, accounts.home)
    for place in spec.data_roots:
        root = local_path(place)
        if root is not None and root.is_relative_to(accounts.home):
            _let_in(Path(root), accounts.home)


def give_checkpoint(location: str, account: Account, accounts: Accounts) -> None:
    """Give a checkpoint and its lock's folder to an account; skip a non-local checkpoint."""
    for path in (local_path(location), lock_folder(location)):
        if path is not None:
            give_folder(Path(path), account, accounts)


def give_sink(query: dict[str, Any], spec: DriverSpec, account: Account) -> None:
    """Give an account the folder of a file sink, if the worker wrote the sink's log."""
    options = (query.get("sink") or {}).get("options") or {}
    named = [str(value) for name, value in options.items() if name.lower() == "path"]
    path = local_path(root_of(named[0])) if named else None
    if path is None or not (Path(path) / LOG).is_dir():
        return
    sink = Path(os.path.realpath(path))
    if str(sink) != str(path) or not is_ours(sink) or sink.stat().st_uid != os.geteuid():
        return
    location = f"file://{sink}"
    if lies_in(location, spec.data_roots) and location not in spec.data_roots:
        give(sink, account.uid, account.gid)


def give_folder(path: Path, account: Account, accounts: Accounts) -> None:
    """Create a folder if it is missing, and give the folder and its contents to an account.

    Raises `LaunchRefused` if the folder belongs to another account, or if the account cannot reach
    it.
    """
    real = Path(os.path.realpath(path))
    if accounts.home.is_relative_to(real) or real.parent == accounts.home:
        raise LaunchRefused(f"{path} is Headgate's own folder; choose a folder inside it.")
    try:
        if is_ours(path.parent) and is_ours(real.parent):
            _give_ours(real, account, accounts)
        else:  # there may be planted links: the account gets only what it could create itself
            with acting_as(account.uid, account.gid):
                real.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = real.stat().st_uid
    except OSError as error:
        blocked = unreachable(real, account) or real.parent
        raise LaunchRefused(
            f"{path} cannot be created for the account {account.name}: {error.strerror}. Allow "
            f"that account to enter {blocked} and write there, or choose another folder."
        ) from error
    if owner != account.uid:
        raise LaunchRefused(
            f"{path} does not belong to {account.name}, the account that runs the "
            "application's drivers. Change its owner with chown -R, or choose another folder."
        )
    if (blocked_at := unreachable(real, account)) is not None:
        raise LaunchRefused(not_through(blocked_at, account))


def _give_ours(path: Path, account: Account, accounts: Accounts) -> None:
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    let_through(path.parent, accounts.home)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    owner = path.stat().st_uid
    if owner != account.uid and owner in {os.geteuid(), *accounts.uids()}:
        give(path, account.uid, account.gid)
        path.chmod(0o700)


def let_through(folder: Path, home: Path) -> None:
    """Let all accounts pass through our own folders: those in HEADGATE_HOME, and those of locks."""
    for place in (folder, *folder.parents):
        if not (place.is_relative_to(home) or FOLDER in place.parts):
            return
        found = place.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o011 != 0o011:
            place.chmod(stat.S_IMODE(found.st_mode) | 0o011)


def unreachable(path: Path, account: Account) -> Path | None:
    """Return the first folder on the way to a path that an account cannot enter; follow links."""
    with acting_as(account.uid, account.gid):
        return _kept_from(path)


def _kept_from(path: Path) -> Path | None:
    for place in (*reversed(path.parents), path):
        try:
            place.stat()
        except PermissionError:
            linked = os.path.islink(place)  # in that case, the way to its target is closed
            return _kept_from(place.parent / place.readlink()) if linked else place.parent
        except OSError:
            return None
    return None


def not_through(folder: Path, account: Account) -> str:
    """Return a sentence about a folder that an account cannot enter."""
    return f"the account {account.name} cannot enter {folder}; to allow it, run chmod o+x {folder}."


def _let_read(root: Path, account: Account, home: Path) -> None:
    """Let accounts read a folder of code or jars; folders of others must already be readable."""
    if root.is_relative_to(home):
        let_through(root.parent, home)
        if root.is_dir() and root.stat().st_mode & 0o005 != 0o005:
            for folder, _, names in os.walk(root, topdown=False):
                for file in (Path(folder) / name for name in names):
                    file.chmod(stat.S_IMODE(file.stat().st_mode) | 0o044)
                Path(folder).chmod(0o755)  # after its contents: an open folder is open as a whole
    elif (blocked := unreachable(root / "any", account)) is not None:
        raise LaunchRefused(not_through(blocked, account))


def _let_in(root: Path, home: Path) -> None:
    """Let accounts read a data root in HEADGATE_HOME, and create their own files in DATA."""
    root.mkdir(mode=0o711, parents=True, exist_ok=True)
    if is_ours(root) and root.stat().st_uid == os.geteuid():
        let_through(root.parent, home)
        root.chmod(0o1777 if root == home / DATA else 0o755)
