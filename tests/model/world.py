"""A world in which drivers live: JVMs, threads that write, locks; a launcher seen from outside.

The in-memory launcher answers what a driver says. This one also knows what is *so*: which thread
of which JVM may still write to which checkpoint, and who holds its lock. Supervision sees the
first only; the invariants are judged on the second.

Some drivers are pods. The real launcher creates and observes them, on a cluster in memory
(`pods.py`); their checkpoints have owner objects in place of locks (`owners.py`).
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from queries.domain import restart
from queries.domain.checkpoints.ownership import local_path
from queries.domain.protocol import (
    ASSIGNMENT,
    EXIT_CHECKPOINT_LOST,
    Assignment,
    AssignmentEntry,
    DriverSpec,
    DriverStatus,
    Hangs,
    RunError,
    RunState,
    RunStatus,
    Want,
)
from queries.domain.restart import RunFacts
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness, Sighting
from queries.driver_folder import DriverFolder
from queries.launchers.base import LaunchRefused
from queries.launchers.pods.layout import ASKED
from tests.launchers.in_memory import ENDED, Call, Crash, InMemoryLauncher, _Driver, _status
from tests.model.owners import Owners
from tests.model.pods import Key, Pods

#: A time of files after every test, by which a pod has asked just now.
_NOT_YET = 4_000_000_000

START_TIMED_OUT = RunError("", "StartTimedOut", "The query was not started.", "not started")


@dataclass(slots=True)
class Thread:
    """A run inside its JVM: what it holds, and whether it can still write."""

    run: int
    epoch: int  # the run's
    query: int
    location: str
    application: str
    driver: int  # epoch of the driver
    number: int = 0  # of its owner object; 0: its checkpoint is local
    may_start: datetime | None = None  # by the steady clock: it waits for former owners
    holds: bool = True  # the checkpoint's lock, or the watch for a later owner
    building: bool = True  # start() has not returned
    alive: bool = False  # Spark's thread, which executes batches
    callbacks: int = 0  # calls of foreachBatch that have not returned
    error: RunError | None = None  # the query's own
    batch: int | None = None  # in flight when it failed
    overdue: bool = False  # a start or a stop has timed out
    finished: bool = False  # by itself: all is read

    @property
    def writes(self) -> bool:
        """Whether anything of the run can still write."""
        return self.alive or self.callbacks > 0


class World(InMemoryLauncher):
    """The double of a launcher, on what really happens below it."""

    def __init__(
        self, *, clock: Callable[[], datetime], in_pods: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(clock=clock)
        self.in_pods = in_pods  # the applications whose drivers are pods
        self.pods = Pods()
        self.lost: dict[Key, DriverStatus | None] = {}  # the node is; what had arrived before
        self.began: dict[Key, datetime] = {}  # when a pod's containers began to run
        self.owned = Owners()
        self.set_by = timedelta(0)  # how far the clock was set
        self.threads: dict[int, Thread] = {}  # run -> its thread
        self.owners: dict[str, int] = {}  # local location -> highest epoch in its owner file
        self.newest: dict[str, int] = {}  # location -> its newest batch
        self.wrote: dict[tuple[str, int], set[int]] = {}  # (location, batch) -> runs
        self.doubled: list[str] = []  # batches that two living writers have executed
        self.terminated: set[tuple[str, int]] = set()
        self.spawning: set[tuple[str, int]] = set()  # a shim has it, ident.json is not written
        self.intents: dict[tuple[str, int], int] = {}  # files only -> assignment's generation
        self.half_launch = ""  # "intent" | "spawning": where the next launch's worker dies
        self.passing_refusal = False
        self.meanwhile: dict[str, Callable[[], Any]] = {}  # point -> what somebody else does there

    # --- points at which somebody else may act, or the worker die -----------------------

    def point(self, name: str) -> None:
        """A worker comes by this point of its step."""
        act = self.meanwhile.pop(name, None)
        if act is not None:
            act()

    @contextmanager
    def _call(self, call: Call) -> Iterator[None]:
        self.point(call.verb)
        del self.calls[:-20]
        with super()._call(call):
            yield

    # --- the protocol -------------------------------------------------------------------

    def launch(self, spec: DriverSpec, assignment: Assignment, pools_xml: str) -> None:
        """Launch; the worker may die between the files, the shim and the identity."""
        key = (spec.application, spec.epoch)
        if self.passing_refusal:
            raise LaunchRefused("The host is overloaded.", passing=True)
        half, self.half_launch = self.half_launch, ""
        if spec.pod:
            self._launch_pod(spec, assignment, pools_xml, half)
            return
        if half == "intent" and key not in self.intents and not self._has(key):
            self.intents[key] = assignment.generation
            raise Crash("after the intent")
        super().launch(spec, assignment, pools_xml)
        if half == "spawning" and self.intents.pop(key, 0) == 0:
            self.spawning.add(key)
            raise Crash("before the identity")
        self.intents.pop(key, None)

    def sight(
        self,
        application: str,
        epoch: int,
        *,
        probe: bool = False,
        locations: tuple[str, ...] = (),
        identity: Mapping[str, str | int] | None = None,
    ) -> Sighting:
        """Return what a look at the host would show, at each stage of a launch."""
        if application in self.in_pods and not probe:
            return (
                Sighting(Liveness.ELSEWHERE)
                if self.elsewhere
                else self._sight_pod((application, epoch), locations, identity)
            )
        seen = super().sight(
            application, epoch, probe=probe, locations=locations, identity=identity
        )
        key = (application, epoch)
        if key in self.intents and seen.liveness is Liveness.ABSENT:
            return replace(seen, assignment_generation=self.intents[key])
        if key in self.spawning and seen.liveness is Liveness.ALIVE:
            return replace(seen, liveness=Liveness.SPAWNING, process={})
        return seen

    def terminate(self, application: str, epoch: int) -> None:
        """Note the SIGTERM; the driver leaves when the story says so."""
        super().terminate(application, epoch)
        self.terminated.add((application, epoch))
        if application in self.in_pods:
            self._terminate_pod((application, epoch))

    def assign(self, application: str, assignment: Assignment) -> None:
        """Write the assignment; the channel takes it to a pod that it reaches."""
        if application not in self.in_pods:
            super().assign(application, assignment)
            return
        with self._call(Call("assign", application, assignment.epoch, assignment.generation)):
            self.pods.launcher().assign(application, assignment)
            self.deliver((application, assignment.epoch))

    def seal(self, application: str, epoch: int) -> bool:
        """Make sure that no launch starts the driver any more."""
        if application not in self.in_pods:
            return super().seal(application, epoch)
        with self._call(Call("seal", application, epoch)):
            return self.pods.launcher().seal(application, epoch)

    def kill(self, application: str, epoch: int, reason: Reason) -> None:
        """Kill the driver; a pod ends once its node hears of it."""
        if application not in self.in_pods:
            super().kill(application, epoch, reason)
            return
        with self._call(Call("kill", application, epoch)):
            self.pods.launcher().kill(application, epoch, reason)
            self.end_deleted((application, epoch))

    def living(self) -> list[Key]:
        """Return the drivers that are seen to live."""
        processes = [key for key in super().living() if key[0] not in self.in_pods]
        self._report_all()
        return sorted(processes + self.pods.living())

    def highest_epoch(self, application: str) -> int:
        """Return the highest known epoch."""
        found = super().highest_epoch(application)
        if application in self.in_pods:
            found = max(found, self.pods.launcher().highest_epoch(application))
        return found

    def prune(self, application: str, *, keep: int) -> None:
        """Remove what is left of ended drivers."""
        super().prune(application, keep=keep)
        if application in self.in_pods:
            self.pods.launcher().prune(application, keep=keep)

    def orphan(self, application: str, *, epoch: int | None = None) -> None:
        """Python ends without its JVM; a pod's JVM ends with it."""
        if application in self.in_pods:
            self.vanish(application, epoch=epoch)
        else:
            super().orphan(application, epoch=epoch)

    # --- pods ---------------------------------------------------------------------------

    def _launch_pod(
        self, spec: DriverSpec, assignment: Assignment, pools_xml: str, half: str
    ) -> None:
        """Launch; the worker may die before the pod is created, or before its UID is recorded."""
        with self._call(Call("launch", spec.application, spec.epoch, assignment.generation)):
            self.pods.api.half = half
            try:
                self.pods.launcher().launch(spec, assignment, pools_xml)
            finally:
                self.pods.api.half = ""
                for born in self.pods.born():
                    key = (born.spec.application, born.spec.epoch)
                    driver = _Driver(born.spec, born.assignment, pools_xml)
                    driver.process = self._new_process()
                    self._drivers.setdefault(key[0], {})[key[1]] = driver
                    self._newest[key[0]] = max(self._newest.get(key[0], 0), key[1])
                    self.spawning.add(key)  # no node has taken it yet

    def _sight_pod(
        self,
        key: Key,
        locations: tuple[str, ...],
        identity: Mapping[str, str | int] | None,
    ) -> Sighting:
        """Return what the real launcher sees, and what the channel has brought."""
        self._report_all()
        seen = self.pods.launcher().sight(*key, locations=locations, identity=identity)
        driver = self._pod_driver(key)
        if driver is None:
            return seen
        status = self.lost[key] if key in self.lost else _status(driver, self._now())
        return replace(seen, status=status)

    def _pod_driver(self, key: Key) -> _Driver | None:
        return self._drivers.get(key[0], {}).get(key[1])

    def _report_all(self) -> None:
        """Each node that responds reports its pods."""
        for key in self.pods.names:
            driver = self._pod_driver(key)
            if driver is None or key in self.lost:
                continue
            if key not in self.spawning or not driver.alive:
                self.began.setdefault(key, self.clock())
            end = driver.exit
            if end is None and driver.gone:
                end = self._exit("UNKNOWN", "UNKNOWN")
            self.pods.report(key, since=self.began.get(key), end=end)

    def _terminate_pod(self, key: Key) -> None:
        """The launcher passes it on; it deletes a pod that does not ask for news."""
        launcher, driver = self.pods.launcher(), self._pod_driver(key)
        asked = DriverFolder.of(launcher.directory(*key)).control / ASKED
        if driver is not None and driver.ready and key not in self.lost and asked.parent.exists():
            asked.touch()
            os.utime(asked, (_NOT_YET, _NOT_YET))
        else:
            asked.unlink(missing_ok=True)
        launcher.terminate(*key)
        self.end_deleted(key)

    def end_deleted(self, key: Key) -> None:
        """The node of a pod that is to end at once ends it; one that has none never starts."""
        driver = self._pod_driver(key)
        if driver is None or not driver.alive or key in self.lost:
            return
        if self.pods.is_being_killed(key):
            self.die(key[0], epoch=key[1])
        elif self.pods.found(key) is None and key in self.spawning:
            driver.gone = True
            self.spawning.discard(key)

    def deliver(self, key: Key) -> None:
        """A pod that the channel reaches gets its newest assignment."""
        driver = self._pod_driver(key)
        if driver is None or key in self.lost:
            return
        host = driver.spec.host
        control = DriverFolder.of(self.pods.launcher(host).directory(*key)).control
        if not (control / ASSIGNMENT).exists():
            return
        written = Assignment.loads((control / ASSIGNMENT).read_text())
        if written.generation >= driver.assignment.generation:
            driver.assignment = written
            self._apply(driver)

    def truly_living(self) -> set[Key]:
        """Return every driver whose JVM lives, whoever sees it."""
        return set(super().living())

    def delete_pod(self, key: Key) -> None:
        """A user deletes a pod: its batches in flight may end, and then it ends."""
        if (pod := self.pods.found(key)) is not None:
            self._report_all()
            self.pods.api.delete("pods", pod, grace_s=600)
            self.terminated.add(key)
            self.end_deleted(key)

    def pods_alive(self) -> list[Key]:
        """Return the pods whose containers run, or are about to."""
        return [key for key in sorted(self.pods.names) if self._runs(key)]

    def _runs(self, key: Key) -> bool:
        driver = self._pod_driver(key)
        return driver is not None and driver.alive

    def lose_node(self, key: Key) -> None:
        """The node of a pod does not respond any more; nobody knows that yet."""
        driver = self._pod_driver(key)
        if driver is not None and key not in self.spawning:
            self._report_all()
            self.lost.setdefault(key, _status(driver, self._now()))

    def node_returns(self, key: Key) -> None:
        """The node responds again; it ends a pod that was deleted meanwhile."""
        if key in self.lost:
            del self.lost[key]
            self.deliver(key)
            self.end_deleted(key)

    def steady(self) -> datetime:
        """Return the time by a clock that nobody sets."""
        return self.clock() - self.set_by

    # --- what a driver does with its assignment -----------------------------------------

    def _apply(self, driver: _Driver) -> None:
        if (driver.spec.application, driver.spec.epoch) in self.spawning:
            return
        self._applying = driver
        super()._apply(driver)

    def _begin(self, driver: _Driver, entry: AssignmentEntry) -> None:
        driver.places[entry.run] = entry.checkpoint
        driver.runs[entry.run] = self._starting(entry)
        driver.facts[entry.run] = RunFacts(building=entry.run in self.threads, thread_alive=False)

    def _left(self, run: int, **facts: Any) -> None:
        thread = self.threads.get(run)
        if thread is None:
            super()._left(run, **facts)
        else:
            self.judge(thread)

    def _starting(self, entry: AssignmentEntry) -> RunStatus:
        """Take the checkpoint's lock, or be refused, as `runtime/checkpoints/locks.py` does."""
        driver, status = self._applying, RunStatus(entry.run, entry.query, RunState.STARTING)
        if entry.want is not Want.RUN:  # it ends without having run
            return replace(status, state=RunState.ENDED, asked_for=entry.want, ended_at=self._now())
        key = (driver.spec.application, driver.spec.epoch)
        remote = local_path(entry.checkpoint) is None
        holder = self.holder(entry.checkpoint, within=key if remote else None)
        if holder is not None:
            pid = int(self._drivers[holder.application][holder.driver].process["jvm_pid"])
            return self._refused(status, "held", pid)
        epoch = self.owned.epoch(entry.checkpoint) if remote else self.owners.get(entry.checkpoint)
        if (epoch or 0) > entry.epoch:
            return self._refused(status, "fenced", None)
        number, may_start = 0, None
        if remote:
            number, may_start = self.owned.take(
                entry.checkpoint,
                entry.epoch,
                self.pods.host_of(key) if driver.spec.pod else driver.spec.host,
                ended=driver.spec.ended_hosts,
                now=self.steady(),
            )
        else:
            self.owners[entry.checkpoint] = entry.epoch
        self.threads[entry.run] = Thread(
            run=entry.run,
            epoch=entry.epoch,
            query=entry.query,
            location=entry.checkpoint,
            application=driver.spec.application,
            driver=driver.spec.epoch,
            number=number,
            may_start=may_start,
        )
        return status

    def _refused(self, status: RunStatus, why: str, pid: int | None) -> RunStatus:
        text = f"the checkpoint is {why}"
        error = RunError("", "", text, text, refused=why, holder_pid=pid)
        return replace(status, state=RunState.REFUSED, ended_at=self._now(), error=error)

    # --- what happens inside a driver ---------------------------------------------------

    def build(self, thread: Thread) -> None:
        """start() returns; where its end was asked for meanwhile, the query is stopped at once."""
        if thread.may_start is not None and self.steady() < thread.may_start:
            return  # it waits until no former owner can write any more
        thread.building, thread.overdue = False, False
        status = self.said(thread)
        if thread.number and not self.owned.is_newest(thread.location, thread.number):
            thread.holds = False
            if status is not None and status.state not in ENDED:
                refused = self._refused(status, "held", None)
                self._say(thread, state=refused.state, ended_at=self._now(), error=refused.error)
            return
        if status is None or status.state in ENDED or status.asked_for is not Want.RUN:
            self.judge(thread)
            return
        thread.alive = True
        self._say(thread, started_at=self._now())

    def write(self, thread: Thread) -> None:
        """The thread executes its next batch and commits it."""
        batch = self.newest.get(thread.location, -1) + 1
        self.execute(thread, batch)
        self.newest[thread.location] = batch
        self._commit_said(thread, batch)

    def write_late(self, thread: Thread) -> None:
        """A thread whose batch was in flight all the time executes it, committed by now or not."""
        batch = max(self.newest.get(thread.location, 0), 0)
        self.execute(thread, batch)

    def execute(self, thread: Thread, batch: int) -> None:
        """Note who executes a batch, and whether another who has done so still lives."""
        runs = self.wrote.setdefault((thread.location, batch), set())
        for run in runs - {thread.run}:
            if self.lives(self.threads[run]):
                self.doubled.append(f"batch {batch} of {thread.location}: {run} and {thread.run}")
        runs.add(thread.run)

    def _commit_said(self, thread: Thread, batch: int) -> None:
        status = self.said(thread)
        if status is None or status.state in ENDED:
            return
        running = status.state is RunState.STARTING
        self._say(
            thread,
            state=RunState.RUNNING if running else status.state,
            first_commit_at=status.first_commit_at or self._now(),
            last_batch=batch,
        )

    def idles(self, thread: Thread) -> None:
        """Its trigger finds nothing to read."""
        self._say(thread, state=RunState.RUNNING, first_idle_at=self._now())

    def ends(self, thread: Thread) -> None:
        """The thread ends, and with it what users' code did in it."""
        thread.alive, thread.callbacks = False, 0
        self.judge(thread)

    def leaves_a_call(self, thread: Thread) -> None:
        """Spark's thread is gone, and a call of foreachBatch goes on in Python."""
        thread.alive, thread.callbacks = False, 1
        self.judge(thread)

    def breaks(self, thread: Thread, error: RunError, batch: int | None) -> None:
        """The query fails with the error; its thread ends at its own pace."""
        thread.error, thread.batch = error, batch
        self.judge(thread)

    def times_out(self, thread: Thread) -> None:
        """A start or a stop has waited its time for what does not end."""
        thread.overdue = True
        self.judge(thread)

    def judge(self, thread: Thread) -> None:
        """Let the runtime's own rule say whether the run has ended and its lock may go."""
        status = self.said(thread)
        facts = RunFacts(
            building=thread.building,
            thread_alive=thread.alive,
            callbacks_open=thread.callbacks,
            asked=status.asked_for if status is not None else Want.STOP,
            failed=thread.error is not None,
            overdue=thread.overdue,
        )
        verdict = restart.judge(facts)
        if status is not None:
            self._drivers[thread.application][thread.driver].facts[thread.run] = facts
        if verdict.release:
            thread.holds = False
        if status is None or status.state in ENDED:
            return
        if verdict.outcome is None:
            self._say(thread, hangs=verdict.hangs)
            return
        error = thread.error if verdict.outcome is RunState.FAILED else None
        if error is None and verdict.hangs is Hangs.START:
            error = START_TIMED_OUT
        failed = {"failed_batch": thread.batch} if error is thread.error else {}
        if error is not None:
            error = replace(error, unknown_batch=thread.batch is None)
        self._say(
            thread,
            state=verdict.outcome,
            ended_at=self._now(),
            error=error,
            hangs=verdict.hangs,
            **failed,
        )

    # --- what is so -----------------------------------------------------------------------

    def jvm(self, thread: Thread) -> bool:
        """Whether the JVM of a thread lives; it halts once it must have seen a later owner."""
        driver = self._drivers.get(thread.application, {}).get(thread.driver)
        if driver is not None and driver.jvm_lives and thread.number and thread.holds:
            number, now = thread.number, self.steady()
            if self.owned.has_halted(thread.location, number, now=now):
                jvm = str(EXIT_CHECKPOINT_LOST)
                self.die(thread.application, epoch=thread.driver, python="71", jvm=jvm)
        return driver is not None and driver.jvm_lives

    def lives(self, thread: Thread) -> bool:
        """Whether the thread can still write to its checkpoint."""
        return thread.writes and self.jvm(thread)

    def living_threads(self) -> list[Thread]:
        """Return every thread that can still write."""
        return [thread for thread in self.threads.values() if self.lives(thread)]

    def holder(self, location: str, *, within: Key | None = None) -> Thread | None:
        """Return who holds the lock of a checkpoint; the kernel frees a dead JVM's.

        `within`: only this driver's own registry counts, because there is no lock.
        """
        for thread in self.threads.values():
            if within is not None and (thread.application, thread.driver) != within:
                continue
            if thread.location == location and thread.holds and self.jvm(thread):
                return thread
        return None

    def said(self, thread: Thread) -> RunStatus | None:
        """Return what the driver's Python says of a run; None where it has forgotten it."""
        driver = self._drivers.get(thread.application, {}).get(thread.driver)
        return driver.runs.get(thread.run) if driver is not None else None

    def goes_well(self, *, unless: Callable[[str], bool]) -> None:
        """Drivers come up, queries start and commit; `unless`: not those of this application."""
        for name, epoch, driver in self.alive_drivers():
            if unless(name):
                continue
            self.spawning.discard((name, epoch))
            driver.hanging = False
            self.ready(name, epoch=epoch)
        for thread in list(self.threads.values()):
            if unless(thread.application) or not self.has_python(thread):
                continue
            if thread.building and not thread.overdue:
                self.build(thread)
            status = self.said(thread)
            asked = status is not None and status.asked_for is not Want.RUN
            if thread.alive and not thread.error and not asked:
                self.write(thread)

    def has_python(self, thread: Thread) -> bool:
        """Whether somebody watches the thread and tells of it."""
        driver = self._drivers.get(thread.application, {}).get(thread.driver)
        return driver is not None and driver.alive

    def alive_drivers(self) -> list[tuple[str, int, _Driver]]:
        """Return every driver whose Python lives."""
        return [
            (name, epoch, driver)
            for name, drivers in sorted(self._drivers.items())
            for epoch, driver in sorted(drivers.items())
            if driver.alive
        ]

    def may_leave(self, driver: _Driver) -> bool:
        """Whether a driver was told to leave once nothing runs in it, and nothing does."""
        idle = all(status.state in ENDED for status in driver.runs.values())
        return driver.ready and not driver.hanging and driver.assignment.end and idle

    def apply_again(self, driver: _Driver) -> None:
        """The driver reads its assignment once more."""
        self._apply(driver)

    def _say(self, thread: Thread, **changes: Any) -> None:
        driver = self._drivers[thread.application][thread.driver]
        if thread.run in driver.runs and driver.alive:
            driver.runs[thread.run] = replace(driver.runs[thread.run], **changes)

    def _has(self, key: tuple[str, int]) -> bool:
        return key in self._sealed or key[1] in self._drivers.get(key[0], {})
