"""Claim an epoch in the kernel, outside the folder that contains a driver's other locks.

The folder of all drivers may disappear while they run, for example when a mount flaps, and with it
every lock and `ident.json`. A claim is an abstract Unix socket (unix(7)) named after the driver's
directory. Only one process can bind it, it is not on any file system, and it lasts until the last
process that inherited the descriptor is gone. The shim binds the socket; the driver's Python and
JVM hold it. A claim is visible within one network namespace: on one host, or in one container.
"""

import hashlib
import os
import socket
from pathlib import Path

from headgate_ground.tolerant import whole

CLAIMED = 76  # a shim's exit code: a driver of this very epoch is alive, with or without its files
CLAIM_FD = "HEADGATE_CLAIM_FD"  # tells the driver which descriptor it has inherited

_LIST = Path("/proc/net/unix")


def take(directory: Path) -> socket.socket | None:
    """Claim the epoch for a driver's directory; None if a process already holds it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0{family(directory.parent)}{directory.name}")
    except OSError:  # EADDRINUSE; after any other error, it is not known to be free
        claim.close()
        return None
    return claim


def is_claimed(directory: Path) -> bool:
    """Return whether a process holds the claim on a directory's epoch, without claiming it."""
    return int(directory.name) in claimed_epochs(directory.parent)


def claimed_epochs(folder: Path) -> set[int]:
    """Return the claimed epochs of directories in a folder, even of deleted directories."""
    start = f"@{family(folder)}"  # the kernel writes the leading NUL as @
    words = (line.rpartition(" ")[2] for line in _LIST.read_text(errors="replace").splitlines())
    epochs = (whole(word.removeprefix(start)) for word in words if word.startswith(start))
    return {number for number in epochs if number is not None}


def family(folder: Path) -> str:
    """Return the prefix of the names of a folder's sockets."""
    # A hash, because a socket's name is limited to 108 bytes and a path may be longer.
    return f"headgate:{hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]}:"
