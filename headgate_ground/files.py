"""Use files as a protocol: they are replaced atomically, and checks never take their locks.

The launchers (server side) and the runtime (inside the driver) both use this module and do not
import each other. There are two kinds of locks. `take_lock` takes an *open file description* lock:
it survives a fork and is held until the last process that inherited the descriptor is gone. A JVM
takes a POSIX record lock; `lock_holder` names its owner. Both checks (`is_locked`, `lock_holder`)
are queries to the kernel. A checkpoint's lock file has one of each: byte `JVM_BYTE` is locked by
the driver's JVM, byte `PYTHON_BYTE` by its Python.

A driver runs its authors' code, so a path that it can write to may be anything: a link to a file
that only we can read, or a fifo without a writer. `open_plain` opens regular files only, and every
function here opens files through it. Whatever a driver can write is opened with `within`: step by
step from the root, through no link (`headgate_ground.untrusted` changes and removes such things).
"""

import contextlib
import errno
import fcntl
import io
import os
import stat
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: struct flock on 64-bit Linux: type, whence, start, length, pid, padding (fcntl(2)).
_FLOCK = struct.Struct("hhqqi4x")

#: Bytes of a checkpoint's lock file, which need not exist: a lock may be beyond the end.
JVM_BYTE = 0
PYTHON_BYTE = 1

#: Largest file read as a whole, in bytes: several times the largest that a driver writes.
MOST_BYTES = 64 * 1024 * 1024

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

WRITERS_LOCK_S = 5  # another writer holds it for milliseconds

#: With less free space than this, logs are cut: drivers, database and Redis need it. Bytes.
KEEP_FREE = 32 * 1024 * 1024
#: What a current log may then keep; older ones are removed. Bytes.
KEEP_LOG = 1024 * 1024


class NotPlain(OSError):
    """A path is not a regular file in its own folder, or the file is too large."""


def open_step(name: str, outer: int | None = None, *, shown: Path | str = "") -> int:
    """Open a folder that must be a real one in the open folder `outer`; return its descriptor.

    Raises `NotPlain` for a link, and `NotADirectoryError` for a file. `shown` is named in errors.
    """
    try:
        try:
            return os.open(name, _FOLDER, dir_fd=outer)
        except PermissionError:  # one may pass through a folder without reading it
            return os.open(name, _FOLDER | os.O_PATH, dir_fd=outer)
    except OSError as error:
        error.filename = str(shown or name)
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, outer):
            raise NotPlain(error.errno, "is a link, not a folder", error.filename) from error
        raise


def open_folder(path: Path, *, create: bool = False) -> int:
    """Open a folder step by step from the root; return its descriptor.

    No part of the path may be a link, no matter when it was created: that raises `NotPlain`. With
    `create`, missing folders are created.
    """
    parts = path.absolute().parts
    if ".." in parts:
        raise NotPlain(errno.EXDEV, "leads upwards", str(path))
    descriptor = open_step(parts[0])
    for part in parts[1:]:
        outer = descriptor
        try:
            descriptor = _made(part, outer, path) if create else open_step(part, outer, shown=path)
        finally:
            os.close(outer)
    return descriptor


def _made(name: str, outer: int, shown: Path) -> int:
    try:
        return open_step(name, outer, shown=shown)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=outer)
        return open_step(name, outer, shown=shown)


def _is_link(name: str, outer: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=outer, follow_symlinks=False).st_mode)
    except OSError:
        return True  # it has just been replaced


def open_plain(path: Path, flags: int = os.O_RDONLY, *, within: Path | None = None) -> int:
    """Open a regular file that another account may have created; return its descriptor.

    A link in the last part of the path is not followed, and the call never blocks. With `within`,
    the file's path must be below that folder, and no part of its path may be a link. Raises
    `NotPlain` for anything else.
    """
    if within is None:
        return _open_plain(path, str(path), flags, None)
    if not path.is_relative_to(within) or path == within:
        raise NotPlain(errno.EXDEV, f"leads out of {within}", str(path))
    outer = open_folder(path.parent)
    try:
        return _open_plain(path, path.name, flags, outer)
    finally:
        os.close(outer)


def _open_plain(path: Path, name: str, flags: int, outer: int | None) -> int:
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=outer)
    except OSError as error:
        error.filename = str(path)
        # A link; a fifo or socket without a reader; a folder that would be written to.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise NotPlain(error.errno, "is not a regular file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlain(errno.EINVAL, "is not a regular file", str(path))
    return descriptor


def replace_file(path: Path, text: str, *, durable: bool = True, mode: int = 0o600) -> None:
    """Replace `path` with `text` atomically; `durable` waits until it is on disk."""
    # A name unique to this writer, so that two writers never share a half-written file.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = open_plain(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.fchmod(descriptor, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def read_bytes(path: Path, *, within: Path | None = None, most: int = MOST_BYTES) -> bytes:
    """Return a file's content; raise `NotPlain` if it has more than `most` bytes."""
    with os.fdopen(open_plain(path, within=within), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise NotPlain(errno.EFBIG, f"contains more than {most >> 20} MiB", str(path))
    return data


def read_file(path: Path, most: int = -1, *, within: Path | None = None) -> str | None:
    """Return the content of `path`, at most `most` characters; None if there is no such file."""
    try:
        if most < 0:
            return read_bytes(path, within=within).decode("utf-8")
        with os.fdopen(open_plain(path, within=within), encoding="utf-8") as file:
            return file.read(most)
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_tail(path: Path, limit: int, *, within: Path | None = None) -> str:
    """Return the last `limit` bytes of `path` as text; "" if there is no such regular file."""
    try:
        with os.fdopen(open_plain(path, within=within), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            data = file.read(limit)
    except (FileNotFoundError, NotADirectoryError, NotPlain):
        return ""
    if size > limit:  # start at a whole line if there is one
        data = data.partition(b"\n")[2] or data
    # A driver's output may contain NUL, which databases reject in text.
    return data.decode("utf-8", errors="replace").replace("\0", "\ufffd")


def free_bytes(folder: Path | str) -> int:
    """Return the bytes that can still be written to a folder's disk; 0 if unknown."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize


def take_lock(path: Path, byte: int | None = None) -> int | None:
    """Lock `path`, or one byte of it; return the descriptor of the open file that has the lock.

    None if another process has the lock.
    """
    descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
    request = _request(fcntl.F_WRLCK, byte)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


def lock_of(folder: Path) -> Path:
    """Return the lock file of a folder, for processes that create, use or delete the folder."""
    return folder.with_name(f".{folder.name}.lock")


def use_folder(folder: Path) -> bool:
    """Mark a stored folder as used now, so that it is not pruned; return whether it exists.

    Also returns False if another process has held the folder's lock for `WRITERS_LOCK_S`.
    """
    ends = time.monotonic() + WRITERS_LOCK_S
    while folder.is_dir():
        if (lock := take_lock(lock_of(folder))) is not None:
            try:
                os.utime(folder)
            except FileNotFoundError:  # deleted before we got the lock
                return False
            finally:
                os.close(lock)
            return True
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return False


def give_lock_back(descriptor: int) -> None:
    """Release a lock from `take_lock`, also in a process that inherited it, and close the file."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, None))
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock among writers; raise TimeoutError instead of waiting without a limit."""
    descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + WRITERS_LOCK_S
    try:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} is held by another writer for {WRITERS_LOCK_S} s")
            time.sleep(0.01)  # the kernel offers no bounded wait for a lock
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path, byte: int | None = None, *, within: Path | None = None) -> bool:
    """Return whether a process holds the lock that `take_lock` takes."""
    return _conflict(path, fcntl.F_OFD_GETLK, byte, within) is not None


def lock_holder(path: Path, *, within: Path | None = None) -> int | None:
    """Return the pid of the JVM that holds a checkpoint's lock file; None if none does.

    Returns 0 for a JVM in another pid namespace: an isolated driver cannot see which process it is.
    """
    return _conflict(path, fcntl.F_GETLK, JVM_BYTE, within)


def use_forgiving_output() -> None:
    """Make this process discard output that a full disk or a closed terminal does not accept.

    `print` and logging then never raise an error, so a process does not exit because a line could
    not be written.
    """
    sys.stdout = _forgiving(1)
    sys.stderr = _forgiving(2)


def _forgiving(descriptor: int) -> io.TextIOWrapper:
    raw: Any = _Forgiving(descriptor)  # unbuffered: output is written immediately
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


class _Forgiving(io.RawIOBase):
    """An output stream that accepts everything, and writes as much as it can."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: "Buffer") -> int:
        rest = memoryview(data)
        size = rest.nbytes
        with contextlib.suppress(OSError):
            while rest.nbytes:
                rest = rest[os.write(self._descriptor, rest) :]
        return size


def _request(kind: int, byte: int | None) -> bytes:
    """Return the fcntl(2) request for a byte of a file, or for the whole file."""
    start, length = (0, 0) if byte is None else (byte, 1)
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def _conflict(path: Path, command: int, byte: int | None, within: Path | None) -> int | None:
    try:
        # Not a link: closing a file drops every record lock that this process has on it, and a link
        # may lead to our own database.
        descriptor = open_plain(path, os.O_RDWR, within=within)
    except (FileNotFoundError, NotADirectoryError, NotPlain):
        return None
    try:
        request = _request(fcntl.F_WRLCK, byte)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, command, request))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else pid


def sync(path: Path) -> None:
    """Wait until a file, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # it may have been replaced by a fifo
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
