"""A driver in namespaces of its own, made by bubblewrap: mounts, processes, no capability.

The shim stays outside and speaks pids as the host sees them; in here each process has another
number, which the kernel shows in /proc/PID/status.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from queries.launchers.process import identities
from queries.launchers.process.walls.mounts import Mounts

PROGRAM = "bwrap"
INIT = Path(__file__).with_name("init.py")
STARTS_WITHIN_S = 20  # for namespaces, mounts and the init; it needs about 0.1 s
TELLS_WITHIN_S = 5  # for a wait status, once the process is seen to have ended

#: All capabilities go, and no further user namespace gives them back. The control group's namespace
#: stays: Java finds no beans of its own where /proc/self/cgroup and /sys/fs/cgroup differ.
NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--disable-userns", "--cap-drop", "ALL", "--as-pid-1"),
)


class NotStarted(Exception):
    """bubblewrap ended before the driver began; its log has the reason."""


@dataclass(slots=True)
class Walls:
    """The walls around one driver, as its shim holds them."""

    process: subprocess.Popen[bytes]  # bubblewrap itself, our child
    told: int  # lines of the init
    _go: int
    init_pid: int = 0
    init_start: int | None = None
    ended: dict[int, int] = field(default_factory=dict)  # wait status by pid in there
    _inner: dict[int, int] = field(default_factory=dict)  # pid in there by pid out here
    _started: int = 0
    _buffer: bytes = b""

    @classmethod
    def raise_around(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        mounts: Mounts,
        log: int,
        pass_fds: Iterable[int] = (),
        close: Iterable[int] = (),
        umask: int = 0o077,
    ) -> "Walls":
        """Start bubblewrap; the init in it closes `close`, which are for the driver alone."""
        told, tells = os.pipe()
        goes, go = os.pipe()
        options = _memory("\0".join((*NAMESPACES, *mounts.options)))
        command = {"argv": list(argv), "env": dict(env), "close": list(close)}
        wanted = _memory(json.dumps(command))
        passed = (options, wanted, goes, tells, *mounts.descriptors)
        try:
            process = subprocess.Popen(
                [
                    *(PROGRAM, "--args", str(options), "--"),
                    *(sys.executable, "-I", "-S", str(INIT), str(wanted), str(goes), str(tells)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Not the driver's: nothing here is to be taken for one of its processes.
                env={name: env[name] for name in ("PATH", "LANG") if name in env},
                pass_fds=(*passed, *pass_fds),
                start_new_session=True,
                umask=umask,
            )
        except BaseException:
            for descriptor in (told, go):
                os.close(descriptor)
            raise
        finally:
            for descriptor in passed:
                os.close(descriptor)
        os.set_blocking(told, False)
        return cls(process, told, go)

    def begin(self) -> int:
        """Let the driver begin; return its pid out here. Raises `NotStarted` where it cannot."""
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not self._started:
            if not self._await(deadline) or (not self.read() and not self._started):
                return self._give_up()
        self.init_pid = self._init()
        self.init_start = identities.start_time(self.init_pid)
        python = self.outer(self._started)
        if python is None:
            return self._give_up()
        os.write(self._go, b"\n")
        os.close(self._go)
        return python

    def _give_up(self) -> NoReturn:
        """Leave bubblewrap, our child, a moment to say what it lacks, then end it."""
        os.close(self._go)
        started = identities.start_time(self.process.pid)
        if not identities.wait_end(self.process.pid, started, TELLS_WITHIN_S):
            identities.kill_and_wait(self.process.pid, started, TELLS_WITHIN_S)
        raise NotStarted

    def outer(self, inner: int) -> int | None:
        """Return the pid out here of a process in there, None where there is none."""
        depth = len(identities.namespace_pids(self.init_pid))
        for pid in identities.descendants(self.init_pid) if depth else ():
            known = identities.namespace_pids(pid)
            if len(known) == depth and known[-1] == inner:
                self._inner[pid] = inner
                return pid
        return None

    def status_of(self, outer: int) -> int | None:
        """Return the wait status of a process that has ended, once the init has told it."""
        inner = self._inner.get(outer)
        if inner is None:
            return None
        deadline = time.monotonic() + TELLS_WITHIN_S
        while inner not in self.ended and self._await(deadline) and self.read():
            pass
        return self.ended.get(inner)

    def know(self, outer: int) -> None:
        """Note a process of in there, so that its end is known when it is told."""
        numbers = identities.namespace_pids(outer)
        if numbers:
            self._inner[outer] = numbers[-1]

    def read(self) -> bool:
        """Take what the init has told; False once it has ended."""
        while True:
            try:
                data = os.read(self.told, 65_536)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                word, _, rest = line.decode().partition(" ")
                numbers = [int(each) for each in rest.split()]
                if word == "start":
                    self._started = numbers[0]
                elif word == "end":
                    self.ended[numbers[0]] = numbers[1]

    def _await(self, deadline: float) -> bool:
        """Wait until there is something to read; False where the time is over."""
        left = max(0.0, deadline - time.monotonic())
        return bool(select.select([self.told], [], [], left)[0])

    def _init(self) -> int:
        """Return the pid of the first process in there."""
        for pid in identities.descendants(self.process.pid):
            if identities.namespace_pids(pid)[-1:] == [1]:
                return pid
        return 0


def _memory(text: str) -> int:
    """Return a descriptor that gives the text, from its beginning."""
    descriptor = os.memfd_create("headgate")
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
