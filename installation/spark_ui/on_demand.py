"""Listen at the Spark UI server's port, and run the server only while it is used.

    python on_demand.py HOST PORT COMMAND…

The server is started at the first connection, with the listening socket as its standard input, and
exits when it has been idle (`installation.spark_ui.server`). The socket stays open here, so
connections that arrive in between wait for the next server. If a server fails, this exits, too, and
the supervisor restarts it with its delays. This runs as a script and uses only the standard
library: a Python with Django would need ten times the memory.
"""

import select
import signal
import socket
import subprocess
import sys
from types import FrameType

_BACKLOG = 128


def main() -> None:
    """Run the script; on SIGTERM, end the server, and exit when it has ended."""
    host, port, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    signal.signal(signal.SIGTERM, _leave)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=_BACKLOG) as listener:
        while True:
            select.select([listener], [], [])
            if code := _served(command, listener):
                sys.exit(f"the Spark UI server has ended with code {code}")


def _served(command: list[str], listener: socket.socket) -> int:
    """Run the server until it ends; return its exit code. A signal to leave ends it, too."""
    server = subprocess.Popen(command, stdin=listener.fileno())
    try:
        return server.wait()
    finally:
        server.terminate()
        server.wait()


def _leave(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # while the server ends
    sys.exit(0)


if __name__ == "__main__":
    main()
