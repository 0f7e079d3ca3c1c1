"""The protocol of one checkpoint, small enough to walk through all its states.

Two workers; the application `x`, whose driver a neighbour keeps alive; the application `y`, in
which the query is defined again on the same checkpoint once it has stopped in `x`. A worker's
step is in three parts (look, claim, act): between any two of them it may pause, while anybody
else goes on, or die. Shim, Python and JVM may end at any point. How many pauses and crashes there
are in one history is bounded, and so is the number of drivers. What to do is decided by the real
`decide`, and whether a lock may go by the real `run_end.judge`; the rest is written here as
`launcher.py`, `shim.py`, `sighting.py` and `locks.py` do it, one line for each of their steps.
Time is a choice: every look may be one long after every deadline.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from typing import NamedTuple

from queries.domain import restart
from queries.domain.protocol import DriverStatus, ExitReport, RunError, RunState, RunStatus, Want
from queries.domain.reasons import NOTHING
from queries.domain.restart import RestartPolicy, RunFacts
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
LATER = (True, False)  # long after every deadline, or not
NEW = -1  # the epoch of a driver that is about to be launched

# Of a process: not there yet, there, gone.
NONE, ALIVE, GONE = 0, 1, 2
# Of the run in a JVM; from BUILDING to HUNG it holds the lock.
IDLE, BUILDING, WRITING, HUNG, OVER, REFUSED = range(6)


class Row(NamedTuple):
    """What the database holds of one application."""

    driver: int = 0  # epoch of the open driver, 0: none
    run: int = 0  # epoch of the driver that has the query's open run, 0: none
    stop_asked: bool = False
    end_wanted: str = Reason.NONE.value
    phase: str = Phase.STOPPED.value
    seen: int = 0  # generation


class Process(NamedTuple):
    """One driver: its files, its processes, and its run of the query."""

    app: str
    coming: int = 0  # shims that were spawned and have not taken the lock yet
    shim: int = NONE
    ident: bool = False
    python: int = NONE
    jvm: int = NONE
    thread: int = IDLE
    want: str = ""  # of the query, in its assignment; "": it is not in it
    exit: bool = False
    pythons: int = 0  # how many were ever started


Act = tuple[str, int, str]  # what is done, to which epoch, the want that is written


class Claim(NamedTuple):
    """What a worker that has looked will write, if nobody writes before it."""

    row: Row
    launches: bool  # a new driver; NEW is its epoch until it is drawn
    acts: tuple[Act, ...]


class Worker(NamedTuple):
    """Where a worker is in its step: what it is about to write, then what it has yet to do."""

    app: str = ""
    claim: Claim | None = None
    acts: tuple[Act, ...] = ()


class State(NamedTuple):
    """Everything."""

    x: Row
    y: Row
    home: str  # the application in which the query is defined
    desired: str
    generation: int
    processes: tuple[Process, ...]  # by epoch, from 1
    workers: tuple[Worker, ...]


Came = tuple[State, str] | None  # from where, by which step; None: it is the start
IDLE_WORKER = Worker()
START = State(
    x=Row(),
    y=Row(),
    home="x",
    desired=Desired.RUNNING.value,
    generation=1,
    processes=(),
    workers=(IDLE_WORKER,) * WORKERS,
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


class Walked(NamedTuple):
    """How far a walk has come."""

    states: int
    whole: bool  # every state that can be reached was looked at
    broken: str = ""
    way: tuple[str, ...] = ()  # to the state in which it is


def walk(*, epochs: int, crashes: int, pauses: int, most: int = 10**9) -> Walked:
    """Look at every state, those of few crashes and pauses first, or until one is wrong.

    `epochs`: drivers that are ever launched; `crashes`: of workers, shims, Pythons and JVMs, each
    at any point; `pauses`: of workers, each at any point and for as long as it likes; `most`:
    looks at states. What a state was reached with does not count: whatever follows after more
    crashes and pauses follows after fewer.
    """
    came: dict[State, Came] = {}
    spent: dict[State, list[tuple[int, int]]] = {}
    begins: dict[tuple[int, int], dict[State, Came]] = {(0, 0): {START: None}}
    seen = 0
    for cost in product(range(crashes + 1), range(pauses + 1)):
        todo: deque[State] = deque()

        def reach(state: State, way: Came, cost: tuple[int, int] = cost) -> bool:
            before = spent.setdefault(state, [])
            if any(c <= cost[0] and p <= cost[1] for c, p in before):
                return False
            before.append(cost)
            came.setdefault(state, way)
            return True

        todo.extend(s for s, way in begins.pop(cost, {}).items() if reach(s, way))
        while todo:
            if seen >= most:
                return Walked(len(came), False)
            state = todo.popleft()
            seen += 1
            if wrong := broken(state):
                return Walked(len(came), False, wrong, _way(came, state))
            for name, after, (more_crashes, more_pauses) in steps(state, epochs):
                if not more_crashes and not more_pauses:
                    if reach(after, (state, name)):
                        todo.append(after)
                    continue
                later = (cost[0] + more_crashes, cost[1] + more_pauses)
                if later[0] <= crashes and later[1] <= pauses:
                    begins.setdefault(later, {}).setdefault(after, (state, name))
    return Walked(len(came), True)


def _way(came: dict[State, Came], state: State) -> tuple[str, ...]:
    way = []
    while (before := came[state]) is not None:
        state, name = before
        way.append(name)
    return tuple(way[::-1])


# --- steps ------------------------------------------------------------------------------------


FREE, CRASH, PAUSE = (0, 0), (1, 0), (0, 1)
Step = tuple[str, State, tuple[int, int]]  # its name, what follows, what it costs


def steps(state: State, epochs: int) -> Iterator[Step]:
    """Yield the name, the result and the cost of everything that may happen next."""
    for name, after, cost in _everything(state, epochs):
        yield name, _without_traces(after), cost


def _everything(state: State, epochs: int) -> Iterator[Step]:
    for name, after in _operator(state):
        yield name, after, FREE
    for place, worker in enumerate(state.workers):
        if worker not in state.workers[:place]:  # nobody knows one worker from another
            yield from _worker(state, place, worker, epochs)
    for place, process in enumerate(state.processes):
        for name, changed in _process(state, place, process):
            processes = (*state.processes[:place], changed, *state.processes[place + 1 :])
            after = state._replace(processes=processes)
            yield f"{name} {place + 1}", after, CRASH if "die" in name else FREE


def _without_traces(state: State) -> State:
    """Forget of drivers that have ended, with their rows, what nobody can see any more."""
    ended = tuple(
        _begun(p)  # whoever still wants to launch it does nothing
        and ALIVE not in (p.shim, p.python, p.jvm)
        and getattr(state, p.app).driver != epoch
        for epoch, p in enumerate(state.processes, 1)
    )
    if True not in ended:
        return state
    processes = tuple(
        Process(p.app, ident=p.ident, exit=p.exit, pythons=p.pythons) if gone else p
        for p, gone in zip(state.processes, ended, strict=True)
    )
    workers = tuple(
        IDLE_WORKER if worker.acts and ended[worker.acts[0][1] - 1] else worker
        for worker in state.workers
    )
    return state._replace(processes=processes, workers=tuple(sorted(workers, key=hash)))


def _operator(state: State) -> Iterator[tuple[str, State]]:
    row: Row = getattr(state, state.home)
    if state.generation == 1:
        workers = _outrun(state.workers, "x")
        stopped = Desired.STOPPED.value
        yield "stop", state._replace(desired=stopped, generation=2, workers=workers)
    at_rest = row.phase == Phase.STOPPED and row.run == 0 and row.seen == 2
    if state.generation == 2 and at_rest:  # deleted in x, defined and started in y
        workers = _outrun(_outrun(state.workers, "x"), "y")
        started = Desired.RUNNING.value
        after = state._replace(home="y", desired=started, generation=3, workers=workers)
        yield "define in y", after


def _outrun(workers: tuple[Worker, ...], app: str) -> tuple[Worker, ...]:
    """Whoever has looked before this moment loses the compare-and-set on the version."""
    left = (IDLE_WORKER if one.claim and one.app == app else one for one in workers)
    return tuple(sorted(left, key=hash))


def _worker(state: State, place: int, worker: Worker, epochs: int) -> Iterator[Step]:
    """Yield how a worker's step may go: to its end, or to a point at which it pauses or dies."""
    others = (*state.workers[:place], *state.workers[place + 1 :])
    if worker != IDLE_WORKER:
        yield from _goes_on("a worker wakes", state, others, worker, epochs, paused=True)
        return
    for app in ("x", "y"):
        found = {_claim(state, app, late): f"look at {app}{' late' * late}" for late in LATER}
        for claim, name in found.items():
            if claim is not None:
                yield from _goes_on(name, state, others, Worker(app, claim), epochs)


def _goes_on(
    name: str,
    state: State,
    others: tuple[Worker, ...],
    worker: Worker,
    epochs: int,
    *,
    paused: bool = False,
) -> Iterator[Step]:
    """Yield where a worker may come to from a point of its step; `paused`: it has slept there."""

    def left(worker: Worker) -> State:
        return state._replace(workers=tuple(sorted((*others, worker), key=hash)))

    while worker != IDLE_WORKER:
        if worker.claim and worker.claim.launches and len(state.processes) >= epochs:
            return
        if not paused:
            yield f"{name}, pause", left(worker), PAUSE
        if worker.acts:  # before its claim it has done nothing: it might as well not have looked
            yield f"{name}, die", left(IDLE_WORKER), CRASH
        paused = False
        if worker.claim:
            state, worker = _write(state, worker, worker.claim)
            others = _outrun(others, worker.app)
            name += ", claim"
        else:
            (verb, epoch, want), *rest = worker.acts
            changed = _act(state.processes[epoch - 1], verb, want)
            processes = (*state.processes[: epoch - 1], changed, *state.processes[epoch:])
            state = state._replace(processes=processes)
            worker = worker._replace(acts=tuple(rest))
            name += f", {verb} {epoch}"
        if not worker.acts:
            worker = IDLE_WORKER
    yield name, left(IDLE_WORKER), FREE


def _write(state: State, worker: Worker, claim: Claim) -> tuple[State, Worker]:
    """Write a claim in one transaction; return what is left to be done to processes."""
    processes = state.processes
    if claim.launches:
        processes = (*processes, Process(worker.app))
        claim = _drawn(claim, len(processes))
    x, y = (claim.row, state.y) if worker.app == "x" else (state.x, claim.row)
    after = state._replace(x=x, y=y, processes=processes)
    return after, Worker(worker.app, acts=claim.acts)


def _drawn(claim: Claim, epoch: int) -> Claim:
    """Return the claim of a launch with the epoch that was drawn for it."""
    row = claim.row
    run = epoch if row.run == NEW else row.run
    acts = tuple((verb, epoch, want) for verb, _, want in claim.acts)
    return Claim(row._replace(driver=epoch, run=run), True, acts)


def _act(process: Process, verb: str, want: str) -> Process:
    """Do to a driver what a launcher does; each is a step of its own."""
    if verb == "write the files of":
        return process if _begun(process) else process._replace(want=want)
    if verb == "spawn":
        coming = min(2, process.coming + 1)
        return process if _begun(process) else process._replace(coming=coming)
    if verb == "assign":
        again = want == Want.RUN and process.thread in (OVER, REFUSED)
        return process._replace(want=want, thread=IDLE if again else process.thread)
    if verb == "seal":
        begun = process.ident or process.shim == ALIVE or ALIVE in (process.python, process.jvm)
        return process if begun else process._replace(exit=True)
    assert verb == "kill"
    python = GONE if process.python == ALIVE else process.python
    jvm = GONE if process.jvm == ALIVE else process.jvm
    return process._replace(python=python, jvm=jvm)


def _begun(process: Process) -> bool:
    """Whether a launch, or a shim that has just come, leaves a driver as it finds it."""
    return process.ident or process.exit or process.shim == ALIVE


def _process(state: State, place: int, p: Process) -> Iterator[tuple[str, Process]]:
    """Yield what a driver's shim, Python and JVM may do next, and how each may end."""
    if p.coming:
        left = p._replace(coming=p.coming - 1)
        yield "a shim comes to", left if _begun(p) else left._replace(shim=ALIVE)
        yield "a shim dies before", left
    if p.shim == ALIVE:
        fenced = any(q.app == p.app for q in state.processes[place + 1 :])
        if p.python == NONE and fenced:
            yield "fenced", p._replace(exit=True, shim=NONE)
        elif p.python == NONE:
            yield "python of", p._replace(python=ALIVE, pythons=p.pythons + 1)
        elif not p.ident:
            yield "ident of", p._replace(ident=True)
        elif p.python == GONE and p.jvm == ALIVE:
            yield "the shim kills the jvm of", p._replace(jvm=GONE)
        elif p.python == GONE:
            yield "exit of", p._replace(exit=True, shim=NONE)
        yield "the shim dies of", p._replace(shim=NONE)
    if p.python == ALIVE:
        if p.jvm == NONE:
            yield "jvm of", p._replace(jvm=ALIVE)
        if p.jvm == GONE:
            yield "python follows of", p._replace(python=GONE)
        yield "python dies of", p._replace(python=GONE)
        if p.jvm == ALIVE:
            yield from _run(state, p)
    if p.jvm == ALIVE:
        yield "the jvm dies of", p._replace(jvm=GONE)


def _run(state: State, p: Process) -> Iterator[tuple[str, Process]]:
    """Yield what the query's run in a driver may do next."""
    stop = p.want != Want.RUN
    if p.thread == IDLE and p.want == Want.RUN:
        held = any(_holds(other) for other in state.processes if other is not p)
        yield "lock", p._replace(thread=REFUSED if held else BUILDING)
    elif p.thread == IDLE and p.want:
        yield "never run", p._replace(thread=OVER)
    elif p.thread == BUILDING:
        yield "start", p._replace(thread=_judged(p, alive=False) if stop else WRITING)
    elif p.thread in (WRITING, HUNG):
        if p.thread == WRITING and stop:
            yield "stop() times out", p._replace(thread=_judged(p, alive=True))
        if stop:
            yield "the thread ends", p._replace(thread=_judged(p, alive=False))
    elif p.thread == OVER + 10:  # released at the time-out; the thread still writes
        yield "the thread ends", p._replace(thread=OVER)


def _judged(p: Process, *, alive: bool) -> int:
    """Ask the runtime's rule what follows for a run that was asked to stop."""
    verdict = restart.judge(
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
    return f"{seen} {int(ready)} {thread} {p.want}"


@cache
def _decide(
    row: Row, sighting: str, late: bool, app: str, desired: str, generation: int
) -> Decision:
    """Build the observation, and let the real `decide` say what to do."""
    queries = []
    if desired or row.run:
        queries.append(_query(row, sighting, Desired(desired or Desired.STOPPED), generation))
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
        limits=Limits(180, 1800, 60),
    )
    return decide(observation, LATE if late else NOW)


def _driver(row: Row, sighting: str) -> DriverSeen | None:
    if not row.driver:
        return None
    seen, ready, _, _ = sighting.split(" ")
    exited = ExitReport("1", "1", False, False, "") if seen == Liveness.EXITED else None
    status = None
    if ready == "1":
        status = DriverStatus(row.driver, 1, "", ready=True, jvm_pid=row.driver, runs=())
    return DriverSeen(
        row.driver,
        row.driver,
        DriverState.STARTING,
        0,
        NOW,
        Sighting(Liveness(seen), {}, status, exited),
        Reason(row.end_wanted),
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
        Phase(row.phase),
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


def _claim(state: State, app: str, late: bool) -> Claim | None:
    """Return what a worker that looks at an application now is about to write and to do.

    None where that is nothing.
    """
    before: Row = getattr(state, app)
    desired = state.desired if app == state.home else ""
    decision = _decide(before, _sight(state, before), late, app, desired, state.generation)
    choice = next((c for c in decision.queries if c.query == QUERY), None)
    driver, action = before.driver, decision.driver.action
    launches = action is DriverAction.LAUNCH
    run, stop_asked = before.run, before.stop_asked
    if decision.driver.exit is not None:
        driver = 0
    if launches:
        driver = NEW
    want = ""
    if choice is not None:
        if choice.ended is not None:
            assert choice.ended.outcome is not RunOutcome.OPEN
            run, stop_asked = 0, False
        elif run and choice.want is not Want.RUN:
            stop_asked, want = True, choice.want.value
        elif run:
            want = Want.RUN.value
        if choice.open_run is not None and driver:
            run, stop_asked, want = driver, False, Want.RUN.value
    phase = _rough(choice.phase) if choice is not None else before.phase
    end_wanted = decision.driver.end_wanted if driver == before.driver else Reason.NONE
    row = Row(
        driver=driver,
        run=run,
        stop_asked=stop_asked,
        end_wanted=end_wanted.value,
        phase=phase,
        seen=state.generation if choice is not None else before.seen,
    )
    acts: list[Act] = []
    if action in (DriverAction.LAUNCH, DriverAction.SPAWN):
        acts += [("write the files of", driver, want), ("spawn", driver, "")]
    elif driver and state.processes[driver - 1].want != want:
        acts.append(("assign", driver, want))
    if action is DriverAction.KILL and driver:
        acts.append(("kill", driver, ""))
    if action is DriverAction.SEAL and driver:
        acts.append(("seal", driver, ""))
    return Claim(row, launches, tuple(acts)) if acts or row != before else None


def _rough(phase: Phase) -> str:
    """Return the phase as far as a later decision reads it."""
    kept = phase if phase in (Phase.STOPPED, Phase.STOPPING) else Phase.RUNNING
    return kept.value
