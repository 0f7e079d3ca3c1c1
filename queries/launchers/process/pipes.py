"""Connections whose other end may be an author's code: lines from a pipe, a storage JVM's
socket.

That code could replace the socket with a link to that of another application, whose answers would
then be accepted with that application's rights, or listen in the JVM's place. So the socket is
never opened through a link, and the process that listens must be the JVM whose PID the shim has
recorded in `control`, where no isolated code can write.
"""

import errno
import os
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headgate_ground import identities, untrusted
from headgate_ground.files import NotPlain
from queries.domain.protocol import STORAGE_SOCKET, USED, Ident
from queries.driver_folder import DriverFolder

#: Bytes of a line; what drivers and the sandbox's first process write has less than 40.
LONGEST = 256
#: Bytes that one call reads: as many as a pipe holds unless its size was changed.
AT_ONCE = 65_536
#: Calls after which what is left of an ended process is not read: a pipe holds at most 1 MiB.
MOST_CALLS = 16


@dataclass(slots=True)
class PipeLines:
    """The lines of one pipe; longer ones than `LONGEST` are dropped."""

    _rest: bytes = b""
    _dropping: bool = False  # the beginning of this line was too long

    def read(self, descriptor: int) -> list[str] | None:
        """Return the complete lines that one call reads, without waiting; None if it is closed."""
        try:
            data = os.read(descriptor, AT_ONCE)
        except BlockingIOError:
            return []
        if not data:
            return None
        first, *others = data.split(b"\n")
        whole = [self._rest + first, *others]
        if self._dropping and others:
            whole[0] = b""
        self._dropping = (self._dropping and not others) or len(whole[-1]) > LONGEST
        self._rest = b"" if self._dropping else whole[-1]
        return [line.decode(errors="replace") for line in whole[:-1] if len(line) <= LONGEST]


#: Seconds for a connection to the JVM, which the kernel makes without its help.
ANSWERS_WITHIN_S = 5.0
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid (unix(7))


def listens(directory: Path, ident: Ident | None) -> bool:
    """Return whether something listens there, and the JVM that must be listening is known."""
    if ident is None or ident.jvm_pid is None:
        return False
    try:
        connect(directory, ident, ANSWERS_WITHIN_S).close()
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        return False  # refused: it exists a moment before anything listens there
    except OSError:
        return True  # whoever connects again is told what is wrong with it
    return True


def connect(directory: Path, ident: Ident | None, limit_s: float) -> socket.socket:
    """Return a connection to the storage JVM; raise `OSError` if something else listens there."""
    link = untrusted.connected(DriverFolder.of(directory).own / STORAGE_SOCKET, limit_s)
    try:
        pid, _, _ = _PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if not _is_jvm(pid, ident):
            raise NotPlain(
                errno.EPERM,
                f"process {pid} listens in the place of the storage JVM",
                str(directory),
            )
    except BaseException:
        link.close()
        raise
    return link


def note_use(directory: Path) -> None:
    """Set the time of a file next to the control files to now."""
    with suppress(OSError):  # no space: the JVM ends a little earlier for another one
        (DriverFolder.of(directory).control / USED).touch(mode=0o600)


def unused_s(directory: Path) -> float:
    """Return the age of that file in seconds; 0 if there is none."""
    try:
        return time.time() - (DriverFolder.of(directory).control / USED).stat().st_mtime
    except OSError:
        return 0.0  # starting, or gone: its row is closed by itself


def _is_jvm(pid: int, ident: Ident | None) -> bool:
    """Return whether a PID is that of the JVM, which is still running.

    The kernel translates the PID of a process in a sandbox to ours, and keeps that of the process
    that began to listen. The user is the same for all drivers in bubblewrap, so it proves nothing.
    """
    return (
        ident is not None
        and pid == ident.jvm_pid
        and identities.is_alive(pid, ident.jvm_start_time)
    )
