"""Run a driver in its own namespaces, created by bubblewrap: mounts, processes, no capabilities.

The shim stays outside and uses PIDs as the host sees them; inside, each process has a different
PID, which the kernel shows in /proc/PID/status.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from headgate_ground import identities
from headgate_ground.tolerant import whole
from queries.domain.protocol import Killer
from queries.launchers.process.isolation import limits
from queries.launchers.process.isolation.mounts import Mounts
from queries.launchers.process.pipes import PipeLines

PROGRAM = "bwrap"
#: Time limit for namespaces, mounts and the init, which normally take 0.1 s; on an overloaded host,
#: minutes.
STARTS_WITHIN_S = 300
#: Time limit for a wait status after the process has ended: normally immediate, except on such a
#: host.
TELLS_WITHIN_S = 60
#: Ended processes that are remembered although the shim does not know them.
MOST_ENDED = 10_000
SAYS_WITHIN_S = 5  # for bubblewrap to exit if it could not set up the sandbox

#: All capabilities are dropped, and no further user namespace can restore them. The control group's
#: namespace is kept: Java cannot find its own beans if /proc/self/cgroup and /sys/fs/cgroup differ.
NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--disable-userns", "--cap-drop", "ALL", "--as-pid-1"),
)


class NotStarted(Exception):
    """bubblewrap exited or timed out before the driver started; the log may contain the reason."""

    def __init__(self, killed: Killer) -> None:
        super().__init__(killed)
        self.killed = killed


@dataclass(slots=True)
class Sandbox:
    """The sandbox of one driver, as held by its shim."""

    process: subprocess.Popen[bytes]  # bubblewrap itself, our child
    report_pipe: int  # lines from the init
    _go: int
    init_pid: int = 0
    init_start: int | None = None
    ended: dict[int, int] = field(default_factory=dict)  # wait status by inner PID
    _inner: dict[int, int] = field(default_factory=dict)  # inner PID by outer PID
    _started: int = 0
    _lines: PipeLines = field(default_factory=PipeLines)

    @classmethod
    def apply(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        mounts: Mounts,
        log: int,
        pass_fds: Iterable[int] = (),
        close: Iterable[int] = (),
        umask: int = 0o077,
    ) -> "Sandbox":
        """Start bubblewrap; its init closes the descriptors in `close`, which are for the driver.

        Processes inside can make only the listed system calls, if this host supports a filter.
        """
        report_pipe, tells = os.pipe()
        goes, go = os.pipe()
        calls, _ = limits.system_call_filter()
        filtered = () if calls is None else ("--seccomp", str(calls))
        options = _memory("\0".join((*NAMESPACES, *mounts.options, *filtered)))
        command = {
            "argv": list(argv),
            "env": dict(env),
            "close": list(close),
            "limits": limits.limits(),
        }
        wanted = _memory(json.dumps(command))
        passed = (options, wanted, goes, tells, *mounts.descriptors)
        passed += () if calls is None else (calls,)
        try:
            process = subprocess.Popen(
                [
                    *(PROGRAM, "--args", str(options), "--"),
                    *(
                        sys.executable,
                        "-I",
                        "-S",
                        str(limits.INIT),
                        str(wanted),
                        str(goes),
                        str(tells),
                    ),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Not the driver's environment, so that nothing here is mistaken for one of its
                # processes.
                env={name: env[name] for name in ("PATH", "LANG") if name in env},
                pass_fds=(*passed, *pass_fds),
                start_new_session=True,
                umask=umask,
            )
        except BaseException:
            for descriptor in (report_pipe, go):
                os.close(descriptor)
            raise
        finally:
            for descriptor in passed:
                os.close(descriptor)
        os.set_blocking(report_pipe, False)
        return cls(process, report_pipe, go)

    def begin(self) -> int:
        """Let the driver start; return its outer PID. Raises `NotStarted` if it cannot start."""
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not self._started:
            if not self._await(deadline):
                return self._give_up(Killer.ISOLATION_LATE)
            if not self.read() and not self._started:
                return self._give_up(Killer.ISOLATION_FAILED)
        self.init_pid = self._init()
        self.init_start = identities.start_time(self.init_pid)
        python = self.outer(self._started)
        if python is None:
            return self._give_up(Killer.ISOLATION_FAILED)
        os.write(self._go, b"\n")
        os.close(self._go)
        return python

    def _give_up(self, why: Killer) -> NoReturn:
        """Give bubblewrap, our child, a moment to report the missing part, then end it."""
        os.close(self._go)
        started = identities.start_time(self.process.pid)
        if not identities.wait_end(self.process.pid, started, SAYS_WITHIN_S):
            identities.kill_and_wait(self.process.pid, started, TELLS_WITHIN_S)
        raise NotStarted(why)

    def outer(self, inner: int) -> int | None:
        """Return the outer PID of a process in the sandbox; None if there is no such process."""
        depth = len(identities.namespace_pids(self.init_pid))
        for pid in identities.descendants(self.init_pid) if depth else ():
            pids = identities.namespace_pids(pid)
            if len(pids) == depth and pids[-1] == inner:
                self._inner[pid] = inner
                return pid
        return None

    def status_of(self, outer: int) -> int | None:
        """Return the wait status of an ended process, once the init has reported it."""
        inner = self._inner.get(outer)
        if inner is None:
            return None
        deadline = time.monotonic() + TELLS_WITHIN_S
        while inner not in self.ended and self._await(deadline) and self.read():
            if time.monotonic() > deadline:  # reports of other processes, without end
                break
        return self.ended.get(inner)

    def know(self, outer: int) -> None:
        """Register a process inside, so that its end is recognized when the init reports it."""
        numbers = identities.namespace_pids(outer)
        if numbers:
            self._inner[outer] = numbers[-1]

    def read(self) -> bool:
        """Read some of the init's reports; False once it has ended.

        Only the init writes there: no other process inside can open its descriptors. Its reports
        are nevertheless checked, since it reaps whatever a driver's code starts.
        """
        lines = self._lines.read(self.report_pipe)
        if lines is None:
            return False
        for line in lines:
            word, *rest = line.split(" ")
            match word, [whole(part) for part in rest]:
                case "start", [int(pid)] if not self._started:
                    self._started = pid
                case "end", [int(pid), int(status)]:
                    if pid in self._inner.values() or len(self.ended) < MOST_ENDED:
                        self.ended[pid] = status
        return True

    def _await(self, deadline: float) -> bool:
        """Wait until there is something to read; False if the time is up."""
        left = max(0.0, deadline - time.monotonic())
        return bool(select.select([self.report_pipe], [], [], left)[0])

    def _init(self) -> int:
        """Return the PID of the first process inside."""
        for pid in identities.descendants(self.process.pid):
            if identities.namespace_pids(pid)[-1:] == [1]:
                return pid
        return 0


def _memory(text: str) -> int:
    """Return a descriptor from which the given content can be read."""
    descriptor = os.memfd_create("headgate")
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
