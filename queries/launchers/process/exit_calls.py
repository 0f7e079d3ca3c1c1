"""Announce a driver's exit on its own host, without a broker or a database.

After writing `exit.json`, a shim sends the ID of its driver's row to an abstract Unix socket
(unix(7)) named after the folder of all drivers, on which the host's worker listens. This is only a
hint: if it is missed, the next sweep finds the exit (docs/decisions/0012).
"""

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from headgate_ground.tolerant.values import whole
from queries.launchers.process.epoch_claims import family

_LONGEST = 32  # bytes of a decimal number


@contextlib.contextmanager
def listen(drivers: Path) -> Iterator[Callable[[float], int | None]]:
    """Listen while the block runs; yield a function that waits for the next exit.

    It waits for at most the given number of seconds and returns the ID received, or None if there
    was none. Raises `OSError` if another process is listening.
    """
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as ear:
        ear.bind(_name(drivers))
        ear.setblocking(False)

        def heard(limit_s: float) -> int | None:
            if not select.select([ear], [], [], limit_s)[0]:
                return None
            return whole(ear.recv(_LONGEST))

        yield heard


def call(drivers: Path, driver: int) -> bool:
    """Announce that a driver has ended; return whether a worker is listening."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as mouth:
        mouth.setblocking(False)
        try:
            mouth.sendto(str(driver).encode(), _name(drivers))
        except OSError:  # nobody is listening, or too many exits are unread
            return False
    return True


def _name(drivers: Path) -> str:
    return f"\0{family(drivers)}exits"
