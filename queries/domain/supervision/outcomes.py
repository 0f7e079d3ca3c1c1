"""What the end of a run or a driver means: stopped, completed or failed, and tried again when."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from queries.domain import restart
from queries.domain.failures.categories import Category
from queries.domain.failures.diagnosis import Classified, classify, classify_exit
from queries.domain.failures.fingerprints import fingerprint
from queries.domain.protocol import ExitReport, RunError, RunState, RunStatus, Want
from queries.domain.reasons import Because, Detail
from queries.domain.restart import RestartPolicy
from queries.domain.states import Hold, Policy, Reason, RunOutcome
from queries.domain.supervision.decision import Fault, RunEnd
from queries.domain.supervision.observation import DriverSeen, QuerySeen, RunSeen

#: Ends of a driver that were requested and are no failures.
ASKED_ENDS = frozenset(
    {
        Reason.NOT_WANTED,
        Reason.REPLACED,
        Reason.SHUTDOWN,
        Reason.FAILURE_SCOPE,
        Reason.FENCED,
        Reason.HANGS,
    }
)

#: The exit that a shim reports if it found a later epoch: it never started a driver.
FENCED = "FENCED"

UNASKED = Classified(
    category=Category.UNKNOWN,
    policy=Policy.RETRY,
    title="Ended unexpectedly",
    meaning="Spark ended the query cleanly although its trigger does not end by itself.",
    way_out="Check the application's code for a call of stop(). The query is restarted.",
)


def exit_of(driver: DriverSeen, *, at: str) -> ExitReport:
    """Return the driver's exit report, or UNKNOWN where its shim left none (invariant I3)."""
    report = driver.sighting.exit
    if report is not None:
        return report
    return ExitReport(python="UNKNOWN", jvm="UNKNOWN", core=False, oom=False, at=at)


def driver_fault(driver: DriverSeen, report: ExitReport) -> Fault | None:
    """Return why the driver's end is a failure, or None where its end was wanted."""
    if driver.end_wanted in ASKED_ENDS:
        return None
    status = driver.sighting.status
    error = status.error if status else None
    if error is not None:
        script = status.script if status else None
        return fault_of(error, batch=script.failed_batch if script else None)
    if driver.end_wanted is Reason.START_TIMED_OUT:
        text = "The driver's Spark session was not up in time."
        return fault_of(
            RunError(error_class="", type_name="StartTimedOut", root_cause=text, message=text)
        )
    classified = classify_exit(python=report.python, jvm=report.jvm, oom=report.oom)
    print_ = fingerprint(
        error_class="", type_name="driver-exit", root_cause=classified.title, message=""
    )
    return Fault(classified=classified, fingerprint=print_, error=None)


def run_end(
    query: QuerySeen,
    run: RunSeen,
    *,
    driver_ended: bool,
    driver_asked: bool,
    by_script: bool = False,
) -> RunEnd | None:
    """Return how the run ended, or None while it is open; a script may stop its queries itself."""
    status = run.status
    state = status.state if status else RunState.ABSENT
    if state is RunState.FAILED and status is not None and not _died_with_jvm(status, driver_ended):
        return RunEnd(run.id, RunOutcome.FAILED, _run_fault(status))
    if state is RunState.REFUSED and status is not None:
        return RunEnd(run.id, RunOutcome.REFUSED, _run_fault(status))
    if state is RunState.ENDED and status is not None:
        if status.asked_for is not Want.RUN:
            return RunEnd(run.id, RunOutcome.STOPPED)
        if run.ends_by_itself:
            return RunEnd(run.id, RunOutcome.COMPLETED)
        if by_script:
            return RunEnd(run.id, RunOutcome.STOPPED)
        print_ = fingerprint(
            error_class="", type_name="unasked", root_cause=UNASKED.title, message=""
        )
        fault = Fault(UNASKED, print_, None, status.last_batch, {}, status.last_progress)
        return RunEnd(run.id, RunOutcome.FAILED, fault)
    if driver_ended:
        replaced = query.generation > run.generation
        stopped = driver_asked or replaced or run.stop_asked_at is not None
        outcome = RunOutcome.STOPPED if stopped else RunOutcome.DRIVER_ENDED
        if driver_asked:
            return RunEnd(run.id, outcome)
        return RunEnd(run.id, outcome, candidacy=run.candidacy, batch=run.in_flight)
    return None


def _died_with_jvm(status: RunStatus, driver_ended: bool) -> bool:
    # A JVM that is killed shows in its Python as a broken py4j connection of every query:
    # that is the driver's death, not the queries' failure.
    error = status.error
    return driver_ended and error is not None and error.type_name.startswith("py4j.")


def _run_fault(status: RunStatus) -> Fault:
    error = status.error or RunError(
        error_class="", type_name="", root_cause="The driver gave no reason.", message=""
    )
    return fault_of(
        error,
        batch=status.failed_batch,
        offsets=status.failed_offsets,
        last_progress=status.last_progress,
    )


def fault_of(
    error: RunError,
    *,
    batch: int | None = None,
    offsets: dict[str, object] | None = None,
    last_progress: dict[str, object] | None = None,
) -> Fault:
    """Return the failure that an error is, classified."""
    fields = ("error_class", "type_name", "root_cause", "message")
    texts = {name: str(getattr(error, name)) for name in fields}
    classified = classify(**texts, refused=error.refused, in_batch=batch is not None)
    print_ = fingerprint(**texts)
    return Fault(classified, print_, error, batch, dict(offsets or {}), last_progress)


@dataclass(frozen=True, slots=True)
class Rung:
    """Where a failure leaves a query or a script on the ladder of restarts."""

    hold: Hold
    next_attempt_at: datetime | None  # None: at once, or by an operator's act alone
    detail: Because


def climb(
    policy: RestartPolicy,
    fault: Fault,
    *,
    failures: int,
    recent: Sequence[tuple[str, int | None]],
    hold: Hold,
    key: str,
    now: datetime,
) -> Rung:
    """Return what follows a failure: held, tried rarely, or tried again after its delay.

    `failures` counts it, `recent` are (fingerprint, batch) of those before it, newest first, `hold`
    is what held before it, and `key` spreads the delays of many.
    """
    classified = fault.classified
    said = {"title": classified.title.rstrip("."), "way_out": classified.way_out}
    detail = Because(Detail.FAILURE, said)
    if classified.policy is Policy.FATAL:
        return Rung(Hold.FAILED, None, detail)
    poison = classified.policy is Policy.POISON
    poisoned = poison and restart.poisoned(
        policy, fingerprint=fault.fingerprint, batch=fault.batch, recent=recent[: failures - 1]
    )
    if poisoned:
        at = {"batch": fault.batch, "limit": policy.poison_limit}
        detail = Because(Detail.POISONED, said | at)
    if poisoned or (poison and hold is Hold.BROKEN):
        return Rung(Hold.BROKEN, now + timedelta(seconds=policy.probe_every_s), detail)
    wait = restart.delay(policy, failures, key=key)
    return Rung(Hold.NONE, now + wait if wait else None, detail)
