"""Find local ports for servers started by Headgate: Redis, the trial broker, a Spark UI."""

import secrets
import socket
from collections.abc import Iterator

#: Below the usual ephemeral ports, so that they stay free.
_PORTS = range(20_000, 32_000)


def free_ports() -> Iterator[int]:
    """Yield free ports, starting at a random one."""
    start = secrets.randbelow(len(_PORTS))
    yield from filter(port_is_free, (*_PORTS[start:], *_PORTS[:start]))


def port_is_free(port: int) -> bool:
    """Return whether a server can listen on 127.0.0.1 at this port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
