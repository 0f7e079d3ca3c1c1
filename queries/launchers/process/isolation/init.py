"""The first process in the bubblewrap sandbox: it starts the driver and reports exits.

`python -I -S init.py COMMAND GO TOLD`, all three of them descriptors. bubblewrap's own init does
not report signals (it returns 128 + n) and knows nothing about the JVM; this one passes on every
wait status unchanged. It does not import our code, and runs as long as any process inside does;
when it exits, the kernel ends all of them.

1. COMMAND contains {"argv", "env", "close", "limits"} as JSON; the driver is forked and waits.
2. `start PID` is reported; the shim answers on GO once it knows the process from outside.
3. `end PID STATUS` is reported for every child that ends, including orphans of the driver.

`init.py become LIMITS ARGV…` is for programs that need no init: it applies the limits to itself,
then executes ARGV.
"""

import ctypes
import json
import os
import resource
import sys

_PR_SET_DUMPABLE = 4  # prctl(2)


def main(command: int, go: int, report_pipe: int) -> None:
    """Run the command, and reap children until none is left."""
    with os.fdopen(command) as file:
        wanted = json.load(file)
    _limit(wanted["limits"])
    child = os.fork()
    if not child:
        os.close(report_pipe)
        if os.read(go, 1):  # otherwise the shim is gone, and nothing would know about this driver
            os.close(go)
            os.setsid()
            os.execve(wanted["argv"][0], wanted["argv"], wanted["env"])
        os._exit(127)
    for descriptor in (go, *wanted["close"]):
        os.close(descriptor)
    # The driver's processes have our UID: without this, they could write to the pipe in /proc/1/fd.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    _report(report_pipe, f"start {child}")
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        _report(report_pipe, f"end {pid} {status}")


def become(limits: str, argv: list[str]) -> None:
    """Apply limits, then execute a program under the same PID."""
    _limit(json.loads(limits))
    os.execv(argv[0], argv)


def _limit(limits: dict[str, int]) -> None:
    """Lower the limits of this process and its children, by name; never raise any."""
    for name, most in limits.items():
        number = getattr(resource, name)
        bounded = [
            most if limit == resource.RLIM_INFINITY else min(limit, most)
            for limit in resource.getrlimit(number)
        ]
        resource.setrlimit(number, (bounded[0], bounded[1]))


def _report(report_pipe: int, line: str) -> None:
    try:
        os.write(report_pipe, f"{line}\n".encode())
    except OSError:  # a dead shim must not end a healthy driver
        return


if __name__ == "__main__":
    if sys.argv[1] == "become":
        become(sys.argv[2], sys.argv[3:])
    main(*map(int, sys.argv[1:4]))
