"""Become one program of the system: tie its life to the supervisor's, leave its identity.

Run as a script by supervisord, with nothing but the standard library, and replaced by the
program itself: `python program.py IDENTITY_FILE COMMAND…`.
"""

import ctypes
import json
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel send this process SIGTERM when its parent dies, however that dies."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the kernel knew
        sys.exit("the supervisor is gone")


def identity() -> dict[str, object]:
    """Return who this process is: boot, pid and start time in clock ticks."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    with open("/proc/self/stat") as file:
        started = int(file.read().rpartition(")")[2].split()[19])
    return {"boot_id": boot, "pid": os.getpid(), "start_time": started}


def main() -> None:
    """Do it."""
    file, command = sys.argv[1], sys.argv[2:]
    die_with_parent()
    fresh = f"{file}.{os.getpid()}"
    with open(fresh, "w") as target:
        json.dump(identity(), target)
    os.replace(fresh, file)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
