"""An epoch claimed in the kernel, outside the folder that holds every other guard of a driver.

The folder of the drivers may go away under them, as a mount that flaps does, and with it every
lock and `ident.json`. A claim is an abstract unix socket (unix(7)) named after the driver's
directory: binding it is exclusive, no file system knows it, and it lasts until the last process
that inherited the descriptor is gone. The shim binds it, the driver's Python and JVM hold it.
A claim is seen within one network namespace: on one host, or in one container.
"""

import hashlib
import os
import socket
from pathlib import Path

TAKEN = 76  # a shim's exit code: a driver of this very epoch lives, with its files or without
CLAIM_FD = "HEADGATE_CLAIM_FD"  # tells the driver which descriptor it has inherited

_LIST = Path("/proc/net/unix")


def take(directory: Path) -> socket.socket | None:
    """Claim the epoch of a driver's directory; None where a process has it already."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0{family(directory.parent)}{directory.name}")
    except OSError:  # EADDRINUSE; whatever else it is, nothing is known to be free
        claim.close()
        return None
    return claim


def is_taken(directory: Path) -> bool:
    """Tell whether a process holds the claim on a directory's epoch; takes nothing."""
    return int(directory.name) in taken(directory.parent)


def taken(folder: Path) -> set[int]:
    """Return the epochs that are claimed of the directories in a folder, there or not."""
    start = f"@{family(folder)}"  # the kernel writes the leading NUL as @
    words = (line.rpartition(" ")[2] for line in _LIST.read_text(errors="replace").splitlines())
    numbers = (word.removeprefix(start) for word in words if word.startswith(start))
    return {int(number) for number in numbers if number.isdigit()}


def family(folder: Path) -> str:
    """Return how the names of a folder's sockets begin."""
    # A hash, because a socket's name has 108 bytes and a path may have more.
    return f"headgate:{hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]}:"
