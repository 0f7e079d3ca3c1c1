"""The exit of a driver, called out on its own host: no broker and no database on the way.

A shim that has written `exit.json` calls the number of its driver's row to an abstract unix
socket (unix(7)) named after the folder of all drivers; the host's worker listens there. A call is
a hint: whoever misses it finds the exit at the next sweep (docs/decisions/0012).
"""

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from queries.launchers.process.epoch_claims import family

_LONGEST = 32  # bytes of a number in decimal


@contextlib.contextmanager
def listen(drivers: Path) -> Iterator[Callable[[float], int | None]]:
    """Listen while the block runs; yield what waits for the next call, some seconds at most.

    It returns the number that was called, None for none. Raises `OSError` where another process
    listens.
    """
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as ear:
        ear.bind(_name(drivers))
        ear.setblocking(False)

        def heard(limit_s: float) -> int | None:
            if not select.select([ear], [], [], limit_s)[0]:
                return None
            said = ear.recv(_LONGEST)
            return int(said) if said.isdigit() else None

        yield heard


def call(drivers: Path, driver: int) -> bool:
    """Say that a driver has ended; tell whether a worker listens."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as mouth:
        mouth.setblocking(False)
        try:
            mouth.sendto(str(driver).encode(), _name(drivers))
        except OSError:  # nobody is there, or has not listened for many exits
            return False
    return True


def _name(drivers: Path) -> str:
    return f"\0{family(drivers)}exits"
