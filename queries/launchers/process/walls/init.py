"""The first process within bubblewrap's walls: starts the driver, and tells how processes ended.

`python -I -S init.py COMMAND GO TOLD`, all three descriptors. bubblewrap's own init knows no
signals (it says 128 + n) and nothing of the JVM; this one hands every wait status out as it is.
It imports nothing of ours, lives for as long as any process in here, and with it they all end.

1. COMMAND holds {"argv", "env", "close"} as JSON; the driver is forked and waits.
2. `start PID` is told; the shim answers on GO once it knows the process from outside.
3. `end PID STATUS` is told of every child that ends, orphans of the driver included.
"""

import json
import os
import sys


def main(command: int, go: int, told: int) -> None:
    """Run the command and reap until nothing is left."""
    with os.fdopen(command) as file:
        wanted = json.load(file)
    child = os.fork()
    if not child:
        os.close(told)
        if os.read(go, 1):  # nothing: the shim is gone, and nobody would know this driver
            os.close(go)
            os.setsid()
            os.execve(wanted["argv"][0], wanted["argv"], wanted["env"])
        os._exit(127)
    for descriptor in (go, *wanted["close"]):
        os.close(descriptor)
    _tell(told, f"start {child}")
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        _tell(told, f"end {pid} {status}")


def _tell(told: int, line: str) -> None:
    try:
        os.write(told, f"{line}\n".encode())
    except OSError:  # a dead shim must not end a healthy driver
        return


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
