"""What the end of a run or driver means: stopped, completed or failed, and when it is retried."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from queries.domain import restart
from queries.domain.failures.categories import Category
from queries.domain.failures.diagnosis import Classified, classify, classify_exit
from queries.domain.failures.error_text import fingerprint
from queries.domain.failures.subjects import FailureSubject
from queries.domain.protocol import (
    EXIT_CHECKPOINT_LOST,
    ExitReport,
    RunError,
    RunState,
    RunStatus,
    ScriptState,
    Want,
)
from queries.domain.reasons import Because, Detail
from queries.domain.restart import Earlier, RestartPolicy
from queries.domain.states import Desired, Hold, Phase, Policy, Reason, RunOutcome
from queries.domain.supervision.decision import Fault, RunEnd
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

#: Policies that hold after the limit, and the reason for that hold.
_HOLD_REASONS = {Policy.POISON: Reason.FAILED_POISON, Policy.LIMITED: Reason.FAILED_REPEATED}

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

    `late` says why its start was given up, if it was.
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
        python=report.python, jvm=report.jvm, oom=report.oom, killed=report.killed
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
    """What follows a failure of a query or a script: its next attempt, or a hold."""

    hold: Hold
    next_attempt_at: datetime | None  # None: immediately, or only by an operator's action
    detail: Because
    hold_cause: Reason = Reason.NONE  # the reason for BROKEN


def climb(
    policy: RestartPolicy,
    fault: Fault,
    *,
    failures: int,
    recent: Sequence[Earlier],
    committed: bool,
    hold: Hold,
    key: str,
    now: datetime,
) -> Rung:
    """Return what follows a failure: a hold, rare attempts, or a retry after its delay.

    `failures` includes this one, `recent` are the earlier ones, newest first, `committed` says
    whether a batch was committed before this one, `hold` is the previous hold, and `key` spreads
    out the delays of different queries.
    """
    classified = fault.classified
    params = {"title": classified.title.rstrip("."), "way_out": classified.way_out}
    detail = Because(Detail.FAILURE, params)
    if classified.policy is Policy.FATAL:
        return Rung(Hold.FAILED, None, detail)
    why = _over_the_limit(policy, fault, recent[: failures - 1], committed=committed)
    if why is not None:
        detail = Because(why, params | {"batch": fault.batch, "limit": policy.poison_limit})
    if why is not None or (classified.policy in _HOLD_REASONS and hold is Hold.BROKEN):
        reason = _HOLD_REASONS[classified.policy] if why is not None else Reason.PROBE_FAILED
        return Rung(Hold.BROKEN, now + timedelta(seconds=policy.probe_every_s), detail, reason)
    wait = restart.delay(policy, failures, key=key)
    if classified.category is Category.EVOLVED and _again(fault, recent) < restart.AT_ONCE:
        wait = timedelta(0)
    return Rung(Hold.NONE, now + wait if wait else None, detail)


def _over_the_limit(
    policy: RestartPolicy, fault: Fault, before: Sequence[Earlier], *, committed: bool
) -> Detail | None:
    """Return why the failure is held, if it has repeated as often as its policy allows."""
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
