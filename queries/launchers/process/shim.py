"""The process between a worker and a driver: it starts one driver and reports how it ended.

`python -m queries.launchers.process.shim DIRECTORY`. Workers may come and go; the shim stays as
long as its driver is alive, waits on pidfds for Python and the JVM to end, reaps the processes that
they leave behind and writes `exit.json`. It uses only files, never the database. If the shim itself
is killed, the driver keeps streaming, because it does not depend on the shim.
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from controlplane import fail_points
from headgate_ground import identities
from headgate_ground.files import replace_file, take_lock
from headgate_ground.tolerant import whole
from headgate_ground.untrusted import remove_tree
from queries.domain.protocol import (
    EXIT,
    IDENT,
    SHIM_LOCK,
    SPEC,
    TMP,
    Current,
    DriverSpec,
    ExitReport,
    Ident,
    Killer,
)
from queries.driver_folder import DriverFolder, read_current
from queries.launchers.process import epoch_claims, exits, spawning
from queries.launchers.process.exits import OutOfMemory
from queries.launchers.process.isolation.bubblewrap import Sandbox
from queries.launchers.process.isolation.preparing import take_back
from queries.launchers.process.pipes import MOST_CALLS, PipeLines

JVM_OUTLIVES_S = 5  # how long a JVM may outlive its Python (trap 23)
PYTHON_OUTLIVES_S = 10  # beyond the driver's own stop_timeout_s, after its JVM's death
MOST_EXIT = 255  # of an exit code, and beyond every number of a signal
REAP_S = 20  # for SIGKILLed processes to disappear
UNKNOWN = "UNKNOWN"
FENCED = "FENCED"  # never started: current.json contains another epoch, or a later one is alive
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def main(arguments: list[str]) -> int:
    """Take the directory's lock, leave the launcher's process tree, and supervise one driver."""
    directory = Path(arguments[0])
    folder = DriverFolder.of(directory)
    lock = take_lock(folder.control / SHIM_LOCK)
    if lock is None:
        return 0  # another shim holds it
    claim = epoch_claims.take(directory)
    if claim is None:  # no report: this epoch's exit is that of the live driver
        sys.stderr.write(
            f"a driver with epoch {directory.name} is running; not starting a second one\n"
        )
        return epoch_claims.CLAIMED
    # The lock belongs to the open file. The child keeps it when this process ends, so anything that
    # waits for this process finds the lock held.
    if os.fork():
        os._exit(0)
    spec = DriverSpec.loads((folder.control / SPEC).read_text())
    if (folder.control / EXIT).exists() or (folder.control / IDENT).exists():
        return 0  # an earlier shim has started the driver, or seen it end
    current = read_current(directory.parent)
    named = None if current is None else Current.loads(current).epoch
    fenced = named != spec.epoch
    if spec.standby:  # it is named there only when it takes over
        fenced = named is not None and named > spec.epoch
    # The folder may have disappeared and returned without the later epoch's current.json.
    fenced = fenced or max(epoch_claims.claimed_epochs(directory.parent)) > spec.epoch
    if fenced and not spec.probe:  # a probe holds no checkpoint and no place: nothing fences it
        report = ExitReport(FENCED, FENCED, core=False, oom=False, at=_now(), last_seq=0)
        replace_file(folder.control / EXIT, report.dumps())
        return 0
    Shim(folder, spec, claim).run()
    return 0


@dataclass(slots=True)
class Shim:
    """One driver's shim, from spawn to report."""

    folder: DriverFolder
    spec: DriverSpec
    claim: socket.socket  # on the epoch; held by the driver's processes once they exist
    spawned_at: str = ""
    python_pid: int = 0
    python_start: int | None = None
    jvm_pid: int | None = None
    jvm_start: int | None = None
    exits: dict[int, int] = field(default_factory=dict)  # pid -> wait status
    jvm_exit: str = ""  # the JVM's exit, as seen by the driver's Python
    sandbox: Sandbox | None = None  # around the driver, if its spec requires bubblewrap's
    by_us: dict[str, Killer] = field(default_factory=dict)  # why, by "python" and "jvm"
    _lines: PipeLines = field(default_factory=PipeLines)
    _memory: OutOfMemory = field(default_factory=OutOfMemory.now)

    def run(self) -> None:
        """Start the driver, wait for Python and the JVM, end leftovers, report, and clean up."""
        self._become_subreaper()
        wake = self._catch_sigterm()
        report_pipe = self._start()
        fail_points.reach(fail_points.BEFORE_IDENT)
        self._write_ident()
        fail_points.reach(fail_points.AFTER_IDENT)
        exits.prepare_notice(self.spec)
        self._wait(report_pipe, wake)
        exits.warm_up(self.folder, self.spec)
        self._end_jvm()
        self._end_descendants()
        self._read_rest(report_pipe)
        report = self.report()
        exits.write(self.folder, report)
        fail_points.reach(fail_points.AFTER_EXIT)
        if not exits.call(self._drivers(), self.spec.driver):
            exits.notify(self.spec, report)
        take_back(self.folder)
        # Last, because it may contain gigabytes, and everybody is waiting for the exit.
        remove_tree(self.folder.own / TMP)

    def _drivers(self) -> Path:
        """Return the folder of all drivers."""
        return self.folder.root.parents[2 if self.spec.probe else 1]

    def report(self) -> ExitReport:
        """Return how the driver ended, as far as the shim observed it."""
        python = self._exit_of(self.python_pid)
        jvm = self.jvm_exit or (self._exit_of(self.jvm_pid) if self.jvm_pid else UNKNOWN)
        within = self.sandbox.ended.values() if self.sandbox else ()
        memory = OutOfMemory.now()
        reason = exits.kill_reason(self.folder)
        killed = exits.killer(
            python,
            jvm,
            by_us=self.by_us,
            by_worker=bool(reason),
            before=self._memory,
            after=memory,
        )
        return exits.build(
            self.folder,
            self.spec,
            python=python,
            jvm=jvm,
            core=any(os.WCOREDUMP(status) for status in (*self.exits.values(), *within)),
            oom_killed="SIGKILL" in (python, jvm) and memory.group > self._memory.group,
            killed=killed,
            kill_reason=reason if killed is Killer.WORKER else "",
            at=_now(),
        )

    # --- start ------------------------------------------------------------------------

    def _become_subreaper(self) -> None:
        """Inherit the driver's orphans, so that the shim reaps them instead of init."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")

    def _catch_sigterm(self) -> int:
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # Inherited by the driver: a nudge before its handler is installed must not kill it.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        return read

    def _start(self) -> int:
        """Spawn the driver; return the pipe on which it reports its JVM's PID."""
        begun = spawning.spawn(self.folder, self.spec, self.claim)
        self.spawned_at, self.sandbox = begun.at, begun.sandbox
        if begun.killed:
            self.by_us["python"] = begun.killed
        self.python_pid = begun.python_pid
        self.python_start = identities.start_time(self.python_pid)
        return begun.report_pipe

    def _write_ident(self) -> None:
        ident = Ident(
            boot_id=identities.boot_id(),
            pid=self.python_pid,
            start_time=self.python_start or 0,
            shim_pid=os.getpid(),
            shim_start_time=identities.start_time(os.getpid()) or 0,
            spawned_at=self.spawned_at,
            jvm_pid=self.jvm_pid,
            jvm_start_time=self.jvm_start,
            init_pid=self.sandbox.init_pid if self.sandbox else None,
            init_start_time=self.sandbox.init_start if self.sandbox else None,
        )
        replace_file(self.folder.control / IDENT, ident.dumps())

    # --- wait -------------------------------------------------------------------------

    def _wait(self, report_pipe: int, wake: int) -> None:
        """Sleep until the driver's Python has ended, without polling."""
        try:
            python = os.pidfd_open(self.python_pid)
        except ProcessLookupError:  # in a sandbox, another process has reaped it
            self._reap(self.python_pid)
            return
        poll = select.poll()
        for descriptor in (python, report_pipe, wake):
            poll.register(descriptor, select.POLLIN)
        jvm: int | None = None
        deadline: float | None = None  # when a Python that outlives its JVM is killed
        while True:
            left = None if deadline is None else max(0, deadline - time.monotonic()) * 1000
            ready = {descriptor for descriptor, _ in poll.poll(left)}
            if not ready and deadline is not None:
                if identities.send(self.python_pid, self.python_start, signal.SIGKILL):
                    self.by_us["python"] = Killer.PYTHON_LATE
                deadline = None
            if wake in ready:  # a SIGTERM to us: pass it on, and limit the time to exit
                os.read(wake, 64)
                identities.send(self.python_pid, self.python_start, signal.SIGTERM)
                deadline = deadline or self._leave_deadline()
            if report_pipe in ready:
                jvm_before = self.jvm_pid
                if not self._read(report_pipe):
                    poll.unregister(report_pipe)
                if self.jvm_pid != jvm_before and (jvm := self._watch_jvm()) is not None:
                    poll.register(jvm, select.POLLIN)
            if jvm is not None and jvm in ready:
                poll.unregister(jvm)
                jvm = None
                deadline = deadline or self._leave_deadline()
            if python in ready:
                self._reap(self.python_pid)
                os.close(python)
                return

    def _leave_deadline(self) -> float:
        return time.monotonic() + self.spec.stop_timeout_s + PYTHON_OUTLIVES_S

    def _read(self, report_pipe: int) -> bool:
        """Read the driver's reports about its JVM; False once the pipe has been closed.

        Users' code can write there too, endlessly: for each word, one call returns only the last.
        """
        lines = self._lines.read(report_pipe)
        if lines is None:
            return False
        last = {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}
        for word, value in last.items():
            self._hear(word, value)
        return True

    def _read_rest(self, report_pipe: int) -> None:
        """Read the rest of an ended driver's pipe."""
        for _ in range(MOST_CALLS):
            if not self._read(report_pipe):
                return

    def _hear(self, word: str, value: str) -> None:
        """Process one line; users' code can also write lines, so a PID must be the driver's."""
        number = whole(value.removeprefix("-"))
        if number is None:
            return
        if word == "jvm" and self.jvm_pid is None:  # a driver has one, and reports it once
            self.jvm_pid = self._mine(number)
        elif word == "jvm-exit" and number <= MOST_EXIT:
            self.jvm_exit = exits.exit_name(-number if value.startswith("-") else number)
        elif word == "jvm-killed":
            self.by_us["jvm"] = Killer.JVM_LATE

    def _mine(self, number: int) -> int | None:
        """Return the outer PID of a process that the driver reported; None if it is not its own."""
        if self.sandbox is not None:
            return self.sandbox.outer(number)
        return number if number in identities.descendants(os.getpid()) else None

    def _watch_jvm(self) -> int | None:
        assert self.jvm_pid is not None
        self.jvm_start = identities.start_time(self.jvm_pid)
        with contextlib.suppress(OSError):  # a full disk: the JVM can be found through its Python
            self._write_ident()
        try:
            return os.pidfd_open(self.jvm_pid)
        except ProcessLookupError:
            return None

    # --- clean up ---------------------------------------------------------------------

    def _end_jvm(self) -> None:
        """Give the JVM, now our child, 5 s to exit; then SIGKILL it."""
        if self.jvm_pid is None:  # Python died before it could report it
            mine = identities.descendants(os.getpid())
            self.jvm_pid = next((pid for pid in mine if identities.is_spark(pid)), None)
            self._note_jvm()
        if self.jvm_pid is None or self.jvm_pid not in identities.descendants(os.getpid()):
            return
        self._wait_for(self.jvm_pid, JVM_OUTLIVES_S)
        if self.jvm_pid not in self.exits:
            if identities.send(self.jvm_pid, self.jvm_start, signal.SIGKILL):
                self.by_us["jvm"] = Killer.JVM_LATE
            self._wait_for(self.jvm_pid, REAP_S)

    def _note_jvm(self) -> None:
        if self.jvm_pid is not None:
            self.jvm_start = identities.start_time(self.jvm_pid)
            if self.sandbox is not None:
                self.sandbox.know(self.jvm_pid)

    def _end_descendants(self) -> None:
        """SIGKILL and reap the driver's remaining processes: Python workers, users' children."""
        if (
            self.sandbox is not None
        ):  # when the first process inside ends, the kernel ends all others
            identities.kill_and_wait(self.sandbox.init_pid, self.sandbox.init_start, REAP_S)
        deadline = time.monotonic() + REAP_S
        while time.monotonic() < deadline:
            if not self._reap_all():
                return  # orphans become our children: no children means no descendants
            left = identities.descendants(os.getpid())
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._wait_for(left[0], deadline - time.monotonic())

    def _wait_for(self, pid: int, timeout_s: float) -> None:
        """Wait for a child to end, using its pidfd, then reap it."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._reap(pid)
            return
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(max(0, timeout_s) * 1000):
            self._reap(pid)
        os.close(descriptor)

    def _reap(self, pid: int) -> None:
        if self.sandbox is not None and (status_within := self.sandbox.status_of(pid)) is not None:
            self.exits[pid] = status_within
            return
        with contextlib.suppress(ChildProcessError):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self.exits[pid] = status

    def _reap_all(self) -> bool:
        """Reap every child that has ended; return whether others are left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return True
                self.exits[pid] = status
        return False

    def _exit_of(self, pid: int) -> str:
        status = self.exits.get(pid)
        return UNKNOWN if status is None else exits.exit_name(os.waitstatus_to_exitcode(status))


def _now() -> str:
    return datetime.now(UTC).isoformat()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
