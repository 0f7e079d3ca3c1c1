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
from queries.domain.walls import Mode
from queries.driver_folder import DriverFolder, read_current
from queries.files import open_plain, read_file, read_tail, replace_file, take_lock
from queries.launchers.process import environment, epoch_claims, exit_calls, exits, identities
from queries.launchers.process.walls import mounts
from queries.launchers.process.walls.bubblewrap import NotStarted, Walls
from queries.launchers.process.walls.preparing import take_back
from queries.secret_references import References

JVM_OUTLIVES_S = 5  # a JVM may outlive its Python by this long (trap 23)
PYTHON_OUTLIVES_S = 10  # beyond the driver's own stop_timeout_s, after its JVM's death
REAP_S = 20  # for SIGKILLed processes to go
LOG_TAIL_BYTES = 16_384
REPORT_WITHIN_S = 60  # for a full disk, or a folder that is away, to let exit.json be written
REPORT_AGAIN_S = 1
UNKNOWN = "UNKNOWN"
FENCED = "FENCED"  # never started: current.json names another epoch, or a later one lives
_LONGEST_NUMBER = 18  # digits of last_seq: a larger one is none, and no database takes it
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_JVM_OOM_EXIT = "3"  # of -XX:+ExitOnOutOfMemoryError


def main(arguments: list[str]) -> int:
    """Take the directory's lock, leave the launcher's process tree, supervise one driver."""
    directory = Path(arguments[0])
    folder = DriverFolder.of(directory)
    lock = take_lock(folder.control / SHIM_LOCK)
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
    spec = DriverSpec.loads((folder.control / SPEC).read_text())
    if (folder.control / EXIT).exists() or (folder.control / IDENT).exists():
        return 0  # a shim before us has started the driver, or seen it end
    current = read_current(directory.parent)
    fenced = current is None or Current.loads(current).epoch != spec.epoch
    # The folder may have gone and come back without the later epoch's current.json.
    fenced = fenced or max(epoch_claims.taken(directory.parent)) > spec.epoch
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
    claim: socket.socket  # on the epoch; the driver's processes hold it once there are any
    spawned_at: str = ""
    python_pid: int = 0
    python_start: int | None = None
    jvm_pid: int | None = None
    jvm_start: int | None = None
    exits: dict[int, int] = field(default_factory=dict)  # pid -> wait status
    jvm_said: str = ""  # the JVM's exit, as the driver's Python saw it
    walls: Walls | None = None  # around the driver, where its spec wants bubblewrap's
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
        self._masked(read_tail(self.folder.own / DRIVER_LOG, LOG_TAIL_BYTES))
        self._end_jvm()
        self._end_descendants()
        self._read(told)
        report = self._report()
        self._write_report(report)
        fail_points.reach(fail_points.AFTER_EXIT)
        if not exit_calls.call(self._drivers(), self.spec.driver):
            exits.notify(self.spec, report)
        take_back(self.folder)
        # Last: it may be gigabytes, and everybody waits for the exit.
        shutil.rmtree(self.folder.own / TMP, ignore_errors=True)

    def _drivers(self) -> Path:
        """Return the folder of all drivers."""
        return self.folder.root.parents[2 if self.spec.probe else 1]

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
        tmp = self.folder.own / TMP
        tmp.mkdir(mode=0o700, exist_ok=True)
        log = open_plain(self.folder.own / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        told, write = os.pipe()
        env = environment.for_driver(
            os.environ,
            allowlist=self.spec.env_allowlist,
            code_roots=self.spec.code_roots,
            tmp=tmp,
        )
        env |= {
            environment.DIRECTORY: str(self.folder.root),
            environment.INSTALLATION: self.spec.installation,
            environment.HOST: self.spec.host,
            "HEADGATE_SHIM_FD": str(write),
            epoch_claims.CLAIM_FD: str(self.claim.fileno()),
        }
        self.spawned_at = _now()
        program = "queries.runtime.probes.main" if self.spec.probe else "queries.runtime.main"
        # -P: the working directory is no place to import from.
        argv = [sys.executable, "-P", "-m", program, str(self.folder.root)]
        begin = self._begin_within if self.spec.walls == Mode.BUBBLEWRAP else self._begin
        self.python_pid = begin(argv, env, log, write)
        self.python_start = identities.start_time(self.python_pid)
        self.claim.close()  # from here on it says that a process of the driver lives
        os.close(log)
        os.close(write)
        os.set_blocking(told, False)
        return told

    def _begin(self, argv: list[str], env: dict[str, str], log: int, write: int) -> int:
        """Start the driver as a child of this process; return its pid."""
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.folder.own,
            env=env,
            pass_fds=(write, self.claim.fileno()),
            start_new_session=True,
            umask=self.spec.data_umask,
        )
        process.returncode = 0  # reaped by `_reap`, which keeps the whole wait status
        return process.pid

    def _begin_within(self, argv: list[str], env: dict[str, str], log: int, write: int) -> int:
        """Start the driver within bubblewrap's walls; return its pid as it is out here.

        Where they cannot be raised, it is bubblewrap's own, and the driver's log has its reason.
        """
        walls = Walls.raise_around(
            argv,
            env={**env, "HOME": str(self.folder.own / TMP)},
            mounts=mounts.options(self.spec, self.folder, env),
            log=log,
            pass_fds=(write, self.claim.fileno()),
            close=(write, self.claim.fileno()),
            umask=self.spec.data_umask,
        )
        walls.process.returncode = 0
        try:
            python = walls.begin()
        except NotStarted:
            return walls.process.pid
        self.walls = walls
        return python

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
            init_pid=self.walls.init_pid if self.walls else None,
            init_start_time=self.walls.init_start if self.walls else None,
        )
        replace_file(self.folder.control / IDENT, ident.dumps())

    # --- wait -------------------------------------------------------------------------

    def _wait(self, told: int, wake: int) -> None:
        """Sleep until the driver's Python has ended; nothing is looked at without an event."""
        try:
            python = os.pidfd_open(self.python_pid)
        except ProcessLookupError:  # within walls somebody else has reaped it
            self._reap(self.python_pid)
            return
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
                word, _, value = line.decode(errors="replace").partition(" ")
                self._hear(word, value)

    def _hear(self, word: str, value: str) -> None:
        """Take one line; users' code can write lines too, so a pid must be one of ours."""
        try:
            number = int(value)
        except ValueError:
            return
        if word == "jvm":
            self.jvm_pid = self._mine(number) or self.jvm_pid
        elif word == "jvm-exit":
            self.jvm_said = exits.exit_name(number)

    def _mine(self, number: int) -> int | None:
        """Return the pid out here of a process that the driver names, None for a stranger."""
        if self.walls is not None:
            return self.walls.outer(number)
        return number if number in identities.descendants(os.getpid()) else None

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
            self._note_jvm()
        if self.jvm_pid is None or self.jvm_pid not in identities.descendants(os.getpid()):
            return
        self._wait_for(self.jvm_pid, JVM_OUTLIVES_S)
        if self.jvm_pid not in self.exits:
            identities.send(self.jvm_pid, self.jvm_start, signal.SIGKILL)
            self._wait_for(self.jvm_pid, REAP_S)

    def _note_jvm(self) -> None:
        if self.jvm_pid is not None:
            self.jvm_start = identities.start_time(self.jvm_pid)
            if self.walls is not None:
                self.walls.know(self.jvm_pid)

    def _end_descendants(self) -> None:
        """SIGKILL and reap whatever else the driver left: Python workers, users' children."""
        if self.walls is not None:  # with the first process in there the kernel ends all others
            identities.kill_and_wait(self.walls.init_pid, self.walls.init_start, REAP_S)
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
            self._reap(pid)
            return
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(max(0, timeout_s) * 1000):
            self._reap(pid)
        os.close(descriptor)

    def _reap(self, pid: int) -> None:
        if self.walls is not None and (told := self.walls.status_of(pid)) is not None:
            self.exits[pid] = told
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

    # --- report -----------------------------------------------------------------------

    def _write_report(self, report: ExitReport) -> None:
        """Write exit.json, the log left out where there is no room; give up after a while.

        Until then this shim's lock keeps the exit from being called unknown.
        """
        deadline = time.monotonic() + REPORT_WITHIN_S
        while True:
            try:
                replace_file(self.folder.control / EXIT, report.dumps())
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
        log = read_tail(self.folder.own / DRIVER_LOG, 2 * LOG_TAIL_BYTES)
        out_of_memory = jvm == _JVM_OOM_EXIT and "OutOfMemoryError" in log
        killed = "SIGKILL" in (python, jvm) and exits.cgroup_oom_kills() > self._oom_kills
        return ExitReport(
            python=python,
            jvm=jvm,
            core=any(os.WCOREDUMP(status) for status in self._statuses()),
            oom=out_of_memory or killed,
            at=_now(),
            last_seq=self._last_seq(),
            log_tail=self._masked(log)[-LOG_TAIL_BYTES:],
        )

    def _statuses(self) -> list[int]:
        """Return how each process has ended, as far as it was seen."""
        within = self.walls.ended.values() if self.walls else ()
        return [*self.exits.values(), *within]

    def _last_seq(self) -> int | None:
        """Return the last number that the driver says it has sent; None where it says none."""
        try:
            said = (read_file(self.folder.own / LAST_SEQ, most=_LONGEST_NUMBER + 2) or "").strip()
        except (OSError, ValueError):  # a link, a folder, no text: the driver's code wrote it
            return None
        plain = said.isascii() and said.isdigit() and len(said) <= _LONGEST_NUMBER
        return int(said) if plain else None

    def _masked(self, log: str) -> str:
        """Return a log without the secrets that the driver was given, as its files name them."""
        found = References(env_allowlist=self.spec.env_allowlist, secrets_dir=self.spec.secrets_dir)
        try:
            for name in (SPEC, ASSIGNMENT, TASK):
                if text := read_file(self.folder.control / name):
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
