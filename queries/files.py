"""Files as a protocol: replaced whole, and locked so that a check never takes the lock.

The launchers (server side) and the runtime (inside the driver) both use this and import nothing
from each other. Lock files come in two kinds. `take_lock` takes an *open file
description* lock: it survives a fork and is held until the last process that inherited the
descriptor is gone. The checkpoint's lock is a POSIX record lock of the JVM's; `lock_holder`
names its owner. Both checks (`is_locked`, `lock_holder`) are queries to the kernel.
"""

import contextlib
import fcntl
import io
import os
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: struct flock on 64-bit Linux: type, whence, start, length, pid, padding (fcntl(2)).
_FLOCK = struct.Struct("hhqqi4x")


def replace_file(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace `path` whole by `text`, mode 0600; `durable` waits until it is on disk."""
    # A name of this writer's own, so that two writers never share a half-written file.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
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


def read_file(path: Path, most: int = -1) -> str | None:
    """Return the text of `path`, `most` characters of it; None where there is no such file."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(most)
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_tail(path: Path, limit: int) -> str:
    """Return the last `limit` bytes of `path` as text; "" where there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            data = file.read(limit)
    except FileNotFoundError:
        return ""
    if size > limit:  # begin at a whole line where there is one
        data = data.partition(b"\n")[2] or data
    # A driver's output may contain NUL, which databases refuse in text.
    return data.decode("utf-8", errors="replace").replace("\0", "\ufffd")


def take_lock(path: Path) -> int | None:
    """Lock `path` for this open file and return its descriptor; None where another has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock that `take_lock` takes."""
    return _conflict(path, fcntl.F_OFD_GETLK) is not None


def lock_holder(path: Path) -> int | None:
    """Return the pid of the process that holds a POSIX lock on `path`; None where none does."""
    return _conflict(path, fcntl.F_GETLK)


def use_forgiving_output() -> None:
    """Have this process's output lose what a full disk or a closed terminal does not take.

    `print` and logging then never raise, and no process ends of a line that found no room.
    """
    sys.stdout = _forgiving(1)
    sys.stderr = _forgiving(2)


def _forgiving(descriptor: int) -> io.TextIOWrapper:
    raw: Any = _Forgiving(descriptor)  # without a buffer: what is said is there at once
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


class _Forgiving(io.RawIOBase):
    """Output that takes everything, and writes what it can."""

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


def _conflict(path: Path, command: int) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, command, request))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else pid


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
