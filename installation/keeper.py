"""Keep the supervisor and the trial servers running until Ctrl-C: what `up` becomes.

`up` needs the tables and the migrations to prepare a start, some 100 MB, and then only waits. So
once the system runs, it execs this module: the process stays the same, with its lock and its
children, but without its imports.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from django.conf import settings

from controlplane.home import Home, StartProblem
from headgate_ground import identities
from headgate_ground.files import use_forgiving_output
from headgate_server import places
from installation.machine import claims, programs, trial_servers
from installation.machine.claims import LOOK_EVERY_S, LockWatch
from installation.machine.java import Java

TRIAL_LOOK_MS = 30_000  # a stopped trial server's absence is not an event to wait for
SUPERVISOR_AGAIN_S = (1.0, 30.0)  # delay before restarting a supervisor that exited: min, max
STOP_LIMIT_S = 60  # sum of the programs' limits, rarely needed
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Keeper:
    """The supervisor of one run, the trial servers started for it, and the data folder's lock."""

    def __init__(
        self, home: Home, environment: dict[str, str], report: Callable[[str], None]
    ) -> None:
        self.home = home
        self.environment = environment  # of the programs
        self.report = report
        self.claim: IO[str] | None = None
        self.java: Java | None = None
        self.trials: list[
            trial_servers.Broker | trial_servers.Gateway
        ] = []  # those that have been started here
        self._supervisor: identities.Process | None = None
        self._started: subprocess.Popen[bytes] | None = None  # None: by this process's past self
        self._code: int | None = None  # the supervisor's, as in subprocess; None while it runs
        self._lock_watch = _lock_watch(home, report)

    def start_supervisor(self) -> None:
        """Start supervisord with the configured programs; raise `OSError` if that fails."""
        self._started = programs.start(self.home, self.environment)
        self._code = None
        # Not reaped yet, it has a start time even if it has ended already.
        started = identities.start_time(self._started.pid) or 0
        self._supervisor = identities.Process("supervisord", self._started.pid, started)

    def start_trial(self, server: trial_servers.Broker | trial_servers.Gateway) -> None:
        """Start a trial server that has been set up; if that fails, continue without it."""
        assert self.java is not None
        try:
            started = server.start(self.java.home)
            server.keep_secrets(settings.SECRETS_DIR)
        except StartProblem as trouble:
            self.report(
                f"{server.label:<9} {trouble}\n  Queries that use the {server.name} wait until it "
                "is running."
            )
            return
        if server not in self.trials:
            self.trials.append(server)
        note = "" if started else " (already running)"
        self.report(f"{server.label:<9} {server.sentence()}{note}")

    def supervisor_end(self) -> str:
        """Return how the supervisor ended, such as "SIGKILL" or "code 1"; "" while it runs."""
        code = self._reaped(wait=False)
        if code is None:
            return ""
        return signal.Signals(-code).name if code < 0 else f"code {code}"

    def wait(self) -> NoReturn:
        """Wait for Ctrl-C or SIGTERM; restart the supervisor, or a trial server, that exits."""
        delay = SUPERVISOR_AGAIN_S[0]
        while True:
            began = time.monotonic()
            self._watch_supervisor()
            self.report(
                f"The process supervisor has ended ({self.supervisor_end()}); restarting it…"
            )
            claims.end(claims.own_processes(self.home), limit_s=STOP_LIMIT_S)
            short = time.monotonic() - began < SUPERVISOR_AGAIN_S[1]
            delay = min(2 * delay, SUPERVISOR_AGAIN_S[1]) if short else SUPERVISOR_AGAIN_S[0]
            time.sleep(delay)  # the cause may pass by itself, without an event
            self._start_supervisor_again()

    def stop(self) -> None:
        """Stop every program, regardless of its state, and print which processes keep running."""
        if self.claim is None:
            return  # another `up` holds the data folder
        with suppress(OSError):  # on a full disk `make stop` waits longer
            self.home.ending.touch()
        if self._supervisor is not None and not self.supervisor_end():
            claims.end([self._supervisor], limit_s=STOP_LIMIT_S)
        claims.end(claims.own_processes(self.home), limit_s=10)
        if self._supervisor is not None:
            self._reaped(wait=True)
            self.report(f"Stopped. {keep_streaming()}")
        self.claim.close()

    def exec(self) -> NoReturn:
        """Replace this process by one that only waits, and later stops the system."""
        assert self.claim is not None
        assert self.java is not None
        assert self._supervisor is not None
        state = {
            "claim": self.claim.fileno(),
            "java": [str(self.java.home), self.java.version, self.java.origin],
            "supervisor": [self._supervisor.pid, self._supervisor.start_time],
            "trials": [server.label for server in self.trials],
        }
        os.set_inheritable(self.claim.fileno(), True)
        os.chdir(places.DATA)
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # they wait for the new handlers
        sys.stdout.flush()
        sys.stderr.flush()
        command = (sys.executable, "-m", __name__, json.dumps(state))
        os.execve(sys.executable, command, self.environment)

    def adopt(self, state: dict[str, Any]) -> None:
        """Continue with what `exec` has handed over."""
        os.set_inheritable(state["claim"], False)
        self.claim = os.fdopen(state["claim"], "a+")
        home, version, origin = state["java"]
        self.java = Java(Path(home), version, origin)
        pid, started = state["supervisor"]
        self._supervisor = identities.Process("supervisord", pid, started)
        servers = trial_servers.with_the_demo(self.home)
        self.trials = [server for server in servers if server.label in state["trials"]]

    # --- inside -----------------------------------------------------------------------

    def _reaped(self, *, wait: bool) -> int | None:
        """Return the supervisor's exit code; None if it runs, unless this waits for its end."""
        assert self._supervisor is not None
        if self._started is not None:
            return self._started.wait() if wait else self._started.poll()
        if self._code is None:
            pid, status = os.waitpid(self._supervisor.pid, 0 if wait else os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def _start_supervisor_again(self) -> None:
        """Start supervisord; retry until it succeeds."""
        while True:
            try:
                return self.start_supervisor()
            except OSError as error:
                self.report(f"The supervisor cannot be started: {error}")
                time.sleep(SUPERVISOR_AGAIN_S[1])

    def _watch_supervisor(self) -> None:
        """Wait for the supervisor to exit; restart a trial server that exits."""
        assert self._supervisor is not None
        descriptor = os.pidfd_open(self._supervisor.pid)  # exists until it is reaped
        try:
            while not self._ended(descriptor):
                if self._lock_watch is not None:
                    self._lock_watch.look()
                for server in self.trials:
                    if server.has_crashed():
                        self.report(f"The {server.name} has ended; restarting it…")
                        self.start_trial(server)
            self._reaped(wait=True)
        finally:
            os.close(descriptor)

    def _ended(self, supervisor: int) -> bool:
        """Wait until the supervisor or a trial server exits, or until it is time to look again.

        Returns whether the supervisor has exited.
        """
        poll = select.poll()
        poll.register(supervisor, select.POLLIN)
        processes = [server.process() for server in self.trials]
        # One that is stopped may be restarted by its own command.
        limit_ms: int | None = TRIAL_LOOK_MS if None in processes else None
        if self._lock_watch is not None:
            limit_ms = int(LOOK_EVERY_S * 1000)
        with ExitStack() as stack:
            for process in filter(None, processes):
                handle = stack.enter_context(identities.handle(process.pid, process.start_time))
                if handle is None:
                    return False
                poll.register(handle, select.POLLIN)
            return any(ready == supervisor for ready, _ in poll.poll(limit_ms))


def _lock_watch(home: Home, report: Callable[[str], None]) -> LockWatch | None:
    """Return the watch on the database's write lock; None if the database is not SQLite."""
    database = settings.DATABASES["default"]
    if database["ENGINE"] != "django.db.backends.sqlite3":
        return None
    return LockWatch(Path(database["NAME"]), home.run, report)


def keep_streaming() -> str:
    """Return the sentence about drivers that is shown when everything else has ended."""
    from queries.launchers.configured import launcher  # not needed, nor paid for, until the end

    count = len(launcher().living())
    if not count:
        return "No driver is streaming."
    if count == 1:
        return "1 driver keeps streaming; `make stop` ends it"
    return f"{count} drivers keep streaming; `make stop` ends them"


def interrupt_on_stop() -> None:
    """Raise KeyboardInterrupt on Ctrl-C, SIGTERM and SIGHUP, also those that waited for this."""
    for number in _STOPS:
        signal.signal(number, _interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


def ignore_stops() -> None:
    """Ignore further signals while the system is being stopped."""
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def print_line(line: str) -> None:
    """Print a line immediately, with its commands spelled for this installation."""
    sys.stdout.write(places.with_local_commands(line) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> None:
    """Wait and stop with the state in the argument, as `Keeper.exec` has written it."""
    use_forgiving_output()
    keeper = Keeper(settings.HOME, dict(os.environ), print_line)
    for name in programs.SECRETS:  # read by the settings by now, and nothing for trial servers
        os.environ.pop(name, None)
    keeper.adopt(json.loads(arguments[0]))
    try:
        interrupt_on_stop()
        keeper.wait()
    except KeyboardInterrupt:
        print_line("\nStopping…")
    finally:
        ignore_stops()
        keeper.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
