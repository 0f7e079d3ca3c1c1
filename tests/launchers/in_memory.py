"""A launcher without processes: drivers and runs move when a test says so.

It keeps the `Launcher` protocol to the letter (idempotent launches, assignments that never
go back, ended runs that stay until acknowledged), so that supervision is tested against what
the real launcher promises. With `obliging=True` drivers do at once whatever they are asked.

When a run has ended, and when its checkpoint is free, is decided by the rule that drivers use
(`queries.domain.restart`), on facts that a test sets.
"""

import hashlib
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, NoReturn

from queries.domain.checkpoints.ownership import lock_file
from queries.domain.hosts import IsolationChoice, Mode, choose
from queries.domain.protocol import (
    Assignment,
    AssignmentEntry,
    DriverSpec,
    DriverStatus,
    ExitReport,
    FoundQuery,
    Hangs,
    Killer,
    RunError,
    RunState,
    RunStatus,
    ScriptReport,
    ScriptState,
    Want,
)
from queries.domain.restart import RunFacts, judge
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness, Sighting
from queries.launchers.base import LaunchRefused
from tests.launchers.in_memory_probes import InMemoryProbes
from tests.launchers.in_memory_scripts import InMemoryScripts

ENDED = frozenset({RunState.ENDED, RunState.FAILED, RunState.REFUSED})
BOOT_ID = "in-memory"
START_TIMED_OUT = RunError(
    error_class="",
    type_name="StartTimedOut",
    root_cause="The query was not started within 180 s; its code is at users_code.py, line 12.",
    message="The query was not started within 180 s; its code is at users_code.py, line 12.",
)


class Crash(BaseException):
    """The worker died in the middle of a call (a failure switch asked for it)."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the protocol, as it came."""

    verb: str  # launch | seal | assign | terminate | kill | prune
    application: str
    epoch: int | None = None
    generation: int | None = None


@dataclass(slots=True)
class _Driver:
    spec: DriverSpec
    assignment: Assignment
    pools_xml: str
    process: dict[str, str | int] = field(default_factory=dict)
    ready: bool = False
    cpu_s: float = 0.0
    hanging: bool = False  # applies no assignment
    applied_generation: int = 0
    runs: dict[int, RunStatus] = field(default_factory=dict)
    facts: dict[int, RunFacts] = field(default_factory=dict)  # what is left of each run
    places: dict[int, str] = field(default_factory=dict)  # the checkpoint of each run
    error: RunError | None = None
    script: ScriptReport | None = None
    found: dict[int, FoundQuery] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    exit: ExitReport | None = None
    gone: bool = False
    orphaned: bool = False

    @property
    def alive(self) -> bool:
        return self.exit is None and not self.gone and not self.orphaned

    @property
    def jvm_lives(self) -> bool:
        return self.alive or self.orphaned


class InMemoryLauncher(InMemoryProbes, InMemoryScripts):
    """The public double of a launcher, with failure switches.

    Switches: `refusal` (the next launches raise `LaunchRefused` with it), `crash_before` and
    `crash_after` (verbs that raise `Crash` before or after they act, once each),
    `elsewhere` (every driver belongs to another host), `files_lost` (the folder of the drivers
    is gone while they live), `code_version` (changes what `freeze_code` returns, as an edited
    file would), `kills` (query -> when it ends its driver's process: "start", or the number of
    its batch: 0, 1…), `kill_exit` (how the process ends then: Python, JVM), `silent` (queries
    whose runs start and never commit, not even for an obliging driver).
    """

    def __init__(
        self,
        *,
        obliging: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__()
        self.obliging = obliging
        self.clock = clock
        self.calls: list[Call] = []
        self.refusal = ""
        self.crash_before: set[str] = set()
        self.crash_after: set[str] = set()
        self.elsewhere = False
        self.files_lost = False
        self.code_version = "1"
        self.kills: dict[str, str | int] = {}
        self.kill_exit = ("1", "SIGKILL")  # as os._exit(1) in a callback of Python
        self.silent: set[str] = set()
        self.spools: dict[int, list[tuple[int, bytes]]] = {}  # epoch -> (seq, JSON)
        self.shown: list[tuple[str, int]] = []
        self._ends: deque[int] = deque()
        self._frozen: set[str] = set()
        self._drivers: dict[str, dict[int, _Driver]] = {}
        self._sealed: dict[tuple[str, int], ExitReport] = {}  # never started, and never will be
        self._newest: dict[str, int] = {}  # application -> epoch
        self._logs: dict[tuple[str, int], str] = {}
        self._pids = iter(range(10_000, 10_000_000))
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Let tests go on from a deep copy of a stage that was played once."""
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "_lock": threading.RLock()}

    # --- the protocol -----------------------------------------------------------------

    def isolation(self) -> IsolationChoice:
        """Return that there are none: nothing here is a process."""
        return choose(Mode.NEITHER)

    def files_location(self, application: str, epoch: int, *, probe: bool = False) -> str:
        """Return a name for what a driver would keep."""
        return f"/in-memory/{application}/{'probes/' if probe else ''}{epoch}"

    def highest_epoch(self, application: str) -> int:
        """Return the highest epoch that was launched."""
        probes = (epoch for name, epoch in self.probes if name == application)
        return max(*self._drivers.get(application, {}), *probes, 0, 0)

    def launch(self, spec: DriverSpec, assignment: Assignment, pools_xml: str) -> None:
        """Start a driver that is alive at once, and not ready; again: change nothing."""
        with self._call(Call("launch", spec.application, spec.epoch, assignment.generation)):
            if self.refusal:
                raise LaunchRefused(self.refusal)
            drivers = self._drivers.setdefault(spec.application, {})
            if spec.epoch in drivers or (spec.application, spec.epoch) in self._sealed:
                return
            driver = drivers[spec.epoch] = _Driver(spec, assignment, pools_xml)
            living = (epoch for epoch, one in drivers.items() if one.jvm_lives)
            if spec.epoch < max(self._newest.get(spec.application, 0), *living):
                driver.exit = self._exit("FENCED", "FENCED")
                return
            if not spec.standby:
                self._newest[spec.application] = spec.epoch
            driver.process = self._new_process()
            if self.obliging:
                self.ready(spec.application, epoch=spec.epoch)

    def point(self, name: str) -> None:
        """A worker comes by this point of its step: nothing happens here."""

    def seal(self, application: str, epoch: int) -> bool:
        """Let no launch of the epoch start anything, unless one has."""
        with self._call(Call("seal", application, epoch)):
            driver = self._drivers.get(application, {}).get(epoch)
            if driver is not None:
                return driver.exit is not None
            report = self._exit("UNKNOWN", "UNKNOWN")
            self._sealed.setdefault((application, epoch), report)
            return True

    def assign(self, application: str, assignment: Assignment) -> None:
        """Replace the assignment unless a higher generation is there; a ready driver applies it."""
        call = Call("assign", application, assignment.epoch, assignment.generation)
        with self._call(call):
            driver = self._drivers.get(application, {}).get(assignment.epoch)
            if (
                driver is None
                or self.files_lost
                or assignment.generation < driver.assignment.generation
            ):
                return
            newest = self._newest.get(application, 0)
            self._newest[application] = max(newest, assignment.epoch)
            self.point("named")  # in current.json, and its assignment is still the old one
            driver.assignment = assignment
            self._apply(driver)

    def sight(
        self,
        application: str,
        epoch: int,
        *,
        probe: bool = False,
        locations: tuple[str, ...] = (),
        identity: Mapping[str, str | int] | None = None,
    ) -> Sighting:
        """Return what a look at the host would show."""
        if probe:
            return self.sight_probe(application, epoch)
        with self._lock:
            driver = self._drivers.get(application, {}).get(epoch)
            if self.elsewhere:
                return Sighting(Liveness.ELSEWHERE)
            if driver is None:
                sealed = self._sealed.get((application, epoch))
                return Sighting(Liveness.EXITED if sealed else Liveness.ABSENT, exit=sealed)
            if self.files_lost:
                return _without_files(driver, identity or {})
            return Sighting(
                liveness=_liveness(driver),
                process=driver.process,
                status=_status(driver, self._now()),
                exit=driver.exit,
                assignment_generation=driver.assignment.generation,
                cpu_s=None if driver.ready else driver.cpu_s,
            )

    def living(self) -> list[tuple[str, int]]:
        """Return (application, epoch) of every driver whose JVM lives."""
        return [
            (application, epoch)
            for application, drivers in sorted(self._drivers.items())
            for epoch, driver in sorted(drivers.items())
            if driver.jvm_lives
        ]

    def show_heartbeat(self, drivers: Iterable[tuple[str, int]]) -> None:
        """Keep which drivers were shown the heartbeat last."""
        self.shown = list(drivers)

    @contextmanager
    def exits(self) -> Iterator[Callable[[float], int | None]]:
        """Tell who has died and was not told yet: nothing moves here while somebody waits."""
        yield lambda limit_s: self._ends.popleft() if self._ends else None

    def terminate(self, application: str, epoch: int) -> None:
        """Record the SIGTERM; an obliging driver leaves at once."""
        with self._call(Call("terminate", application, epoch)):
            driver = self._drivers.get(application, {}).get(epoch)
            if driver is not None and driver.alive and self.obliging:
                self.leave(application, epoch=epoch)

    def kill(self, application: str, epoch: int, reason: Reason) -> None:
        """SIGKILL: a living driver exits with it; a killed orphan leaves an unknown exit."""
        with self._call(Call("kill", application, epoch)):
            driver = self._drivers.get(application, {}).get(epoch)
            if driver is None:
                return
            if driver.orphaned:
                driver.orphaned, driver.gone = False, True
            elif driver.alive:
                self.die(application, epoch=epoch, killed=Killer.WORKER, kill_reason=reason)

    def freeze_code(self, roots: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """Return names of copies made from the roots' names and `code_version`."""
        if not roots:
            return (), ""
        digest = hashlib.sha256(f"{roots} {self.code_version}".encode()).hexdigest()
        self._frozen.add(digest)
        return self.frozen_code(len(roots), digest) or (), digest

    def frozen_code(self, count: int, sha256: str) -> tuple[str, ...] | None:
        """Return names of the copies made under this SHA-256; None after `lose_code`."""
        if count and sha256 not in self._frozen:
            return None
        return tuple(f"/in-memory/code/{sha256}/{index}" for index in range(count))

    def lose_code(self) -> None:
        """Remove every copy, as somebody who makes room does."""
        self._frozen.clear()

    def log_tail(
        self, application: str, epoch: int, *, probe: bool = False, lines: int = 200
    ) -> str:
        """Return the end of what `log` was given."""
        return "\n".join(self._logs.get((application, epoch), "").splitlines()[-lines:])

    def log_size(self, application: str, epoch: int) -> int:
        """Return how long what `log` was given is."""
        return len(self._logs.get((application, epoch), "").encode())

    def log_part(self, application: str, epoch: int, *, start: int, size: int) -> bytes:
        """Return a part of what `log` was given."""
        return self._logs.get((application, epoch), "").encode()[start : start + size]

    def spooled(self, epoch: int, first: int) -> list[tuple[int, bytes]]:
        """Return what `spools` holds, from number `first` on."""
        return [event for event in self.spools.get(epoch, []) if event[0] >= first]

    def prune(self, application: str, *, keep: int) -> None:
        """Forget ended drivers beyond the newest `keep`."""
        with self._call(Call("prune", application)):
            drivers = self._drivers.get(application, {})
            for epoch in sorted(drivers, reverse=True)[max(1, keep) :]:
                if not drivers[epoch].jvm_lives:
                    del drivers[epoch]
            self.prune_probes(application, keep)

    def start_tool(self, *_: object, **__: object) -> NoReturn:
        """Refuse: nothing here is a process."""
        raise LaunchRefused("no program is started here.")

    def class_archives(self) -> None:
        """Return that there are none."""

    # --- what a test says happens -----------------------------------------------------

    def ready(self, application: str, *, epoch: int | None = None) -> None:
        """The session is up; the assignment is applied: its runs are STARTING."""
        with self._lock:
            driver = self._driver(application, epoch)
            driver.ready = True
            if driver.spec.script is not None:
                driver.script = ScriptReport(ScriptState.RUNNING)
            self._apply(driver)

    def works(self, application: str, cpu_s: float, *, epoch: int | None = None) -> None:
        """The driver's processes use processor time: its start advances."""
        with self._lock:
            self._driver(application, epoch).cpu_s += cpu_s

    def session_fails(
        self,
        application: str,
        error: RunError,
        *,
        exit_code: str = "70",
        epoch: int | None = None,
    ) -> None:
        """The session cannot be built: the driver says why and leaves."""
        with self._lock:
            driver = self._driver(application, epoch)
            driver.error = error
            driver.exit = self._exit(exit_code, "0")

    def hang(self, application: str, *, hanging: bool = True) -> None:
        """The driver applies no assignment any more (or does again, at once)."""
        with self._lock:
            driver = self._driver(application, None)
            driver.hanging = hanging
            self._apply(driver)

    def commit(self, run: int, *, batch: int | None = None) -> None:
        """A batch commits: the run is RUNNING."""
        with self._lock:
            driver, status = self._run(run)
            if not driver.alive:
                return
            previous = -1 if status.last_batch is None else status.last_batch
            last = previous + 1 if batch is None else batch
            if self.kills.get(_name(driver, run)) == last:
                driver.exit = self._exit(*self.kill_exit)
                return
            driver.runs[run] = replace(
                status,
                state=RunState.RUNNING if status.state is RunState.STARTING else status.state,
                first_commit_at=status.first_commit_at or self._now(),
                last_batch=last,
                last_commit_at=self._now(),
            )

    def sees_topics(self, run: int, ids: dict[str, str]) -> None:
        """The driver has asked the brokers for the ids of the run's topics."""
        self._change(run, topic_ids=ids)

    def warns(self, run: int, *sentences: str) -> None:
        """The driver says what the run does otherwise than its code asks."""
        self._change(run, warnings=sentences)

    def idle(self, run: int) -> None:
        """The run finds nothing to read: it is RUNNING."""
        self._change(run, state=RunState.RUNNING, first_idle_at=self._now())

    def end_run(self, run: int) -> None:
        """Nothing of the run is left: it stopped as asked, finished by itself, or hangs no more."""
        self._left(run, building=False, thread_alive=False, callbacks_open=0)

    def hang_stop(self, run: int) -> None:
        """The run's stop times out: its thread goes on."""
        self._left(run, overdue=True)

    def hang_start(self, run: int) -> None:
        """The run is not started in time: the thread that builds it goes on."""
        with self._lock:
            self._change(run, started_at=None, error=START_TIMED_OUT)
            self._left(run, building=True, thread_alive=False, overdue=True)

    def fail_run(
        self,
        run: int,
        error: RunError,
        *,
        batch: int | None = None,
        offsets: dict[str, Any] | None = None,
        left: bool = False,
    ) -> None:
        """The run fails with the error, at that batch; `left`: its thread does not end."""
        with self._lock:
            if self._run(run)[1].asked_for is Want.RUN:
                self._change(
                    run,
                    failed_batch=batch,
                    failed_offsets=offsets or {},
                    error=replace(error, unknown_batch=batch is None),
                )
            if left:
                self._left(run, failed=True, overdue=True)
                return
            self._left(run, building=False, thread_alive=False, callbacks_open=0, failed=True)

    def refuse(
        self,
        run: int,
        why: str,
        *,
        holder_pid: int | None = None,
        owner_epoch: int | None = None,
    ) -> None:
        """The checkpoint refuses the run: `why` is held, fenced or foreign."""
        message = f"the checkpoint is {why}" + (f" by pid {holder_pid}" if holder_pid else "")
        error = RunError(
            *("", "", message, message),
            refused=why,
            holder_pid=holder_pid,
            owner_epoch=owner_epoch,
        )
        with self._lock:
            self._change(run, error=error)
            self._left(run, building=False, thread_alive=False, callbacks_open=0, refused=True)

    def not_started(self, run: int) -> None:
        """Spark has not started the run's query yet: it is still being built."""
        self._change(run, started_at=None)

    def leave(self, application: str, *, epoch: int | None = None) -> None:
        """The driver ends its runs and leaves with 0."""
        with self._lock:
            driver = self._driver(application, epoch)
            for run, status in driver.runs.items():
                if status.state not in ENDED and status.hangs is Hangs.NOTHING:
                    driver.runs[run] = replace(
                        status, state=RunState.ENDED, asked_for=Want.STOP, ended_at=self._now()
                    )
            driver.exit = self._exit("0", "0")

    def die(
        self,
        application: str,
        *,
        python: str = "SIGKILL",
        jvm: str = "SIGKILL",
        oom: bool = False,
        killed: Killer = Killer.NOBODY,
        kill_reason: str = "",
        epoch: int | None = None,
    ) -> None:
        """Both processes end; the shim reports how. The runs' last states stay as they were."""
        with self._lock:
            driver = self._driver(application, epoch)
            report = self._exit(python, jvm, oom=oom)
            driver.exit = replace(report, killed=killed, kill_reason=kill_reason)
            self._ends.append(driver.spec.driver)

    def vanish(self, application: str, *, epoch: int | None = None) -> None:
        """Shim, Python and JVM are gone, and nothing was reported."""
        with self._lock:
            driver = self._driver(application, epoch)
            driver.gone, driver.orphaned = True, False

    def orphan(self, application: str, *, epoch: int | None = None) -> None:
        """Shim and Python are gone, the JVM lives on and holds its locks."""
        with self._lock:
            self._driver(application, epoch).orphaned = True

    def log(self, application: str, epoch: int, text: str) -> None:
        """Set what the driver's log holds."""
        self._logs[application, epoch] = text

    # --- for assertions ---------------------------------------------------------------

    def holders(self, location: str) -> list[tuple[str, int, int]]:
        """Return application, epoch and run of what holds a checkpoint: one at most."""
        wanted = _checkpoint(location)
        with self._lock:
            return [
                (driver.spec.application, driver.spec.epoch, run)
                for driver in self._all()
                if driver.jvm_lives
                for run, place in driver.places.items()
                if _checkpoint(place) == wanted and not judge(driver.facts[run]).release
            ]

    def epochs(self, application: str) -> tuple[int, ...]:
        """Return the epochs that were launched, in order."""
        return tuple(sorted(self._drivers.get(application, {})))

    def assignment(self, application: str, *, epoch: int | None = None) -> Assignment:
        """Return the assignment on disk of the newest (or the named) driver."""
        return self._driver(application, epoch).assignment

    def spec(self, application: str, *, epoch: int | None = None) -> DriverSpec:
        """Return what the newest (or the named) driver was launched with."""
        return self._driver(application, epoch).spec

    def pools(self, application: str) -> str:
        """Return the newest driver's fairscheduler.xml."""
        return self._driver(application, None).pools_xml

    def has(self, run: int) -> bool:
        """Return whether a living driver has taken the run."""
        return any(driver.alive and run in driver.runs for driver in self._all())

    # --- inside -----------------------------------------------------------------------

    @contextmanager
    def _call(self, call: Call) -> Iterator[None]:
        with self._lock:
            self.calls.append(call)
            if call.verb in self.crash_before:
                self.crash_before.discard(call.verb)
                raise Crash(f"before {call.verb}")
            yield
            if call.verb in self.crash_after:
                self.crash_after.discard(call.verb)
                raise Crash(f"after {call.verb}")

    def _apply(self, driver: _Driver) -> None:
        if not driver.ready or driver.hanging or not driver.alive:
            return
        if driver.spec.standby and self._newest.get(driver.spec.application) != driver.spec.epoch:
            return
        wanted = {entry.run: entry for entry in driver.assignment.queries}
        for run in list(driver.runs.keys() - wanted.keys()):
            if run < 0:  # a script has started it: its rows are on their way
                continue
            self._ask(driver, run, Want.STOP)
            if driver.runs[run].state in ENDED and judge(driver.facts[run]).release:
                del driver.runs[run], driver.facts[run], driver.places[run]
        begun: list[AssignmentEntry] = []
        for entry in wanted.values():
            if entry.run not in driver.runs and entry.found:
                self._adopt(driver, entry)
            elif entry.run not in driver.runs:
                self._begin(driver, entry)
                if driver.runs[entry.run].state is RunState.STARTING:
                    begun.append(entry)
            if entry.want is not Want.RUN:
                self._ask(driver, entry.run, entry.want)
        driver.applied_generation = driver.assignment.generation
        for entry in begun:
            if self.kills.get(entry.name) == "start":
                driver.exit = self._exit(*self.kill_exit)
            elif self.obliging and entry.want is Want.RUN and entry.name not in self.silent:
                self.commit(entry.run)
        if not driver.alive:
            return
        idle = all(status.state in ENDED for status in driver.runs.values())
        if self.obliging and driver.assignment.end and idle:
            driver.exit = self._exit("0", "0")

    def _begin(self, driver: _Driver, entry: AssignmentEntry) -> None:
        """Start a run, unless it was to stop before, or its checkpoint is held."""
        held = self.holders(entry.checkpoint)
        never = entry.want is not Want.RUN
        driver.runs[entry.run] = replace(self._starting(entry), asked_for=entry.want)
        driver.places[entry.run] = entry.checkpoint
        driver.facts[entry.run] = RunFacts(thread_alive=not never and not held)
        if never:
            self._left(entry.run, asked=entry.want)
        elif held:
            own = held[0][:2] == (driver.spec.application, driver.spec.epoch)
            holder = self._drivers[held[0][0]][held[0][1]]
            pid = int(holder.process["jvm_pid"])
            self.refuse(entry.run, "own" if own else "held", holder_pid=pid)
        elif entry.refused:
            told = f"definition: {entry.refused}"
            self.not_started(entry.run)
            self.fail_run(
                entry.run, RunError("HEADGATE_CONFIGURATION", "NotAllowedToStart", told, told)
            )

    def _starting(self, entry: AssignmentEntry) -> RunStatus:
        return RunStatus(
            run=entry.run,
            query=entry.query,
            state=RunState.STARTING,
            spark_run_id=str(uuid.uuid4()),
            spark_query_id=str(uuid.uuid5(uuid.NAMESPACE_URL, entry.checkpoint)),
            started_at=self._now(),
        )

    def _ask(self, driver: _Driver, run: int, want: Want) -> None:
        status = driver.runs[run]
        if status.state in ENDED:
            return
        driver.runs[run] = replace(status, state=RunState.STOPPING, asked_for=want)
        self._left(run, asked=want)
        if self.obliging and driver.runs[run].hangs is Hangs.NOTHING:
            self.end_run(run)

    def _left(self, run: int, **facts: Any) -> None:
        """Change what is left of a run, and report what follows from it, as a driver does."""
        with self._lock:
            driver, status = self._run(run)
            driver.facts[run] = replace(driver.facts[run], **facts)
            verdict = judge(driver.facts[run])
            changes: dict[str, Any] = {"hangs": verdict.hangs}
            if status.state not in ENDED and verdict.outcome is not None:
                changes |= {"state": verdict.outcome, "ended_at": self._now()}
            elif status.state not in ENDED and verdict.hangs is not Hangs.NOTHING:
                changes["state"] = RunState.STOPPING
            driver.runs[run] = replace(status, **changes)

    def _change(self, run: int, **changes: Any) -> None:
        with self._lock:
            driver, status = self._run(run)
            driver.runs[run] = replace(status, **changes)

    def _run(self, run: int) -> tuple[_Driver, RunStatus]:
        for driver in self._all():
            if run in driver.runs:
                return driver, driver.runs[run]
        raise LookupError(f"no driver has taken run {run} yet: is it ready?")

    def _driver(self, application: str, epoch: int | None) -> _Driver:
        drivers = self._drivers.get(application)
        if not drivers:
            raise LookupError(f"no driver of {application} was launched")
        newest = self._newest.get(application, max(drivers))  # a standby is asked for by its epoch
        return drivers[newest if epoch is None else epoch]

    def _all(self) -> list[_Driver]:
        return [driver for drivers in self._drivers.values() for driver in drivers.values()]

    def _now(self) -> str:
        return self.clock().isoformat()

    def _new_process(self) -> dict[str, str | int]:
        pid = next(self._pids)
        return {"boot_id": BOOT_ID, "pid": pid, "start_time": pid, "jvm_pid": next(self._pids)}

    def _exit(self, python: str, jvm: str, *, oom: bool = False) -> ExitReport:
        return ExitReport(python, jvm, core=False, oom=oom, at=self._now(), last_seq=0)


@cache
def _checkpoint(location: str) -> object:
    """Return what two locations have in common if they are one checkpoint: its lock file."""
    return lock_file(location) or location


def _name(driver: _Driver, run: int) -> str:
    named = (entry.name for entry in driver.assignment.queries if entry.run == run)
    return next(named, "")


def _liveness(driver: _Driver) -> Liveness:
    if driver.exit is not None:
        return Liveness.EXITED
    if driver.orphaned:
        return Liveness.ORPHANED
    return Liveness.GONE if driver.gone else Liveness.ALIVE


def _without_files(driver: _Driver, identity: Mapping[str, str | int]) -> Sighting:
    """Return what processes alone show: who lives, and that a driver known earlier is gone."""
    if driver.jvm_lives:
        return Sighting(_liveness(driver), driver.process, without_files=True)
    return Sighting(Liveness.GONE if identity else Liveness.ABSENT, identity)


def _status(driver: _Driver, now: str) -> DriverStatus | None:
    if not driver.ready and driver.error is None:
        return None
    return DriverStatus(
        epoch=driver.spec.epoch,
        applied_generation=driver.applied_generation,
        at=now,
        ready=driver.ready,
        spark_version="4.3.0",
        java_version="17",
        application_id=f"local-{driver.spec.epoch}",
        jvm_pid=int(driver.process["jvm_pid"]),
        runs=tuple(driver.runs.values()),
        error=driver.error,
        script=driver.script,
        found=tuple(driver.found.values()),
    )
