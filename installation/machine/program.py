"""Become one program of the system: write its identity, and choose whether to outlive the parent.

This runs as a script, uses only the standard library, and execs the program itself:

    python program.py IDENTITY_FILE COMMAND…               ends when its parent ends
    python program.py --daemon LOG IDENTITY_FILE COMMAND…  outlives all; returns immediately
"""

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel send this process SIGTERM when its parent dies for any reason."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before that took effect
        sys.exit("the supervisor has exited")


def identity() -> dict[str, object]:
    """Return this process's identity: boot, pid and start time in clock ticks."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    with open("/proc/self/stat") as file:
        started = int(file.read().rpartition(")")[2].split()[19])
    return {"boot_id": boot, "pid": os.getpid(), "start_time": started}


def detach(log: str) -> None:
    """Continue in a separate session, with output to `log`; the original process exits."""
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(write_end)
        os.read(read_end, 1)  # ends when the daemon has exec'd its program, or failed
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.close(read_end)
    silence = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, target in ((silence, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)


def write_identity(file: str) -> None:
    """Write this process's identity.

    On a full disk, write it in place, or skip it: starting the program is more important.
    """
    text = json.dumps(identity())
    fresh = f"{file}.{os.getpid()}"
    try:
        with open(fresh, "w") as target:
            target.write(text)
        os.replace(fresh, file)
        return
    except OSError as error:
        print(f"{file} cannot be replaced: {error}", file=sys.stderr)  # noqa: T201
    with suppress(OSError):
        os.unlink(fresh)
    with suppress(OSError), open(file, "r+") as target:
        target.write(text.ljust(os.fstat(target.fileno()).st_size))


def main() -> None:
    """Run the script."""
    arguments = sys.argv[1:]
    if arguments[0] == "--daemon":
        detach(arguments[1])
        arguments = arguments[2:]
    else:
        die_with_parent()
    file, command = arguments[0], arguments[1:]
    write_identity(file)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
