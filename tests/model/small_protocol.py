"""The protocol of one checkpoint, small enough to walk through its states, the nearest first.

Two workers; the application `x`, whose driver a neighbour keeps alive; the application `y`, in
which the query is defined again on the same checkpoint once it has stopped in `x`. A worker's
step is in three parts (look, claim, act): between any two of them it may pause, while anybody
else goes on, or die. Shim, Python and JVM may end at any point. What to do is decided by the
real `decide`, and whether a lock may go by the real `run_end.judge`; the rest is written here as
`launcher.py`, `shim.py`, `sighting.py` and `locks.py` do it, one line for each of their steps.
Time is a choice: every look may be one long after every deadline.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache

from queries.domain import run_end
from queries.domain.protocol import ExitReport, RunError, RunState, RunStatus, Status, Want
from queries.domain.reasons import NOTHING
from queries.domain.restart import RestartPolicy
from queries.domain.run_end import RunFacts
from queries.domain.states import Desired, DriverState, Phase, Reason, RunOutcome, StopMode
from queries.domain.supervision.decide import decide
from queries.domain.supervision.decision import Decision, DriverAction
from queries.domain.supervision.observation import (
    DriverSeen,
    Limits,
    Liveness,
    Observation,
    QuerySeen,
    RunSeen,
    Sighting,
    Slots,
)

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
LATE = NOW + timedelta(hours=1)
QUERY, NEIGHBOUR = 1, 2
WORKERS = 2

# Of a process: not there yet, there, gone.
NONE, ALIVE, GONE = 0, 1, 2
# Of the run in a JVM; from BUILDING to HUNG it holds the lock.
IDLE, BUILDING, WRITING, HUNG, OVER, REFUSED = range(6)


@dataclass(frozen=True, slots=True)
class Row:
    """What the database holds of one application."""

    driver: int = 0  # epoch of the open driver, 0: none
    run: int = 0  # epoch of the driver that has the query's open run, 0: none
    stop_asked: bool = False
    end_wanted: Reason = Reason.NONE
    phase: Phase = Phase.STOPPED
    seen: int = 0  # generation


@dataclass(frozen=True, slots=True)
class Process:
    """One driver: its files, its processes, and its run of the query."""

    app: str
    coming: int = 0  # shims that were spawned and have not taken the lock yet
    shim: int = NONE
    ident: bool = False
    python: int = NONE
    jvm: int = NONE
    thread: int = IDLE
    want: Want | None = None  # of the query, in its assignment; None: it is not in it
    exit: bool = False
    pythons: int = 0  # how many were ever started


@dataclass(frozen=True, slots=True)
class Worker:
    """Where a worker is in its step: what it saw, what it decided, what it has yet to do."""

    app: str = ""
    saw: Row | None = None
    late: bool = False
    sighting: str = ""
    acts: tuple[tuple[str, int, Want | None], ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """Everything."""

    x: Row
    y: Row
    home: str  # the application in which the query is defined
    desired: Desired
    generation: int
    processes: tuple[Process, ...]  # by epoch, from 1
    workers: tuple[Worker, ...]
    crashes: int = 0  # of workers, shims, Pythons and JVMs so far


START = State(
    x=Row(),
    y=Row(),
    home="x",
    desired=Desired.RUNNING,
    generation=1,
    processes=(),
    workers=(Worker(),) * WORKERS,
)


# --- invariants -------------------------------------------------------------------------------


def broken(state: State) -> str:
    """Return which invariant does not hold, "" where all do."""
    writing = [p for p in state.processes if p.jvm == ALIVE and _writes(p)]
    if len(writing) > 1:
        return "I1: two threads write to one checkpoint"
    for epoch, process in enumerate(state.processes, 1):
        if process.pythons > 1:
            return f"I1: epoch {epoch} was started twice"
        if process.jvm == ALIVE and _writes(process) and not _holds(process):
            return "I1: a thread writes without the lock"
        alive = ALIVE in (process.python, process.jvm)
        if alive and getattr(state, process.app).driver != epoch:
            return f"I3: epoch {epoch} lives and its row is closed"
    return ""


def _writes(process: Process) -> bool:
    """Whether Spark's thread of the query is alive; `OVER` after a time-out may hide one."""
    return process.thread in (WRITING, HUNG) or process.thread == OVER + 10


def _holds(process: Process) -> bool:
    return process.jvm == ALIVE and process.thread in (BUILDING, WRITING, HUNG)


@dataclass(frozen=True, slots=True)
class Walked:
    """How far a walk has come."""

    states: int
    whole: bool  # every state that can be reached was looked at
    broken: str = ""
    way: tuple[str, ...] = ()  # to the state in which it is


def walk(*, epochs: int, crashes: int, most: int) -> Walked:
    """Look at every state, the nearest first, until an invariant is broken.

    `epochs`: drivers that are ever launched; `crashes`: of which each may come at any point;
    `most`: states to look at.
    """
    came: dict[State, tuple[State, str] | None] = {START: None}
    todo = deque([START])
    seen = 0
    while todo and seen < most:
        state = todo.popleft()
        seen += 1
        if wrong := broken(state):
            return Walked(seen, False, wrong, _way(came, state))
        for name, after in steps(state, epochs):
            if after.crashes <= crashes and after not in came:
                came[after] = (state, name)
                todo.append(after)
    return Walked(seen, not todo)


def _way(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    way = []
    while (before := came[state]) is not None:
        state, name = before
        way.append(name)
    return tuple(way[::-1])


# --- steps ------------------------------------------------------------------------------------


def steps(state: State, epochs: int) -> Iterator[tuple[str, State]]:
    """Yield the name and the result of everything that may happen next."""
    yield from _operator(state)
    for place, worker in enumerate(state.workers):
        for name, after in _worker(state, worker, epochs):
            yield name, after(place)
    for place, process in enumerate(state.processes):
        for name, changed in _process(state, place, process):
            processes = (*state.processes[:place], changed, *state.processes[place + 1 :])
            died = state.crashes + (" die" in name)
            yield f"{name} {place + 1}", replace(state, processes=processes, crashes=died)


def _operator(state: State) -> Iterator[tuple[str, State]]:
    row = getattr(state, state.home)
    if state.generation == 1:
        yield "stop", replace(state, desired=Desired.STOPPED, generation=2)
    at_rest = row.phase is Phase.STOPPED and row.run == 0 and row.seen == 2
    if state.generation == 2 and at_rest:  # deleted in x, defined and started in y
        yield (
            "define in y",
            replace(state, home="y", desired=Desired.RUNNING, generation=3),
        )


Put = Callable[[int], State]


def _worker(state: State, worker: Worker, epochs: int) -> Iterator[tuple[str, Put]]:
    """Yield what a worker may do next, as a function of its place among the workers."""

    def become(after: Worker, base: State = state) -> Put:
        def put(place: int) -> State:
            workers = [*base.workers[:place], after, *base.workers[place + 1 :]]
            # Nobody knows one worker from another: half of the states are the other half.
            return replace(base, workers=tuple(sorted(workers, key=repr)))

        return put

    if worker != Worker():
        yield "a worker dies", become(Worker(), replace(state, crashes=state.crashes + 1))
    if not worker.app:
        for app in ("x", "y"):
            row: Row = getattr(state, app)
            sighting = _sight(state, row)
            for late in (False, True):
                looked = Worker(app, row, late, sighting)
                told = _told(state, looked)
                if late and told == _told(state, replace(looked, late=False)):
                    continue  # time changes nothing here
                if _claim(state, looked, told) == (state, ()):
                    continue  # it would write nothing and do nothing
                yield f"look at {app}{' late' * late}: {sighting}", become(looked)
        return
    if worker.saw is not None:
        decision = _told(state, worker)
        if decision.driver.action is DriverAction.LAUNCH and len(state.processes) >= epochs:
            yield "no more epochs", become(Worker())
            return
        after, acts = _claim(state, worker, decision)
        # Whoever has looked before this moment loses the compare-and-set on the version.
        after = replace(
            after,
            workers=tuple(
                Worker() if one is not worker and one.saw and one.app == worker.app else one
                for one in state.workers
            ),
        )
        yield (
            f"claim {decision.driver.action}",
            become(replace(Worker(), app=worker.app * bool(acts), acts=acts), after),
        )
        return
    (verb, epoch, want), *rest = worker.acts
    left = replace(worker, acts=tuple(rest)) if rest else Worker()
    process = state.processes[epoch - 1]
    changed = _act(process, verb, want)
    processes = (*state.processes[: epoch - 1], changed, *state.processes[epoch:])
    yield f"{verb} {epoch}", become(left, replace(state, processes=processes))


def _act(process: Process, verb: str, want: Want | None) -> Process:
    """Do to a driver what a launcher does; each is a step of its own."""
    if verb == "write the files of":
        return process if _begun(process) else replace(process, want=want)
    if verb == "spawn":
        coming = min(2, process.coming + 1)
        return process if _begun(process) else replace(process, coming=coming)
    if verb == "assign":
        again = want is Want.RUN and process.thread in (OVER, REFUSED)
        return replace(process, want=want, thread=IDLE if again else process.thread)
    if verb == "seal":
        begun = process.ident or process.shim == ALIVE or ALIVE in (process.python, process.jvm)
        return process if begun else replace(process, exit=True)
    assert verb == "kill"
    python = GONE if process.python == ALIVE else process.python
    jvm = GONE if process.jvm == ALIVE else process.jvm
    return replace(process, python=python, jvm=jvm)


def _begun(process: Process) -> bool:
    """Whether a launch, or a shim that has just come, leaves a driver as it finds it."""
    return process.ident or process.exit or process.shim == ALIVE


def _process(state: State, place: int, p: Process) -> Iterator[tuple[str, Process]]:
    """Yield what a driver's shim, Python and JVM may do next, and how each may end."""
    if p.coming:
        left = replace(p, coming=p.coming - 1)
        yield "a shim comes to", left if _begun(p) else replace(left, shim=ALIVE)
        yield "a shim dies before", left
    if p.shim == ALIVE:
        fenced = any(q.app == p.app for q in state.processes[place + 1 :])
        if p.python == NONE and fenced:
            yield "fenced", replace(p, exit=True, shim=GONE)
        elif p.python == NONE:
            yield "python of", replace(p, python=ALIVE, pythons=p.pythons + 1)
        elif not p.ident:
            yield "ident of", replace(p, ident=True)
        elif p.python == GONE and p.jvm == ALIVE:
            yield "the shim kills the jvm of", replace(p, jvm=GONE)
        elif p.python == GONE:
            yield "exit of", replace(p, exit=True, shim=GONE)
        yield "the shim dies of", replace(p, shim=GONE)
    if p.python == ALIVE:
        if p.jvm == NONE:
            yield "jvm of", replace(p, jvm=ALIVE)
        if p.jvm == GONE:
            yield "python follows of", replace(p, python=GONE)
        yield "python dies of", replace(p, python=GONE)
        if p.jvm == ALIVE:
            yield from _run(state, p)
    if p.jvm == ALIVE:
        yield "the jvm dies of", replace(p, jvm=GONE)


def _run(state: State, p: Process) -> Iterator[tuple[str, Process]]:
    """Yield what the query's run in a driver may do next."""
    stop = p.want is not Want.RUN
    if p.thread == IDLE and p.want is Want.RUN:
        held = any(_holds(other) for other in state.processes if other is not p)
        yield "lock", replace(p, thread=REFUSED if held else BUILDING)
    elif p.thread == IDLE and p.want is not None:
        yield "never run", replace(p, thread=OVER)
    elif p.thread == BUILDING:
        yield "start", replace(p, thread=_judged(p, alive=False) if stop else WRITING)
    elif p.thread in (WRITING, HUNG):
        if p.thread == WRITING and stop:
            yield "stop() times out", replace(p, thread=_judged(p, alive=True))
        if stop:
            yield "the thread ends", replace(p, thread=_judged(p, alive=False))
    elif p.thread == OVER + 10:  # released at the time-out; the thread still writes
        yield "the thread ends", replace(p, thread=OVER)


def _judged(p: Process, *, alive: bool) -> int:
    """Ask the runtime's rule what follows for a run that was asked to stop."""
    verdict = run_end.judge(
        RunFacts(thread_alive=alive, asked=Want.STOP, overdue=alive, callbacks_open=int(alive))
    )
    if not verdict.release:
        return HUNG
    return OVER + 10 if alive else OVER


# --- what a worker sees, decides and writes ---------------------------------------------------


def _sight(state: State, row: Row) -> str:
    """Return liveness and status of the open driver, as `sighting.py` proves them."""
    if not row.driver:
        return ""
    p = state.processes[row.driver - 1]
    if p.exit:
        seen = Liveness.EXITED
    elif not p.ident:
        if p.shim == ALIVE:
            seen = Liveness.SPAWNING
        else:
            seen = Liveness.ORPHANED if ALIVE in (p.python, p.jvm) else Liveness.ABSENT
    elif p.python == ALIVE or p.shim == ALIVE:
        seen = Liveness.ALIVE
    else:
        seen = Liveness.ORPHANED if p.jvm == ALIVE else Liveness.GONE
    ready = p.python != NONE and p.jvm != NONE
    thread = OVER if p.thread == OVER + 10 else p.thread
    return f"{seen} {int(ready)} {thread} {'' if p.want is None else p.want}"


def _told(state: State, worker: Worker) -> Decision:
    """Return what is decided on what a worker has seen."""
    assert worker.saw is not None
    desired = state.desired if worker.app == state.home else None
    return _decide(worker.saw, worker.sighting, worker.late, worker.app, desired, state.generation)


@cache
def _decide(
    row: Row, sighting: str, late: bool, app: str, desired: Desired | None, generation: int
) -> Decision:
    """Build the observation, and let the real `decide` say what to do."""
    queries = []
    if desired is not None or row.run:
        queries.append(_query(row, sighting, desired or Desired.STOPPED, generation))
    if app == "x":  # the neighbour keeps its driver alive
        run = None
        if row.driver:
            said = RunStatus(99, NEIGHBOUR, RunState.RUNNING, started_at=NOW.isoformat())
            run = RunSeen(99, row.driver, 1, NOW, False, NOW, True, status=said)
        queries.append(
            QuerySeen(
                NEIGHBOUR,
                "n",
                Desired.RUNNING,
                1,
                1,
                1,
                Phase.RUNNING,
                Reason.COMMITTED,
                NOTHING,
                run=run,
            )
        )
    observation = Observation(
        application=1,
        name=app,
        generation=0,
        seen_generation=0,
        reached_generation=0,
        policy=RestartPolicy(),
        failure_scope="query",
        queries=tuple(queries),
        driver=_driver(row, sighting),
        slots=Slots(0, 9, 0, 9, 1),
        limits=Limits(180, 60),
    )
    return decide(observation, LATE if late else NOW)


def _driver(row: Row, sighting: str) -> DriverSeen | None:
    if not row.driver:
        return None
    seen, ready, _, _ = sighting.split(" ")
    exited = ExitReport("1", "1", False, False, "") if seen == Liveness.EXITED else None
    status = None
    if ready == "1":
        status = Status(row.driver, 1, "", ready=True, jvm_pid=row.driver, runs=())
    return DriverSeen(
        row.driver,
        row.driver,
        DriverState.STARTING,
        0,
        NOW,
        Sighting(Liveness(seen), {}, status, exited),
        row.end_wanted,
        NOW if row.end_wanted else None,
    )


def _query(row: Row, sighting: str, desired: Desired, generation: int) -> QuerySeen:
    run = None
    if row.run:
        _, _, thread, want = sighting.split(" ") if sighting else ("", "", str(IDLE), "")
        run = RunSeen(
            1,
            row.run,
            row.seen or 1,
            NOW,
            False,
            status=_status(int(thread), want),
            stop_asked_at=NOW if row.stop_asked else None,
        )
    return QuerySeen(
        QUERY,
        "q",
        desired,
        generation,
        row.seen,
        row.seen,
        row.phase,
        Reason.NONE,
        NOTHING,
        stop_mode=StopMode.NOW,
        run=run,
    )


def _status(thread: int, want: str) -> RunStatus | None:
    asked = Want(want) if want else Want.RUN
    if thread == IDLE:
        return None
    if thread == REFUSED:
        error = RunError("", "", "held", "held", refused="held", holder_pid=0)
        return RunStatus(1, QUERY, RunState.REFUSED, error=error)
    if thread == OVER:
        return RunStatus(1, QUERY, RunState.ENDED, asked_for=Want.STOP)
    state = RunState.RUNNING if asked is Want.RUN else RunState.STOPPING
    if thread == BUILDING and asked is Want.RUN:
        state = RunState.STARTING
    return RunStatus(1, QUERY, state, asked_for=asked, started_at=NOW.isoformat())


def _claim(
    state: State, worker: Worker, decision: Decision
) -> tuple[State, tuple[tuple[str, int, Want | None], ...]]:
    """Write the rows, in one transaction; return what is left to be done to processes."""
    app, before = worker.app, worker.saw
    assert before is not None
    choice = next((c for c in decision.queries if c.query == QUERY), None)
    driver, action = before.driver, decision.driver.action
    processes = state.processes
    acts: list[tuple[str, int, Want | None]] = []
    run, stop_asked = before.run, before.stop_asked
    if decision.driver.exit is not None:
        driver = 0
    if action is DriverAction.LAUNCH:
        processes = (*processes, Process(app))
        driver = len(processes)
    want: Want | None = None
    if choice is not None:
        if choice.ended is not None:
            assert choice.ended.outcome is not RunOutcome.OPEN
            run, stop_asked = 0, False
        elif run and choice.want is not Want.RUN:
            stop_asked, want = True, choice.want
        elif run:
            want = Want.RUN
        if choice.open_run is not None and driver:
            run, stop_asked, want = driver, False, Want.RUN
    phase = choice.phase if choice is not None else before.phase
    row = Row(
        driver=driver,
        run=run,
        stop_asked=stop_asked,
        end_wanted=decision.driver.end_wanted if driver == before.driver else Reason.NONE,
        phase=_rough(phase),
        seen=state.generation if choice is not None else before.seen,
    )
    if action in (DriverAction.LAUNCH, DriverAction.SPAWN):
        acts += [("write the files of", driver, want), ("spawn", driver, None)]
    elif driver and processes[driver - 1].want is not want:
        acts.append(("assign", driver, want))
    if action is DriverAction.KILL and driver:
        acts.append(("kill", driver, None))
    if action is DriverAction.SEAL and driver:
        acts.append(("seal", driver, None))
    x, y = (row, state.y) if app == "x" else (state.x, row)
    after = replace(state, processes=processes, x=x, y=y)
    return after, tuple(acts)


def _rough(phase: Phase) -> Phase:
    """Return the phase as far as a later decision reads it."""
    return phase if phase in (Phase.STOPPED, Phase.STOPPING) else Phase.RUNNING
