"""The process between a worker and a driver: starts one driver, and says how it ended.

`python -m queries.launchers.process.shim DIRECTORY`. A worker may come and go; the shim stays
for as long as its driver lives, waits for the ends of Python and JVM on pidfds, reaps what they
leave behind and writes `exit.json`. It reads and writes files only, never the database. Should the
shim itself be killed, the driver streams on: nothing of the driver's hangs on it.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from controlplane import fail_points
from queries.domain.probes.questions import TASK
from queries.domain.protocol import (
    ASSIGNMENT,
    CURRENT,
    DRIVER_LOG,
    EXIT,
    IDENT,
    LAST_SEQ,
    SHIM_LOCK,
    SPEC,
    TMP,
    Current,
    DriverSpec,
    ExitReport,
    Ident,
)
from queries.files import read_file, read_tail, replace_file, take_lock
from queries.launchers.process import environment, epoch_claims, exit_calls, exits, identities
from queries.secret_references import References

JVM_OUTLIVES_S = 5  # a JVM may outlive its Python by this long (trap 23)
PYTHON_OUTLIVES_S = 10  # beyond the driver's own stop_timeout_s, after its JVM's death
REAP_S = 20  # for SIGKILLed processes to go
LOG_TAIL_BYTES = 16_384
REPORT_WITHIN_S = 60  # for a full disk, or a folder that is away, to let exit.json be written
REPORT_AGAIN_S = 1
UNKNOWN = "UNKNOWN"
FENCED = "FENCED"  # never started: current.json names another epoch, or a later one lives
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_JVM_OOM_EXIT = "3"  # of -XX:+ExitOnOutOfMemoryError


def main(arguments: list[str]) -> int:
    """Take the directory's lock, leave the launcher's process tree, supervise one driver."""
    directory = Path(arguments[0])
    lock = take_lock(directory / SHIM_LOCK)
    if lock is None:
        return 0  # another shim has it
    claim = epoch_claims.take(directory)
    if claim is None:  # no report: the exit of this epoch is that of the driver that lives
        sys.stderr.write(f"a driver of epoch {directory.name} lives; no second one is started\n")
        return epoch_claims.TAKEN
    # The lock belongs to the open file: the child keeps it when this process ends, so whoever
    # waits for this process finds the lock held.
    if os.fork():
        os._exit(0)
    spec = DriverSpec.loads((directory / SPEC).read_text())
    if (directory / EXIT).exists() or (directory / IDENT).exists():
        return 0  # a shim before us has started the driver, or seen it end
    current = read_file(directory.parent / CURRENT)
    fenced = current is None or Current.loads(current).epoch != spec.epoch
    # The folder may have gone and come back without the later epoch's current.json.
    fenced = fenced or max(epoch_claims.taken(directory.parent)) > spec.epoch
    if fenced and not spec.probe:  # a probe holds no checkpoint and no place: nothing fences it
        report = ExitReport(FENCED, FENCED, core=False, oom=False, at=_now(), last_seq=0)
        replace_file(directory / EXIT, report.dumps())
        return 0
    Shim(directory, spec, claim).run()
    return 0


@dataclass(slots=True)
class Shim:
    """One driver's shim, from spawn to report."""

    directory: Path
    spec: DriverSpec
    claim: socket.socket  # on the epoch; the driver's processes hold it once there are any
    spawned_at: str = ""
    python_pid: int = 0
    python_start: int | None = None
    jvm_pid: int | None = None
    jvm_start: int | None = None
    exits: dict[int, int] = field(default_factory=dict)  # pid -> wait status
    jvm_said: str = ""  # the JVM's exit, as the driver's Python saw it
    _buffer: bytes = b""
    _oom_kills: int = 0

    def run(self) -> None:
        """Start the driver, wait for both ends, end what is left, report, remove its files."""
        self._become_subreaper()
        self._oom_kills = exits.cgroup_oom_kills()
        wake = self._catch_sigterm()
        told = self._start()
        fail_points.reach(fail_points.BEFORE_IDENT)
        self._write_ident()
        fail_points.reach(fail_points.AFTER_IDENT)
        exits.prepare_notice(self.spec)
        self._wait(told, wake)
        # Warms up the report while the JVM, as a rule, still dies.
        self._masked(read_tail(self.directory / DRIVER_LOG, LOG_TAIL_BYTES))
        self._end_jvm()
        self._end_descendants()
        self._read(told)
        report = self._report()
        self._write_report(report)
        fail_points.reach(fail_points.AFTER_EXIT)
        if not exit_calls.call(self._drivers(), self.spec.driver):
            exits.notify(self.spec, report)
        # Last: it may be gigabytes, and everybody waits for the exit.
        shutil.rmtree(self.directory / TMP, ignore_errors=True)

    def _drivers(self) -> Path:
        """Return the folder of all drivers."""
        return self.directory.parents[2 if self.spec.probe else 1]

    # --- start ------------------------------------------------------------------------

    def _become_subreaper(self) -> None:
        """Inherit the driver's orphans: they are reaped here, not by init."""
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
        """Spawn the driver; return the pipe on which it names its JVM."""
        tmp = self.directory / TMP
        tmp.mkdir(mode=0o700, exist_ok=True)
        log = os.open(
            self.directory / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode=0o600
        )
        read, write = os.pipe()
        env = environment.for_driver(
            os.environ,
            allowlist=self.spec.env_allowlist,
            code_roots=self.spec.code_roots,
            tmp=tmp,
        )
        self.spawned_at = _now()
        program = "queries.runtime.probes.main" if self.spec.probe else "queries.runtime.main"
        process = subprocess.Popen(
            # -P: the working directory is no place to import from.
            [sys.executable, "-P", "-m", program, str(self.directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.directory,
            env={
                **env,
                environment.DIRECTORY: str(self.directory),
                environment.INSTALLATION: self.spec.installation,
                environment.HOST: self.spec.host,
                "HEADGATE_SHIM_FD": str(write),
                epoch_claims.CLAIM_FD: str(self.claim.fileno()),
            },
            pass_fds=(write, self.claim.fileno()),
            start_new_session=True,
            umask=self.spec.data_umask,
        )
        self.claim.close()  # from here on it says that a process of the driver lives
        os.close(log)
        os.close(write)
        os.set_blocking(read, False)
        self.python_pid = process.pid
        self.python_start = identities.start_time(process.pid)
        process.returncode = 0  # reaped by `_reap`, which keeps the whole wait status
        return read

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
        )
        replace_file(self.directory / IDENT, ident.dumps())

    # --- wait -------------------------------------------------------------------------

    def _wait(self, told: int, wake: int) -> None:
        """Sleep until the driver's Python has ended; nothing is looked at without an event."""
        python = os.pidfd_open(self.python_pid)
        poll = select.poll()
        for descriptor in (python, told, wake):
            poll.register(descriptor, select.POLLIN)
        jvm: int | None = None
        deadline: float | None = None  # after it, a Python that outlives its JVM is killed
        while True:
            left = None if deadline is None else max(0, deadline - time.monotonic()) * 1000
            ready = {descriptor for descriptor, _ in poll.poll(left)}
            if not ready and deadline is not None:
                identities.send(self.python_pid, self.python_start, signal.SIGKILL)
                deadline = None
            if wake in ready:  # a SIGTERM of our own: hand it on, and bound the leave
                os.read(wake, 64)
                identities.send(self.python_pid, self.python_start, signal.SIGTERM)
                deadline = deadline or self._leave_deadline()
            if told in ready:
                known = self.jvm_pid
                if not self._read(told):
                    poll.unregister(told)
                if self.jvm_pid != known and (jvm := self._watch_jvm()) is not None:
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

    def _read(self, told: int) -> bool:
        """Read what the driver reports about its JVM; False once the pipe is closed."""
        while True:
            try:
                data = os.read(told, 4096)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                word, _, value = line.decode().partition(" ")
                if word == "jvm":
                    self.jvm_pid = int(value)
                elif word == "jvm-exit":
                    self.jvm_said = exits.exit_name(int(value))

    def _watch_jvm(self) -> int | None:
        assert self.jvm_pid is not None
        self.jvm_start = identities.start_time(self.jvm_pid)
        with contextlib.suppress(OSError):  # a full disk: who knows Python finds its JVM
            self._write_ident()
        try:
            return os.pidfd_open(self.jvm_pid)
        except ProcessLookupError:
            return None

    # --- clean up ---------------------------------------------------------------------

    def _end_jvm(self) -> None:
        """Give the JVM, ours by now, its 5 s; then SIGKILL it."""
        if self.jvm_pid is None:  # Python died before it could name it
            mine = identities.descendants(os.getpid())
            self.jvm_pid = next((pid for pid in mine if identities.is_spark(pid)), None)
        if self.jvm_pid is None or self.jvm_pid not in identities.descendants(os.getpid()):
            return
        self._wait_for(self.jvm_pid, JVM_OUTLIVES_S)
        if self.jvm_pid not in self.exits:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.jvm_pid, signal.SIGKILL)  # our child: its pid cannot be used again
            self._wait_for(self.jvm_pid, REAP_S)

    def _end_descendants(self) -> None:
        """SIGKILL and reap whatever else the driver left: Python workers, users' children."""
        deadline = time.monotonic() + REAP_S
        while time.monotonic() < deadline:
            if not self._reap_all():
                return  # what loses its parent becomes our child: no child, no descendant
            left = identities.descendants(os.getpid())
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._wait_for(left[0], deadline - time.monotonic())

    def _wait_for(self, pid: int, timeout_s: float) -> None:
        """Wait for a child's end on its pidfd, then reap it."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(max(0, timeout_s) * 1000):
            self._reap(pid)
        os.close(descriptor)

    def _reap(self, pid: int) -> None:
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

    # --- report -----------------------------------------------------------------------

    def _write_report(self, report: ExitReport) -> None:
        """Write exit.json, the log left out where there is no room; give up after a while.

        Until then this shim's lock keeps the exit from being called unknown.
        """
        deadline = time.monotonic() + REPORT_WITHIN_S
        while True:
            try:
                replace_file(self.directory / EXIT, report.dumps())
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    with contextlib.suppress(OSError):
                        sys.stderr.write(f"exit.json cannot be written: {error}\n")
                    return
                report = replace(report, log_tail="")
            time.sleep(REPORT_AGAIN_S)  # no event tells of free space

    def _report(self) -> ExitReport:
        python = self._exit_of(self.python_pid)
        jvm = self.jvm_said or (self._exit_of(self.jvm_pid) if self.jvm_pid else UNKNOWN)
        # Twice as much is masked: what is cut off may begin in the middle of a secret.
        log = read_tail(self.directory / DRIVER_LOG, 2 * LOG_TAIL_BYTES)
        out_of_memory = jvm == _JVM_OOM_EXIT and "OutOfMemoryError" in log
        killed = "SIGKILL" in (python, jvm) and exits.cgroup_oom_kills() > self._oom_kills
        last_seq = read_file(self.directory / LAST_SEQ)
        return ExitReport(
            python=python,
            jvm=jvm,
            core=any(os.WCOREDUMP(status) for status in self.exits.values()),
            oom=out_of_memory or killed,
            at=_now(),
            last_seq=int(last_seq) if last_seq else None,
            log_tail=self._masked(log)[-LOG_TAIL_BYTES:],
        )

    def _masked(self, log: str) -> str:
        """Return a log without the secrets that the driver was given, as its files name them."""
        found = References(env_allowlist=self.spec.env_allowlist, secrets_dir=self.spec.secrets_dir)
        try:
            for name in (SPEC, ASSIGNMENT, TASK):
                if text := read_file(self.directory / name):
                    found.learn(json.loads(text))
            return found.mask(log)
        except (OSError, ValueError) as error:  # every driver gets an exit, with a log or without
            return f"The log is left out, for its secrets are not known: {type(error).__name__}"

    def _exit_of(self, pid: int) -> str:
        status = self.exits.get(pid)
        return UNKNOWN if status is None else exits.exit_name(os.waitstatus_to_exitcode(status))


def _now() -> str:
    return datetime.now(UTC).isoformat()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
