"""Change files in folders whose contents a driver may replace at any time.

Every step from the root is an open descriptor, so nothing here is reached through a link, no matter
when it was created. Files are read with `headgate_ground.files` and its `within`.
"""

import errno
import os
import socket
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headgate_ground.files import NotPlain, open_folder, open_step

#: Seconds after which a removal is given up: a live writer could create files faster than that.
REMOVAL_LIMIT_S = 600.0
#: How deep `walk` goes: checkpoints have 5 levels, and sinks one more than columns of partitions.
DEEPEST = 50


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; raise `FileNotFoundError` if there is none."""
    descriptor = open_folder(folder)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def walk(folder: Path) -> Iterator[tuple[Path, list[str], list[str], int]]:
    """Yield each folder below one, with it: its path, its folders, its other names, a descriptor.

    The caller may remove folders from the list, as with `os.walk`; nothing is yielded for missing
    entries and non-folders. Links are among the other names. Folders nested more than `DEEPEST`
    times are left out.
    """
    left = [folder]
    while left:
        current = left.pop()
        try:
            descriptor = open_folder(current)
        except (FileNotFoundError, NotADirectoryError, NotPlain):
            continue
        try:
            folders: list[str] = []
            names: list[str] = []
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    (folders if is_folder else names).append(entry.name)
            yield current, folders, names, descriptor
        finally:
            os.close(descriptor)
        if len(current.parts) - len(folder.parts) < DEEPEST:
            left += [current / name for name in reversed(folders)]


def status_of(path: Path) -> os.stat_result:
    """Return an entry's own status, that of a link itself; raise `FileNotFoundError`."""
    with _outer(path) as outer:
        return os.stat(path.name, dir_fd=outer, follow_symlinks=False)


def remove_file(path: Path) -> None:
    """Remove a file or a link; does nothing if it is gone."""
    with suppress(FileNotFoundError), _outer(path) as outer:
        os.unlink(path.name, dir_fd=outer)


def move(path: Path, to: Path) -> None:
    """Rename an entry within its folder; raise `FileNotFoundError` if it does not exist."""
    with _outer(path) as outer:
        os.rename(path.name, to.name, src_dir_fd=outer, dst_dir_fd=outer)


def make_folder(path: Path, mode: int = 0o700) -> int:
    """Create a folder, or keep an existing one; return its descriptor.

    Raises `NotPlain` if its name is that of a link.
    """
    with _outer(path) as outer:
        with suppress(FileExistsError):
            os.mkdir(path.name, mode, dir_fd=outer)
        return open_step(path.name, outer, shown=path)


def open_socket(path: Path) -> int:
    """Return the descriptor of a socket in a folder, with which it can only be connected to.

    Raises `NotPlain` if the name is not that of a socket itself.
    """
    with _outer(path) as outer:
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path.name, flags, dir_fd=outer)
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlain(errno.ENOTSOCK, "is not a socket", str(path))
    return descriptor


def connected(path: Path, limit_s: float) -> socket.socket:
    """Return a connection to a listening socket in a folder, and to no other one.

    Raises `OSError`, also after the limit; it then applies to each call on the connection.
    """
    descriptor = open_socket(path)
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(limit_s)
        # Through the descriptor: a path would be followed, and may be longer than 107 bytes.
        link.connect(f"/proc/self/fd/{descriptor}")
    except BaseException:
        link.close()
        raise
    finally:
        os.close(descriptor)
    return link


def remove_tree(path: Path, *, limit_s: float = REMOVAL_LIMIT_S) -> bool:
    """Remove a folder with its contents, or a file; return whether nothing is left of it.

    Folders may be nested to any depth: each one is moved up into the folder that is removed, so two
    descriptors suffice. Anything that cannot be removed stays, as does everything if the path leads
    through a link.
    """
    ends = time.monotonic() + limit_s
    try:
        with _outer(path) as outer:
            return _remove(path.name, outer, ends)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _remove(name: str, outer: int, ends: float) -> bool:
    with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
        os.unlink(name, dir_fd=outer)
        return True
    top = _opened(name, outer)
    try:
        if not _empty(top, top, ends):
            return False
    finally:
        os.close(top)
    with suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=outer)
    return True


def _empty(folder: int, top: int, ends: float) -> bool:
    """Remove a folder's contents; return whether it is empty now.

    The folders in a folder below `top` are moved to `top`, where they are removed in turn.
    """
    progress = True
    while progress and time.monotonic() < ends:
        progress, left = False, False
        with os.scandir(folder) as entries:
            for entry in entries:
                if time.monotonic() >= ends:
                    return False
                removed = (
                    _drop(entry.name, top, ends)
                    if folder == top
                    else _move_up(entry.name, folder, top)
                )
                progress, left = progress or removed, left or not removed
        if not progress:
            return not left
    return False


def _drop(name: str, top: int, ends: float) -> bool:
    """Remove an entry of `top`; return whether it is gone. Its folders are now in `top`."""
    try:
        os.unlink(name, dir_fd=top)
        return True
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        pass  # POSIX allows either for a folder
    try:
        folder = _opened(name, top)
    except OSError:
        return False
    try:
        _empty(folder, top, ends)
        os.rmdir(name, dir_fd=top)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _move_up(name: str, folder: int, top: int) -> bool:
    """Remove a file from a folder, or move a folder from there to `top`; return whether it left."""
    try:
        os.unlink(name, dir_fd=folder)
        return True
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        pass
    try:
        os.close(_opened(name, folder))  # a folder must be writable to get another parent
        os.rename(name, uuid.uuid4().hex, src_dir_fd=folder, dst_dir_fd=top)
    except OSError:
        return False
    return True


def _opened(name: str, outer: int) -> int:
    """Open a folder to be emptied, and make it writable for us."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags | os.O_PATH, dir_fd=outer)
    try:
        if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with suppress(PermissionError):  # another account's
                os.chmod(f"/proc/self/fd/{descriptor}", 0o700)
        return os.open(f"/proc/self/fd/{descriptor}/.", flags & ~os.O_NOFOLLOW)
    finally:
        os.close(descriptor)


@contextmanager
def _outer(path: Path) -> Iterator[int]:
    descriptor = open_folder(path.parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
