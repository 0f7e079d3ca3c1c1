"""What every message and page about an incident states: its cause, location and next step.

Pages, mail, chat and REST show the same three, so that nobody has to look for them elsewhere. A
failure incident takes them from its group's newest failure, all others from their evidence and
kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from queries.domain.alerts.forms import IncidentKind


class NextStepPage(StrEnum):
    """The page on which the next step is taken: the name of its URL."""

    FAILURE = "failure"
    QUERY = "query"
    LAG = "query-lag"
    TRIGGER = "query-trigger"
    CHECKPOINT = "query-checkpoint"
    DEFINITION = "query-definition"
    APPLICATION = "application"
    QUESTION = "application-question"
    SYSTEM = "system"
    CHANNELS = "alert-channels"
    RULES = "alert-rules"
    INCIDENT = "incident"


#: Pages of exactly one query, and of exactly one application.
OF_QUERY = frozenset(
    {
        NextStepPage.QUERY,
        NextStepPage.LAG,
        NextStepPage.TRIGGER,
        NextStepPage.CHECKPOINT,
        NextStepPage.DEFINITION,
    }
)
OF_APPLICATION = frozenset({NextStepPage.APPLICATION, NextStepPage.QUESTION})


@dataclass(frozen=True, slots=True)
class FailureTexts:
    """A failure behind an incident; the wording comes from its classification."""

    title: str
    meaning: str
    way_out: str
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class IncidentScope:
    """Where an incident is."""

    queries: Sequence[str] = ()
    more: int = 0  # queries that are not listed
    application: str = ""
    run: int | None = None
    host: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why there is an incident, where it is, what to do next and on which page."""

    cause: str
    place: str
    step: str
    page: NextStepPage


@dataclass(frozen=True, slots=True)
class _KindTexts:
    meaning: str
    step: str
    page: NextStepPage


_SEE_FAILURE = "Open its newest failure: it shows the root cause and offers the actions that help."
_IS_DELETED = "What is already deleted cannot be read: skip the lost data there."
_BY_HAND = "On that host, run `manage.py up` or restart its service, then read its log."
_KINDS: dict[IncidentKind, _KindTexts] = {
    IncidentKind.FAILED: _KindTexts(
        "It failed in a way that a restart cannot fix, so it stays down.",
        _SEE_FAILURE,
        NextStepPage.QUERY,
    ),
    IncidentKind.ON_HOLD: _KindTexts(
        "The same error returned until its limit was reached, or its start kills the driver.",
        _SEE_FAILURE,
        NextStepPage.QUERY,
    ),
    IncidentKind.CRASH_LOOP: _KindTexts(
        "It fails again and again; each retry waits longer.", _SEE_FAILURE, NextStepPage.QUERY
    ),
    IncidentKind.DRIVER_DEATHS: _KindTexts(
        "The driver process ended several times without a healthy period in between.",
        "Read the end of the driver's log on the application's page.",
        NextStepPage.APPLICATION,
    ),
    IncidentKind.STALLED: _KindTexts(
        "No task has finished for longer than its trigger and its batches explain.",
        "See the thread dump and the batch in flight on its Trigger page. If nothing moves, "
        "restart the query.",
        NextStepPage.TRIGGER,
    ),
    IncidentKind.QUERY_MISSING: _KindTexts(
        "The driver process is alive, but its JVM or its query has ended.",
        "Restart the query.",
        NextStepPage.QUERY,
    ),
    IncidentKind.NO_TELEMETRY: _KindTexts(
        "It still commits batches, but no events about them arrive.",
        "Check Redis and the ingester on the System page; the query itself works.",
        NextStepPage.SYSTEM,
    ),
    IncidentKind.LAGGING: _KindTexts(
        "It processes less than arrives, or takes longer than its trigger.",
        "Its Trigger page shows what took the time, and which settings would help.",
        NextStepPage.TRIGGER,
    ),
    IncidentKind.AT_RISK: _KindTexts(
        "The query has not read these records, and the source deletes them.",
        "Its Lag page shows partition and time: raise the topic's retention, or speed the query "
        f"up. {_IS_DELETED}",
        NextStepPage.LAG,
    ),
    IncidentKind.AT_RISK_STOPPED: _KindTexts(
        "The query is stopped, and the source deletes what it has not read.",
        "Its Lag page shows what it has not read: start the query, or raise the topic's retention. "
        f"{_IS_DELETED}",
        NextStepPage.LAG,
    ),
    IncidentKind.RECORDS_LOST: _KindTexts(
        "The source deleted these records before the query read them.",
        "Accept or correct the entry in the loss ledger on its Lag page.",
        NextStepPage.LAG,
    ),
    IncidentKind.LATE_RECORDS: _KindTexts(
        "Rows that arrive later than the watermark are dropped.",
        "See the ledger on its Lag page. A longer watermark keeps later rows, with more state.",
        NextStepPage.LAG,
    ),
    IncidentKind.SQL_REFUSED: _KindTexts(
        "The SQL was saved while Spark's parser did not respond; a start on it would fail.",
        "Correct the SQL in the query's definition.",
        NextStepPage.DEFINITION,
    ),
    IncidentKind.SOURCE_UNREACHABLE: _KindTexts(
        "The address does not respond, or refuses the connection.",
        "Check that the source is up and reachable from the host; the Lag page shows its error.",
        NextStepPage.LAG,
    ),
    IncidentKind.EVENTS_DROPPED: _KindTexts(
        "Events were dropped on the way; the query's output is not affected.",
        "Check the disk space of the driver's spool; figures of these batches are missing.",
        NextStepPage.QUERY,
    ),
    IncidentKind.STATE_LIMIT: _KindTexts(
        "The state grows and is kept in the driver's memory.",
        "Add or shorten a watermark, or increase the application's memory.",
        NextStepPage.CHECKPOINT,
    ),
    IncidentKind.THRESHOLD: _KindTexts(
        "A figure is beyond the limit that a user set.",
        "See the figure on the query's page, or change the threshold in its definition.",
        NextStepPage.QUERY,
    ),
    IncidentKind.REPLAY: _KindTexts(
        "Async progress tracking has not saved its offsets for that long.",
        "Shorten asyncProgressTrackingCheckpointIntervalMs, or switch the tracking off.",
        NextStepPage.TRIGGER,
    ),
    IncidentKind.CHECKPOINT_MOVED: _KindTexts(
        "Rows are read twice or skipped.",
        "Compare both locations; set the former one in the script if the move was not intended.",
        NextStepPage.CHECKPOINT,
    ),
    IncidentKind.STUCK_STOP: _KindTexts(
        "A thread of the driver does not end, so the checkpoint stays locked.",
        "End the driver from the incident's page; its other queries restart.",
        NextStepPage.INCIDENT,
    ),
    IncidentKind.PREFLIGHT_FAILING: _KindTexts(
        "It runs on an older revision.",
        "Run the preflight on the definition's page: it shows which check fails and why.",
        NextStepPage.DEFINITION,
    ),
    IncidentKind.QUERY_IDENTITY: _KindTexts(
        "The script started a query that is not known, and not one that is.",
        "Answer whether they are the same query; the script starts then.",
        NextStepPage.QUESTION,
    ),
    IncidentKind.HOST_SILENT: _KindTexts(
        "Its worker does not run, or cannot reach the database.",
        "Check that host. If it is gone for good, declare it gone on the page of an application.",
        NextStepPage.SYSTEM,
    ),
    IncidentKind.DISK: _KindTexts(
        "A file system is full, or nearly.",
        "Free up space there; what waits continues by itself.",
        NextStepPage.SYSTEM,
    ),
    IncidentKind.WEB_DOWN: _KindTexts(
        "The web process does not respond.", _BY_HAND, NextStepPage.SYSTEM
    ),
    IncidentKind.DATABASE_DOWN: _KindTexts(
        "Nothing can be saved or decided; running queries continue.",
        "Check the database server and its disk.",
        NextStepPage.SYSTEM,
    ),
    IncidentKind.REDIS_DOWN: _KindTexts(
        "Events and live pages wait; running queries continue.",
        "Check the Redis or Valkey server.",
        NextStepPage.SYSTEM,
    ),
    IncidentKind.WORKER_DOWN: _KindTexts(
        "Nothing is started, stopped or restarted.", _BY_HAND, NextStepPage.SYSTEM
    ),
    IncidentKind.TICKS_LATE: _KindTexts(
        "A task of the worker hangs or is overloaded.", _BY_HAND, NextStepPage.SYSTEM
    ),
    IncidentKind.INGESTER_DOWN: _KindTexts(
        "Figures on pages stand still; running queries continue.", _BY_HAND, NextStepPage.SYSTEM
    ),
    IncidentKind.DATA_OLD: _KindTexts(
        "Drivers run, but their reports arrive late.",
        "Check the ingester and Redis on the System page.",
        NextStepPage.SYSTEM,
    ),
    IncidentKind.NO_CHANNEL: _KindTexts(
        "The incidents that it matches are shown here, but it notifies nobody of them.",
        "Choose a channel that is enabled in the rule, or disable the rule.",
        NextStepPage.RULES,
    ),
    IncidentKind.CHANNEL_DEAD: _KindTexts(
        "Its messages are retried for a day, then given up.",
        "Correct the channel's settings or its secret, and send a test message.",
        NextStepPage.CHANNELS,
    ),
}
#: Kinds whose cause is a failure: of a query, or of a driver or script.
OF_FAILURE = frozenset(
    {
        *(IncidentKind.FAILED, IncidentKind.ON_HOLD, IncidentKind.CRASH_LOOP),
        *(IncidentKind.DRIVER_DEATHS, IncidentKind.QUERY_IDENTITY, IncidentKind.DISK),
    }
)
#: Kinds of a query's problem that restarting the query ends.
RESTART_ENDS = frozenset({IncidentKind.STALLED, IncidentKind.QUERY_MISSING})


def explained(
    kind: IncidentKind, detail: str, scope: IncidentScope, fault: FailureTexts | None = None
) -> Explanation:
    """Return the explanation of an incident; `fault` is None if no failure is known."""
    about = _KINDS[kind]
    if fault is None or kind not in OF_FAILURE:
        page = _possible(about.page, scope)
        return Explanation(joined(detail, about.meaning), _words(scope, None), about.step, page)
    title = "" if fault.title.rpartition("Exception: ")[2] in detail else fault.title
    step, page = fault.way_out, NextStepPage.FAILURE
    if kind is IncidentKind.QUERY_IDENTITY:  # only the answer ends it
        step, page = about.step, _possible(about.page, scope)
    cause = joined(title, detail, fault.meaning)
    return Explanation(cause, _words(scope, fault.batch), step, page)


def _possible(page: NextStepPage, scope: IncidentScope) -> NextStepPage:
    if page in OF_QUERY and (len(scope.queries) != 1 or scope.more):
        page = NextStepPage.APPLICATION
    return NextStepPage.INCIDENT if page in OF_APPLICATION and not scope.application else page


def joined(*texts: str) -> str:
    """Return the first line of each string as a sentence, without duplicates.

    Below the first line, an error has frames and dumps, which are shown on its page.
    """
    lines = dict.fromkeys(text.strip().splitlines()[0] for text in texts if text.strip())
    return " ".join(text if text.endswith((".", "!", "?", "…")) else f"{text}." for text in lines)


def _words(scope: IncidentScope, batch: int | None) -> str:
    listed = [*scope.queries, *([f"{scope.more:,} more"] if scope.more else [])]
    of_queries = f"{'query' if len(listed) == 1 else 'queries'} {', '.join(listed)}"
    parts = (
        of_queries if listed else "",
        f"batch {batch:,}" if batch is not None else "",
        f"run {scope.run}" if scope.run is not None else "",
        f"application {scope.application}" if scope.application else "",
        f"host {scope.host}" if scope.host else "",
    )
    return ", ".join(part for part in parts if part) or "Headgate"


#: How each kind's end is reported, where "the problem cleared" would leave a question.
_ENDS = {
    IncidentKind.AT_RISK: "The query has read them, or nothing more of its source is at risk.",
    IncidentKind.RECORDS_LOST: "The loss is recorded in the ledger; no further records were lost.",
    IncidentKind.FAILED: "It has been started again, stopped or deleted.",
}


def over(kind: IncidentKind, closed_by: str, accepted: str) -> str:
    """Return how an incident ended; its last evidence no longer holds.

    `accepted` is a sentence on losses that were accepted while it lasted, or "".
    """
    if closed_by:
        return joined(f"{closed_by} closed it", accepted)
    return joined("The problem has cleared", accepted or _ENDS.get(kind, ""))
