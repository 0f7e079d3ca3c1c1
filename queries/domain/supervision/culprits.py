"""Find the query of a shared driver that kills the process, and let its neighbours continue.

`os._exit`, a JVM crash or exhausted memory takes down every query of the driver, and no error shows
which query caused the death. So after several deaths in a row, the next driver starts its queries
one after the other. If the driver dies during a query's start or first batch, while nothing else
was under way, that query is held. If others were under way too, the query is only started first,
and alone, in the next driver: no query is held because a neighbour killed the driver late.
"""

from collections.abc import Iterable
from datetime import timedelta

from queries.domain.failures.subjects import FailureSubject
from queries.domain.protocol import CUT_OFF, JVM_DIED, SPARK_STOPPED, ExitReport, RunError
from queries.domain.reasons import Because, Detail
from queries.domain.states import Candidacy, Desired, Hold, Reason, RunOutcome
from queries.domain.supervision.draft import Draft, QueryDraft
from queries.domain.supervision.outcomes import fault_of

#: Driver deaths in a row (`is_in_a_row`) after which the search for the culprit begins.
DEATHS = 3
#: The error type of a held culprit's failure.
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

    `runs` tells of each whether it had committed a batch, and what it was doing. Commits end the
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
    """Return the due query to start now: first those that looked guilty at the last death.

    None while the driver's session is not up, while another query has its turn, or if none is due.
    """
    if not draft.driver_ready or starting_query(draft) is not None:
        return None
    due = [work for work in draft.queries if draft.subject.is_due(draft, work) and not work.hangs]
    return min(due, key=_rank, default=None)


def blame(draft: Draft) -> None:
    """Hold the query whose start killed the driver, if that is proven."""
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
        return  # it was being stopped and will not start again, so there is nothing to hold
    if work.observed.suspicion.lone + 1 < _deaths_needed(draft.exit):
        return
    exit_ = draft.fault.classified.title
    evidence = Because(Detail.KILLS_DRIVER, {"deaths": draft.deaths, "exit": exit_})
    error = RunError("", KILLS_DRIVER, evidence.text, evidence.text)
    work.ended = work.ended.with_fault(fault_of(error, subject=FailureSubject.SQL))
    work.failures += 1
    work.hold, work.next_attempt_at = Hold.BROKEN, None
    work.detail, work.hold_cause = evidence, Reason.KILLS_DRIVER
    draft.next_attempt_at = None  # the cause of death is gone: the others restart immediately


def _deaths_needed(report: ExitReport) -> int:
    """Return how often a driver must have died during a lone start before the query is held."""
    code = report.jvm if report.python == str(JVM_DIED) else report.python
    return 2 if code in _OUTSIDE and not report.oom else 1


def _may_run(work: QueryDraft) -> bool:
    waits = work.hold is Hold.BROKEN and work.next_attempt_at is None
    wanted = work.observed.desired is Desired.RUNNING and not work.completed
    return wanted and work.hold is not Hold.FAILED and not waits


def _rank(work: QueryDraft) -> tuple[int, int]:
    suspicion = work.observed.suspicion
    return _ORDER.index(suspicion.last), -suspicion.run
