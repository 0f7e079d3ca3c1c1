"""What an application's account gets: its driver's folder, its checkpoints, and the way to them.

Folders of the control plane let accounts through and show them nothing (0711). What an account has
is its own alone (0700); what directs its driver is the worker's, and its group may read it.
"""

import os
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from queries.acting import acting_as, give, is_ours
from queries.checkpoints import file_sink
from queries.checkpoints.inside import Inside
from queries.domain.checkpoints.lock_files import FOLDER, OWNER, local_path, lock_folder
from queries.domain.definitions.data_roots import lies_in, root_of
from queries.domain.protocol import CONTROL, DriverSpec
from queries.driver_folder import DriverFolder, share
from queries.launchers.base import LaunchRefused
from queries.launchers.process.walls import mounts, preparing
from queries.launchers.process.walls.accounts import Account, Accounts

DATA = "data"  # the folder of HEADGATE_HOME that is for the data of all; as /tmp, sticky


def open_folders(folder: DriverFolder, account: Account, drivers: Path) -> None:
    """Let an account through to the folder of a driver, write its own part and read the other.

    Raises `LaunchRefused` where it does not get there.
    """
    let_through(drivers, drivers.parent)
    for place in (folder.root, *folder.root.parents):
        if place == drivers:
            break
        os.chown(place, -1, account.gid)
        place.chmod(0o710)
        last = place
    current = last / CONTROL  # names the application's newest driver
    current.mkdir(mode=0o700, exist_ok=True)
    for control in (current, folder.control):
        share(control, account.gid)
    give(folder.own, account.uid, account.gid)
    if (blocked := unreachable(folder.own, account)) is not None:
        raise LaunchRefused(not_through(blocked, account))


def prepare(spec: DriverSpec, folder: DriverFolder, accounts: Accounts) -> None:
    """Give an account what its driver will write to, and let it read its code and connectors.

    Raises `LaunchRefused` where that cannot be, and while a driver of an earlier release holds one
    of its checkpoints.
    """
    account = Account.of(spec.account)
    for place in spec.checkpoints:
        preparing.refuse_held(place)
    for path in mounts.writable(replace(spec, folders=()), folder):
        give_folder(Path(path), account, accounts)
    for place in spec.checkpoints:
        if (held := lock_folder(place)) and (owner := preparing.earlier_owner(place)):
            rights = acting_as(account.uid, account.gid)
            with rights, Inside(Path(held)) as inside, suppress(FileExistsError):
                inside.write(OWNER, owner, mode=0o600)
    for path in mounts.readable(spec, folder):
        _let_read(Path(path), account, accounts.home)
    for place in spec.data_roots:
        root = local_path(place)
        if root is not None and root.is_relative_to(accounts.home):
            _let_in(Path(root), accounts.home)


def give_checkpoint(location: str, account: Account, accounts: Accounts) -> None:
    """Give an account a checkpoint and the folder of its lock; one that is not local is passed."""
    for path in (local_path(location), lock_folder(location)):
        if path is not None:
            give_folder(Path(path), account, accounts)


def give_sink(query: dict[str, Any], spec: DriverSpec, account: Account) -> None:
    """Give an account the folder of a file sink whose log the worker has written."""
    options = (query.get("sink") or {}).get("options") or {}
    named = [str(value) for name, value in options.items() if name.lower() == "path"]
    path = local_path(root_of(named[0])) if named else None
    if path is None or not (Path(path) / file_sink.LOG).is_dir():
        return
    sink = Path(os.path.realpath(path))
    if str(sink) != str(path) or not is_ours(sink) or sink.stat().st_uid != os.geteuid():
        return
    location = f"file://{sink}"
    if lies_in(location, spec.data_roots) and location not in spec.data_roots:
        give(sink, account.uid, account.gid)


def give_folder(path: Path, account: Account, accounts: Accounts) -> None:
    """Make a folder where it is missing, and let it with all that is in it belong to an account.

    Raises `LaunchRefused` where it is somebody else's, or the account does not get there.
    """
    real = Path(os.path.realpath(path))
    if accounts.home.is_relative_to(real) or real.parent == accounts.home:
        raise LaunchRefused(f"{path} is Headgate's own folder; choose one within it.")
    try:
        if is_ours(path.parent) and is_ours(real.parent):
            _give_ours(real, account, accounts)
        else:  # somebody may have put links there: the account gets what it can make itself
            with acting_as(account.uid, account.gid):
                real.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = real.stat().st_uid
    except OSError as error:
        blocked = unreachable(real, account) or real.parent
        raise LaunchRefused(
            f"{path} cannot be made for the account {account.name}: {error.strerror}. Let that "
            f"account get into {blocked} and write there, or choose another folder."
        ) from error
    if owner != account.uid:
        raise LaunchRefused(
            f"{path} belongs to another account than {account.name}, which runs the application's "
            f"drivers. Give it to that one with chown -R, or choose another folder."
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
    """Let all accounts through our own folders: those of HEADGATE_HOME, and those of locks."""
    for place in (folder, *folder.parents):
        if not (place.is_relative_to(home) or FOLDER in place.parts):
            return
        found = place.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o011 != 0o011:
            place.chmod(stat.S_IMODE(found.st_mode) | 0o011)


def unreachable(path: Path, account: Account) -> Path | None:
    """Return the first folder on the way to a path that an account is kept from; follow links."""
    with acting_as(account.uid, account.gid):
        return _kept_from(path)


def _kept_from(path: Path) -> Path | None:
    for place in (*reversed(path.parents), path):
        try:
            place.stat()
        except PermissionError:
            linked = os.path.islink(place)  # then it is the way to its target that is closed
            return _kept_from(place.parent / place.readlink()) if linked else place.parent
        except OSError:
            return None
    return None


def not_through(folder: Path, account: Account) -> str:
    """Return the sentence on a folder that an account does not get into."""
    return f"the account {account.name} cannot get into {folder}; allow it: chmod o+x {folder}."


def _let_read(root: Path, account: Account, home: Path) -> None:
    """Let accounts read a folder of code or jars: ours is opened, another's has to be open."""
    if root.is_relative_to(home):
        let_through(root.parent, home)
        if root.is_dir() and root.stat().st_mode & 0o005 != 0o005:
            for folder, _, names in os.walk(root, topdown=False):
                for file in (Path(folder) / name for name in names):
                    file.chmod(stat.S_IMODE(file.stat().st_mode) | 0o044)
                Path(folder).chmod(0o755)  # after them: what is open is open as a whole
    elif (blocked := unreachable(root / "any", account)) is not None:
        raise LaunchRefused(not_through(blocked, account))


def _let_in(root: Path, home: Path) -> None:
    """Let accounts read a data root of HEADGATE_HOME's, and put files of their own into DATA."""
    root.mkdir(mode=0o711, parents=True, exist_ok=True)
    if is_ours(root) and root.stat().st_uid == os.geteuid():
        let_through(root.parent, home)
        root.chmod(0o1777 if root == home / DATA else 0o755)
