"""Whatever supervision can see of an application, drawn at random."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from queries.domain.failures.categories import FailureSubject
from queries.domain.protocol import (
    DriverStatus,
    ExitReport,
    Hangs,
    RunError,
    RunState,
    RunStatus,
    Want,
)
from queries.domain.reasons import Because, Detail
from queries.domain.restart import Earlier, RestartPolicy
from queries.domain.states import (
    BLOCKED_PHASES,
    FAILED_PHASES,
    LIVE_PHASES,
    STOPPED_PHASES,
    Candidacy,
    Desired,
    DriverState,
    Phase,
    Reason,
    RestartBlock,
    StopMode,
)
from queries.domain.supervision.observation import (
    DriverSeen,
    Limits,
    Liveness,
    Observation,
    QuerySeen,
    RunSeen,
    Sighting,
    Slots,
    Suspicion,
)
from queries.domain.supervision.outcomes import fault_of

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
LIMITS = Limits(start_s=180, start_max_s=1800, stop_s=60)
FREE = Slots(starting=0, limit=2, memory_used_mb=0, memory_budget_mb=4096, memory_needed_mb=1024)
ERRORS = [
    RunError("DIVIDE_BY_ZERO", "ArithmeticException", "Division by zero", "Division by zero"),
    RunError("", "java.net.ConnectException", "Connection refused", "Connection refused"),
    RunError("DATA_SOURCE_NOT_FOUND", "X", "no kafka", "[DATA_SOURCE_NOT_FOUND] no kafka"),
    RunError("", "py4j.protocol.Py4JNetworkError", "gone", "gone"),
    RunError("", "X", "The specified bucket does not exist.", ""),
    RunError("", "X", "The provided token has expired.", ""),
]

#: Most of what is seen does not hang, so that the rest of the rules is tried as often.
SELDOM_HANGS = [Hangs.NOTHING] * 6 + [Hangs.START, Hangs.STOP]

#: Strategies are made once: to make one costs more than to draw from it.
moments = st.integers(-4000, 4000).map(lambda s: NOW + timedelta(seconds=s))
past = st.integers(0, 4000).map(lambda s: NOW - timedelta(seconds=s))
maybe = st.none() | moments
maybe_past = st.none() | past
yes_or_no = st.booleans()
up_to = {most: st.integers(0, most) for most in (0, 1, 2, 3, 5, 9, 4096)}
maybe_up_to_3 = st.none() | up_to[3]
desires = st.sampled_from(list(Desired))
live_phases = st.sampled_from(sorted(LIVE_PHASES))
stopped_phases = st.sampled_from(sorted(STOPPED_PHASES))
waiting_phases = st.sampled_from(sorted(FAILED_PHASES | {Phase.PENDING}))
reasons = st.sampled_from(list(Reason))
#: All that `decide` gives for ON_HOLD (its own test says so): what is seen has come from it.
BREAKS = frozenset(
    {Reason.FAILED_POISON, Reason.FAILED_REPEATED, Reason.KILLS_DRIVER, Reason.PROBE_FAILED}
)
breaks = st.sampled_from(sorted(BREAKS))
stop_modes = st.sampled_from(list(StopMode))
candidacies = st.sampled_from(list(Candidacy))
wants = st.sampled_from(list(Want))
run_states = st.sampled_from([s for s in RunState if s is not RunState.ABSENT])
refusals = st.sampled_from(["held", "fenced", "foreign"])
errors = st.sampled_from(ERRORS)
maybe_errors = st.none() | errors
hangs = st.sampled_from(SELDOM_HANGS)
prints = st.sampled_from(
    [fault_of(one, subject=FailureSubject.SQL).fingerprint for one in ERRORS[:5:4]]
)
recent_failures = st.lists(st.builds(Earlier, prints, maybe_up_to_3, yes_or_no), max_size=4).map(
    tuple
)
livenesses = st.sampled_from(list(Liveness))
exit_codes = st.sampled_from(["0", "1", "SIGKILL", "UNKNOWN"])
driver_states = st.sampled_from(sorted({DriverState.STARTING, DriverState.LIVE}))
ends_wanted = st.sampled_from(
    [Reason.NONE, Reason.NOT_WANTED, Reason.REPLACED, Reason.START_TIMED_OUT]
)
failure_scopes = st.sampled_from(["query", "application"])
restart_blocks = st.sampled_from([RestartBlock.NONE, RestartBlock.FAILED])


def _phases(run: bool, desired: Desired) -> st.SearchStrategy[Phase]:
    if run:
        return live_phases
    return stopped_phases if desired is Desired.STOPPED else waiting_phases


def _run_status(draw: st.DrawFn, run: int, query: int) -> RunStatus | None:
    if draw(yes_or_no):
        return None
    state = draw(run_states)
    failed = state in {RunState.FAILED, RunState.REFUSED}
    error = draw(errors) if failed else None
    if error is not None and state is RunState.REFUSED:
        error = replace(error, refused=draw(refusals))
    if state is RunState.FAILED and draw(yes_or_no):
        error = None
    return RunStatus(
        run=run,
        query=query,
        state=state,
        asked_for=draw(wants),
        started_at=NOW.isoformat() if draw(yes_or_no) else None,
        failed_batch=draw(maybe_up_to_3),
        error=error,
    )


def _run(draw: st.DrawFn, number: int, driver: int, generation: int) -> RunSeen:
    proven = draw(maybe_past)
    return RunSeen(
        id=number * 10,
        driver=driver,
        generation=draw(up_to[generation]),
        created_at=draw(past),
        ends_by_itself=draw(yes_or_no),
        proven_at=proven,
        committed=proven is not None and draw(yes_or_no),
        stop_asked_at=draw(maybe_past),
        status=_run_status(draw, number * 10, number),
        in_flight=draw(maybe_up_to_3),
        in_flight_known=draw(yes_or_no),
    )


def _query_seen(draw: st.DrawFn, number: int, driver: int | None) -> QuerySeen:
    desired = draw(desires)
    generation = draw(up_to[3])
    run = None
    if driver is not None and draw(yes_or_no):
        run = _run(draw, number, driver, generation)
    phase = draw(_phases(run is not None, desired))
    restart_block = RestartBlock(phase.value) if phase in BLOCKED_PHASES else RestartBlock.NONE
    # A query whose phase says that it has stopped has left nothing in its driver.
    may_hang = driver is not None and phase not in STOPPED_PHASES
    return QuerySeen(
        id=number,
        name=f"q{number}",
        desired=desired,
        generation=generation,
        seen_generation=draw(up_to[generation]),
        reached_generation=draw(up_to[generation]),
        phase=phase,
        phase_reason=draw(breaks if phase is Phase.ON_HOLD else reasons),
        phase_detail=Because(Detail.OTHER, {"text": "before"}),
        stop_mode=draw(stop_modes),
        stop_deadline=draw(maybe),
        failures=draw(up_to[5]),
        next_attempt_at=draw(maybe),
        restart_block=restart_block,
        run=run,
        hangs=draw(hangs) if may_hang else Hangs.NOTHING,
        recent_failures=draw(recent_failures),
        suspicion=Suspicion(draw(candidacies), draw(up_to[9]), draw(up_to[2])),
        remote=draw(yes_or_no),
    )


def _sighting(draw: st.DrawFn) -> Sighting:
    liveness = draw(livenesses)
    status = None
    if draw(yes_or_no):
        status = DriverStatus(
            epoch=1,
            applied_generation=1,
            at=NOW.isoformat(),
            ready=draw(yes_or_no),
            error=draw(maybe_errors),
        )
    report = None
    if liveness is Liveness.EXITED:
        codes = draw(exit_codes), draw(exit_codes)
        report = ExitReport(*codes, False, draw(yes_or_no), NOW.isoformat())
    return Sighting(liveness=liveness, status=status, exit=report, without_files=draw(yes_or_no))


def observation(*queries: QuerySeen, driver: DriverSeen | None, **fields: Any) -> Observation:
    """Return an application with these queries, on a host with room for its driver."""
    base = Observation(
        application=1,
        name="app",
        generation=0,
        seen_generation=0,
        reached_generation=0,
        policy=RestartPolicy(),
        failure_scope="query",
        queries=queries,
        driver=driver,
        slots=FREE,
        limits=LIMITS,
    )
    return replace(base, **fields)


@st.composite
def _observations(draw: st.DrawFn) -> Observation:
    driver = None
    if draw(yes_or_no):
        driver = DriverSeen(
            id=1,
            epoch=1,
            state=draw(driver_states),
            generation=draw(up_to[2]),
            created_at=draw(past),
            sighting=_sighting(draw),
            end_wanted=draw(ends_wanted),
            end_wanted_at=draw(maybe_past),
        )
    unseen = driver is not None and driver.sighting.liveness is Liveness.ELSEWHERE
    silent = unseen or (driver is None and draw(yes_or_no))
    return Observation(
        application=1,
        name="app",
        silent_host="host-b" if silent else "",
        generation=draw(up_to[2]),
        seen_generation=draw(up_to[2]),
        reached_generation=0,
        policy=RestartPolicy(),
        failure_scope=draw(failure_scopes),
        queries=tuple(
            _query_seen(draw, number, driver.id if driver else None)
            for number in range(1, draw(up_to[3]) + 1)
        ),
        driver=driver,
        slots=Slots(draw(up_to[3]), 2, draw(up_to[4096]), 4096, 1024),
        limits=LIMITS,
        failures=(failures := draw(up_to[5])),
        recent_failures=draw(recent_failures),
        deaths=min(failures, draw(up_to[5])),
        next_attempt_at=draw(maybe),
        restart_block=draw(restart_blocks),
        paused=draw(yes_or_no),
        standby=driver is None and not silent and draw(yes_or_no),
        no_classes="there is no Java" if driver is None and draw(yes_or_no) else "",
        classes_failed=draw(yes_or_no),
    )


observations = _observations()
