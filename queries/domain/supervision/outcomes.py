"""What the end of a run or driver means, when it is retried, and which query killed the process.

`os._exit`, a JVM crash or exhausted memory takes down every query of the driver, and no error shows
which query caused the death. So after several deaths in a row, the next driver starts its queries
one after the other. If the driver dies during a query's start or first batch, while nothing else
was in progress, that query is put on hold. If others were in progress too, the query is only
started first, and alone, in the next driver: no query is put on hold because a neighbour killed the
driver late.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from queries.domain import restart
from queries.domain.failures.categories import Category, FailureSubject
from queries.domain.failures.diagnosis import Classified, classify, classify_exit
from queries.domain.failures.error_text import fingerprint
from queries.domain.protocol import (
    CUT_OFF,
    EXIT_CHECKPOINT_LOST,
    JVM_DIED,
    SPARK_STOPPED,
    ExitReport,
    RunError,
    RunState,
    RunStatus,
    ScriptState,
    Want,
)
from queries.domain.reasons import Because, Detail
from queries.domain.restart import Earlier, RestartPolicy
from queries.domain.states import (
    Candidacy,
    Desired,
    Phase,
    Policy,
    Reason,
    RestartBlock,
    RunOutcome,
)
from queries.domain.supervision.decision import Draft, Fault, QueryDraft, RunEnd
from queries.domain.supervision.observation import DriverSeen, QuerySeen, RunSeen

#: Driver ends that were requested and are not failures.
REQUESTED_ENDS = frozenset(
    {
        Reason.NOT_WANTED,
        Reason.REPLACED,
        Reason.SHUTDOWN,
        Reason.FAILURE_SCOPE,
        Reason.FENCED,
        Reason.HANGS,
        Reason.STALLED,
        Reason.HOST_GONE,
    }
)

#: Policies that put a query on hold after the limit, and the reason.
_BLOCK_REASONS = {Policy.POISON: Reason.FAILED_POISON, Policy.LIMITED: Reason.FAILED_REPEATED}

#: The exit that a shim reports if it found a later epoch: it never started a driver.
FENCED = "FENCED"

UNASKED = Classified(
    category=Category.UNKNOWN,
    policy=Policy.RETRY,
    title="Ended unexpectedly",
    meaning="Spark ended the query cleanly although its trigger does not end on its own.",
    way_out="Check the application's code for calls to stop(). The query is restarted.",
)


def was_fenced(report: ExitReport) -> bool:
    """Return whether a driver ended, or never began, because a later one has taken over."""
    return report.python == FENCED or report.jvm == str(EXIT_CHECKPOINT_LOST)


def exit_of(driver: DriverSeen, *, at: str) -> ExitReport:
    """Return the driver's exit report, or UNKNOWN if its shim left none (invariant I3)."""
    report = driver.sighting.exit
    if report is not None:
        return report
    return ExitReport(python="UNKNOWN", jvm="UNKNOWN", core=False, oom=False, at=at)


def driver_fault(driver: DriverSeen, report: ExitReport, late: str) -> Fault | None:
    """Return why the driver's end is a failure; None if it was requested.

    `late` is why its start was abandoned, if it was.
    """
    if driver.end_wanted in REQUESTED_ENDS:
        return None
    status = driver.sighting.status
    error = status.error if status else None
    if error is not None:
        script = status.script if status else None
        batch = script.failed_batch if script else None
        return fault_of(error, subject=FailureSubject.APPLICATION, batch=batch)
    if driver.end_wanted is Reason.START_TIMED_OUT:
        text = f"The driver's Spark session was not up in time. {late}"
        if status is not None and status.ready:
            text = f"The driver's Spark session came up after its start was given up. {late}"
        return _late(text, FailureSubject.APPLICATION)
    classified = classify_exit(
        python=report.python,
        jvm=report.jvm,
        oom=report.oom,
        killed=report.killed,
        pod=driver.sighting.ended,
    )
    print_ = fingerprint(
        error_class="", type_name="driver-exit", root_cause=classified.title, message=""
    )
    return Fault(classified=classified, fingerprint=print_, error=None)


def exit_reason(driver: DriverSeen, report: ExitReport, fault: Fault | None) -> Reason:
    """Return how a driver ended, as far as its exit and its own report show."""
    if was_fenced(report):
        return Reason.FENCED
    status = driver.sighting.status
    script = status.script if status else None
    if fault is None:
        completed = script is not None and script.state is ScriptState.COMPLETED
        return Reason.SCRIPT_ENDED if completed else driver.end_wanted
    if fault.error is None:
        return Reason.DRIVER_DIED
    if status is None or status.error is None:
        return Reason.START_TIMED_OUT
    return Reason.SESSION_FAILED if script is None else Reason.SCRIPT_FAILED


def _late(text: str, subject: FailureSubject) -> Fault:
    error = RunError("", "StartTimedOut", root_cause=text, message=text)
    return fault_of(error, subject=subject)


def run_end(
    query: QuerySeen,
    run: RunSeen,
    *,
    driver_ended: bool,
    driver_end_requested: bool,
    by_itself: bool = False,
) -> RunEnd | None:
    """Return how the run ended; None while it is open. A script may stop its queries itself."""
    status = run.status
    state = status.state if status else RunState.ABSENT
    # Nobody requested its end: it was abandoned because its start took too long.
    late = query.phase is Phase.STOPPING and query.phase_reason is Reason.START_TIMED_OUT
    late = late and query.desired is Desired.RUNNING and query.generation == run.generation
    if state is RunState.FAILED and status is not None and not _died_with_jvm(status, driver_ended):
        return RunEnd(run.id, RunOutcome.FAILED, _run_fault(status, run.subject))
    if state is RunState.REFUSED and status is not None:
        return RunEnd(run.id, RunOutcome.REFUSED, _run_fault(status, run.subject))
    if state is RunState.ENDED and status is not None:
        if status.asked_for is not Want.RUN:
            if late:
                fault = _late("Spark had not started the query in time.", run.subject)
                return RunEnd(run.id, RunOutcome.FAILED, fault)
            return RunEnd(run.id, RunOutcome.STOPPED)
        if run.ends_by_itself:
            return RunEnd(run.id, RunOutcome.COMPLETED)
        if by_itself:
            return RunEnd(run.id, RunOutcome.STOPPED)
        print_ = fingerprint(
            error_class="", type_name="unasked", root_cause=UNASKED.title, message=""
        )
        fault = Fault(UNASKED, print_, None, status.last_batch, {}, status.last_progress)
        return RunEnd(run.id, RunOutcome.FAILED, fault)
    if driver_ended:
        replaced = query.generation > run.generation
        stopped = driver_end_requested or replaced or (run.stop_asked_at is not None and not late)
        outcome = RunOutcome.STOPPED if stopped else RunOutcome.DRIVER_ENDED
        if driver_end_requested:
            return RunEnd(run.id, outcome)
        return RunEnd(run.id, outcome, candidacy=run.candidacy, batch=run.in_flight)
    return None


def _died_with_jvm(status: RunStatus, driver_ended: bool) -> bool:
    # When a JVM is killed, every query in its Python process sees a broken py4j connection: that is
    # the driver's death, not a failure of the queries.
    error = status.error
    return driver_ended and error is not None and error.type_name.startswith("py4j.")


def _run_fault(status: RunStatus, subject: FailureSubject) -> Fault:
    error = status.error or RunError(
        error_class="", type_name="", root_cause="The driver reported no reason.", message=""
    )
    return fault_of(
        error,
        subject=subject,
        batch=status.failed_batch,
        offsets=status.failed_offsets,
        last_progress=status.last_progress,
    )


def fault_of(
    error: RunError,
    *,
    subject: FailureSubject,
    batch: int | None = None,
    offsets: dict[str, object] | None = None,
    last_progress: dict[str, object] | None = None,
) -> Fault:
    """Return an error as a classified failure."""
    fields = ("error_class", "type_name", "root_cause", "message")
    texts = {name: str(getattr(error, name)) for name in fields}
    classified = classify(
        **texts, refused=error.refused, in_batch=batch is not None, subject=subject
    )
    print_ = fingerprint(**texts)
    return Fault(classified, print_, error, batch, dict(offsets or {}), last_progress)


@dataclass(frozen=True, slots=True)
class Rung:
    """What follows a failure of a query or a script: its next attempt, or a restart block."""

    restart_block: RestartBlock
    next_attempt_at: datetime | None  # None: immediately, or only by an operator's action
    detail: Because
    restart_block_cause: Reason = Reason.NONE  # the reason for ON_HOLD


def climb(
    policy: RestartPolicy,
    fault: Fault,
    *,
    failures: int,
    recent: Sequence[Earlier],
    committed: bool,
    restart_block: RestartBlock,
    key: str,
    now: datetime,
) -> Rung:
    """Return what follows a failure: a restart block, rare attempts, or a retry after its delay.

    `failures` includes this one, `recent` are the earlier ones, newest first, `committed` says
    whether a batch was committed before this one, `restart_block` is the previous one, and
    `key` spreads out the delays of different queries.
    """
    classified = fault.classified
    params = {"title": classified.title.rstrip("."), "way_out": classified.way_out}
    detail = Because(Detail.FAILURE, params)
    if classified.policy is Policy.FATAL:
        return Rung(RestartBlock.FAILED, None, detail)
    why = _over_the_limit(policy, fault, recent[: failures - 1], committed=committed)
    if why is not None:
        detail = Because(why, params | {"batch": fault.batch, "limit": policy.poison_limit})
    if why is not None or (
        classified.policy in _BLOCK_REASONS and restart_block is RestartBlock.ON_HOLD
    ):
        reason = _BLOCK_REASONS[classified.policy] if why is not None else Reason.PROBE_FAILED
        return Rung(
            RestartBlock.ON_HOLD, now + timedelta(seconds=policy.probe_every_s), detail, reason
        )
    wait = restart.delay(policy, failures, key=key)
    if classified.category is Category.EVOLVED and _again(fault, recent) < restart.AT_ONCE:
        wait = timedelta(0)
    return Rung(RestartBlock.NONE, now + wait if wait else None, detail)


def _over_the_limit(
    policy: RestartPolicy, fault: Fault, before: Sequence[Earlier], *, committed: bool
) -> Detail | None:
    """Return why the query is put on hold, if it has repeated as often as its policy allows."""
    classified, print_ = fault.classified, fault.fingerprint
    if classified.policy is Policy.LIMITED:
        over = restart.repeated(policy, fingerprint=print_, committed=committed, recent=before)
        return Detail.REPEATED if over else None
    if classified.policy is not Policy.POISON:
        return None
    batch = fault.batch
    if classified.any_batch:
        before, batch = [earlier._replace(batch=0) for earlier in before], 0
    if not restart.poisoned(policy, fingerprint=print_, batch=batch, recent=before):
        return None
    return Detail.POISONS_EACH if classified.any_batch else Detail.POISONED


def _again(fault: Fault, recent: Sequence[Earlier]) -> int:
    """Return how many times in a row the same failure occurred just before this one."""
    before = takewhile(lambda earlier: earlier.fingerprint == fault.fingerprint, recent)
    return sum(1 for _ in before)


#: Driver deaths in a row (`is_in_a_row`) after which the search for the culprit begins.
DEATHS = 3
#: The error type of the failure of a culprit that is on hold.
KILLS_DRIVER = "KillsDriver"
#: How long a query has until its first commit or idle event before the next query is started: a
#: source that is not responding must not hold up the others.
START_WINDOW = timedelta(seconds=60)
#: Exits that something outside can also cause (`kill`, the kernel, a reboot): one of them proves
#: nothing against the query that happened to be starting.
_OUTSIDE = frozenset(
    {"0", "SIGKILL", "SIGTERM", "143", str(SPARK_STOPPED), str(CUT_OFF), "UNKNOWN"}
)

_ORDER = (Candidacy.STARTING, Candidacy.BATCH, Candidacy.UNKNOWN, Candidacy.NONE)


def is_in_a_row(runs: Iterable[tuple[bool, Candidacy]]) -> bool:
    """Return whether a driver's death continues the deaths before it, by what its runs had done.

    `runs` says for each whether it had committed a batch, and what it was doing. Commits end the
    row, unless one of the runs that may have killed the driver had none: its neighbours' commits do
    not clear it.
    """
    history = list(runs)
    if not any(committed for committed, _ in history):
        return True
    return any(candidacy and not committed for committed, candidacy in history)


def is_sequential(draft: Draft) -> bool:
    """Return whether the application's queries start one after the other."""
    return draft.deaths >= DEATHS and sum(_may_run(work) for work in draft.queries) > 1


def starting_query(draft: Draft) -> QueryDraft | None:
    """Return the query that is being waited for; None if the next one can start."""
    for work in draft.queries:
        run = work.run
        if run is not None and run.proven_at is None and draft.now - run.created_at < START_WINDOW:
            return work
    return None


def next_to_start(draft: Draft) -> QueryDraft | None:
    """Return the due query to start now: first the suspects of the last death.

    None while the driver's session is not up, while another query has its turn, or if none is due.
    """
    if not draft.driver_ready or starting_query(draft) is not None:
        return None
    due = [work for work in draft.queries if draft.subject.is_due(draft, work) and not work.hangs]
    return min(due, key=_rank, default=None)


def blame(draft: Draft) -> None:
    """Put on hold the query whose start killed the driver, if that is proven."""
    candidates = [work for work in draft.queries if work.ended and work.ended.candidacy]
    if not draft.is_sequential or draft.fault is None or len(candidates) != 1:
        return
    [work] = candidates
    assert work.ended is not None
    assert draft.exit is not None
    starting = work.ended.candidacy is Candidacy.STARTING
    if not starting or work.ended.outcome is not RunOutcome.DRIVER_ENDED:
        return
    if work.observed.desired is not Desired.RUNNING:
        return  # it was being stopped and will not start again, so there is nothing to put on hold
    if work.observed.suspicion.lone + 1 < _deaths_needed(draft.exit):
        return
    exit_ = draft.fault.classified.title
    evidence = Because(Detail.KILLS_DRIVER, {"deaths": draft.deaths, "exit": exit_})
    error = RunError("", KILLS_DRIVER, evidence.text, evidence.text)
    work.ended = work.ended.with_fault(fault_of(error, subject=FailureSubject.SQL))
    work.failures += 1
    work.restart_block, work.next_attempt_at = RestartBlock.ON_HOLD, None
    work.detail, work.restart_block_cause = evidence, Reason.KILLS_DRIVER
    draft.next_attempt_at = None  # the cause of death is gone: the others restart immediately


def _deaths_needed(report: ExitReport) -> int:
    """Return how many deaths during a lone start put the query on hold."""
    code = report.jvm if report.python == str(JVM_DIED) else report.python
    return 2 if code in _OUTSIDE and not report.oom else 1


def _may_run(work: QueryDraft) -> bool:
    waits = work.restart_block is RestartBlock.ON_HOLD and work.next_attempt_at is None
    wanted = work.observed.desired is Desired.RUNNING and not work.completed
    return wanted and work.restart_block is not RestartBlock.FAILED and not waits


def _rank(work: QueryDraft) -> tuple[int, int]:
    suspicion = work.observed.suspicion
    return _ORDER.index(suspicion.last), -suspicion.run
