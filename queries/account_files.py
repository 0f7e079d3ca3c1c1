"""Work with files in other accounts' folders as those accounts, because there may be links.

Within account walls, a driver's files belong to the account of its application. A thread with that
account's file rights creates files that the account can write, and cannot reach any files that the
account could not.
On Linux these rights are per thread (setfsuid(2), capabilities(7)), so other threads and the
database's files are not affected.
"""

import ctypes
import os
import platform
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
#: The setgroups(2) system call: the C library's function changes all threads.
_SETGROUPS = {"x86_64": 116, "aarch64": 159}
_NOBODY_ASKS = -1  # an invalid id: setfsuid(2) then only returns the present one

#: capabilities(7): the bits a thread needs to act as another account.
_SETGID, _SETUID = 6, 7


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Set(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable"))


def capabilities() -> int:
    """Return this thread's effective capabilities as bits (capabilities(7))."""
    low, high = _sets()
    return int(low.effective) | int(high.effective) << 32


def can_act() -> bool:
    """Return whether this thread can act as another account."""
    wanted = 1 << _SETGID | 1 << _SETUID
    return capabilities() & wanted == wanted and platform.machine() in _SETGROUPS


def is_ours(folder: Path) -> bool:
    """Return whether only root and this process's account can change the target of a path."""
    return all(_is_kept(found) for found in _on_the_way(folder))


def _on_the_way(folder: Path) -> Iterator[os.stat_result]:
    """Yield the status of each folder along a path, from the top; then along the resolved path."""
    for place in dict.fromkeys((Path(os.path.abspath(folder)), Path(os.path.realpath(folder)))):
        for part in (*reversed(place.parents), place):
            # What does not exist can be created by the owners of the folders above.
            with suppress(FileNotFoundError, NotADirectoryError):
                yield part.stat()


def _is_kept(found: os.stat_result) -> bool:
    others = found.st_mode & stat.S_IWOTH or (
        found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getegid())
    )
    ours = found.st_uid in (0, os.geteuid())
    return ours and (not others or bool(found.st_mode & stat.S_ISVTX))


def know(accounts: Callable[[], set[int]]) -> None:
    """Set the function that returns the uids of drivers' accounts; until then there are none."""
    global _known
    _known = accounts


def _none() -> set[int]:
    return set()


_known: Callable[[], set[int]] = _none


@contextmanager
def acting_in(folder: Path, like: Path) -> Iterator[None]:
    """Work with files in a folder as the driver's account that can create links in its path.

    The account is the first driver's account that owns a folder along the path. If there is none
    but anyone can write there, it is the owner of `like`, if that is a driver's account.
    Otherwise, and if another account is already active, nothing changes.
    """
    if _is_acting() or not (known := _known()) or not can_act() or is_ours(folder):
        yield
        return
    ways = (_on_the_way(folder), _on_the_way(like))
    owner = next((found for way in ways for found in way if found.st_uid in known), None)
    if owner is None:
        yield
        return
    with acting_as(owner.st_uid, owner.st_gid):
        yield


@contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """Restrict this thread to an account's file rights while the block runs.

    Raises `PermissionError` if that is not permitted.
    """
    before = (_libc.setfsuid(_NOBODY_ASKS), _libc.setfsgid(_NOBODY_ASKS))
    groups, held = os.getgroups(), _sets()
    try:
        _set_groups(_groups_of(uid, gid))
        _libc.setfsgid(gid)
        _libc.setfsuid(uid)
        if (_libc.setfsuid(_NOBODY_ASKS), _libc.setfsgid(_NOBODY_ASKS)) != (uid, gid):
            raise PermissionError(f"the rights of uid {uid} cannot be used without CAP_SETUID")
        nothing = _sets()
        for part in nothing:
            part.effective = 0
        _put(nothing)
        yield
    finally:
        _put(held)
        _libc.setfsuid(before[0])
        _libc.setfsgid(before[1])
        _set_groups(groups)


def give_like(tree: Path, like: Path) -> None:
    """Give one of our folders, with its contents, to the driver's account that owns `like`."""
    if _is_acting():
        return
    owner = like.stat()
    if owner.st_uid in _known() and owner.st_uid != tree.stat().st_uid:
        give(tree, owner.st_uid, owner.st_gid)


def give(tree: Path, uid: int, gid: int) -> None:
    """Give a folder and its contents to an account, without following links.

    The folder itself comes last: until then no other account can enter it.
    """
    descriptor = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.fchown(descriptor, os.geteuid(), os.getegid())
        os.fchmod(descriptor, 0o700)
        for _, folders, names, inner in os.fwalk(".", dir_fd=descriptor):
            for name in (*folders, *names):
                with suppress(FileNotFoundError):
                    os.chown(name, uid, gid, dir_fd=inner, follow_symlinks=False)
        os.fchmod(descriptor, mode)
        os.fchown(descriptor, uid, gid)
    finally:
        os.close(descriptor)


def _is_acting() -> bool:
    return bool(_libc.setfsuid(_NOBODY_ASKS) != os.geteuid())


def _groups_of(uid: int, gid: int) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        return [gid]


def _sets() -> ctypes.Array[_Set]:
    held = (_Set * 2)()
    _checked(_libc.capget(ctypes.byref(_Header(_VERSION, 0)), held), "capget")
    return held


def _put(wanted: ctypes.Array[_Set]) -> None:
    _checked(_libc.capset(ctypes.byref(_Header(_VERSION, 0)), wanted), "capset")


def _set_groups(groups: list[int]) -> None:
    if groups == os.getgroups():
        return
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        raise PermissionError(f"separate accounts are not supported on {platform.machine()}")
    given = (ctypes.c_uint32 * len(groups))(*groups)
    _checked(_libc.syscall(number, len(groups), given), "setgroups")


def _checked(result: int, call: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
