"""What every message and page about an incident states: its cause, its place, the next step.

Pages, mail, chat and REST show the same three, so that nobody has to look for them elsewhere. An
incident of a failure takes them from its group's newest failure, every other from its evidence and
its kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from queries.domain.alerts.kinds import IncidentKind


class Page(StrEnum):
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
OF_QUERY = frozenset({Page.QUERY, Page.LAG, Page.TRIGGER, Page.CHECKPOINT, Page.DEFINITION})
OF_APPLICATION = frozenset({Page.APPLICATION, Page.QUESTION})


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure behind an incident; the texts are those of its classification."""

    title: str
    meaning: str
    way_out: str
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
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
    page: Page


@dataclass(frozen=True, slots=True)
class _Kind:
    meaning: str
    step: str
    page: Page


_SEE_FAILURE = "Open its newest failure: it shows the root cause and offers the actions that help."
_IS_DELETED = "What is already deleted cannot be read: continue there without the lost data."
_BY_HAND = "On that host, run `manage.py up` or restart its service, then read its log."
_KINDS: dict[IncidentKind, _Kind] = {
    IncidentKind.FAILED: _Kind(
        "It failed in a way that a restart cannot fix, so it stays down.",
        _SEE_FAILURE,
        Page.QUERY,
    ),
    IncidentKind.BROKEN: _Kind(
        "The same error returned until the poison limit was reached, so it is on hold.",
        _SEE_FAILURE,
        Page.QUERY,
    ),
    IncidentKind.CRASH_LOOP: _Kind(
        "It fails again and again; each retry waits longer.", _SEE_FAILURE, Page.QUERY
    ),
    IncidentKind.DRIVER_DEATHS: _Kind(
        "The driver process ended several times without a healthy period in between.",
        "Read the end of the driver's log on the application's page.",
        Page.APPLICATION,
    ),
    IncidentKind.STALLED: _Kind(
        "No task has finished for longer than its trigger and its batches explain.",
        "See the thread dump and the batch in flight on its Trigger page. If nothing moves, "
        "restart the query.",
        Page.TRIGGER,
    ),
    IncidentKind.ZOMBIE: _Kind(
        "The driver process is alive, but its JVM or its query has ended.",
        "Restart the query.",
        Page.QUERY,
    ),
    IncidentKind.BLIND: _Kind(
        "It still commits batches, but no events about them arrive.",
        "Check Redis and the ingester on the System page; the query itself works.",
        Page.SYSTEM,
    ),
    IncidentKind.LAGGING: _Kind(
        "It processes less than arrives, or takes longer than its trigger.",
        "Its Trigger page shows what took the time, and which settings would help.",
        Page.TRIGGER,
    ),
    IncidentKind.AT_RISK: _Kind(
        "The query has not read these records, and the source deletes them.",
        "Its Lag page shows partition and time: raise the topic's retention, or speed the query "
        f"up. {_IS_DELETED}",
        Page.LAG,
    ),
    IncidentKind.AT_RISK_STOPPED: _Kind(
        "The query is stopped, and the source deletes what it has not read.",
        "Its Lag page shows what it has not read: start the query, or raise the topic's retention. "
        f"{_IS_DELETED}",
        Page.LAG,
    ),
    IncidentKind.RECORDS_LOST: _Kind(
        "The source deleted these records before the query read them.",
        "Accept or correct the entry in the loss ledger on its Lag page.",
        Page.LAG,
    ),
    IncidentKind.LATE_RECORDS: _Kind(
        "Rows that arrive later than the watermark are dropped.",
        "See the ledger on its Lag page. A longer watermark keeps later rows, with more state.",
        Page.LAG,
    ),
    IncidentKind.SQL_REFUSED: _Kind(
        "The SQL was saved while Spark's parser did not respond; a start on it would fail.",
        "Correct the SQL in the query's definition.",
        Page.DEFINITION,
    ),
    IncidentKind.SOURCE_UNREACHABLE: _Kind(
        "The address does not respond, or refuses the connection.",
        "Check that the source is up and reachable from the host; the Lag page shows its error.",
        Page.LAG,
    ),
    IncidentKind.EVENTS_DROPPED: _Kind(
        "Events were dropped on the way; the query's output is not affected.",
        "Check the disk space of the driver's spool; figures of these batches are missing.",
        Page.QUERY,
    ),
    IncidentKind.STATE_LIMIT: _Kind(
        "The state grows and is kept in the driver's memory.",
        "Add or shorten a watermark, or increase the application's memory.",
        Page.CHECKPOINT,
    ),
    IncidentKind.THRESHOLD: _Kind(
        "A figure is beyond the limit that a user set.",
        "See the figure on the query's page, or change the threshold in its definition.",
        Page.QUERY,
    ),
    IncidentKind.REPLAY: _Kind(
        "Async progress tracking has not saved its offsets for that long.",
        "Shorten asyncProgressTrackingCheckpointIntervalMs, or switch the tracking off.",
        Page.TRIGGER,
    ),
    IncidentKind.CHECKPOINT_MOVED: _Kind(
        "Rows are read twice or skipped.",
        "Compare both locations; set the former one in the script if the move was not intended.",
        Page.CHECKPOINT,
    ),
    IncidentKind.STUCK_STOP: _Kind(
        "A thread of the driver does not end, so the checkpoint stays locked.",
        "End the driver from the incident's page; its other queries restart.",
        Page.INCIDENT,
    ),
    IncidentKind.PREFLIGHT_FAILING: _Kind(
        "It runs on an older revision.",
        "Run the preflight on the definition's page: it shows which check fails and why.",
        Page.DEFINITION,
    ),
    IncidentKind.QUERY_IDENTITY: _Kind(
        "The script started a query that is not known, and not one that is.",
        "Answer whether they are the same query; the script starts then.",
        Page.QUESTION,
    ),
    IncidentKind.HOST_SILENT: _Kind(
        "Its worker does not run, or cannot reach the database.",
        "Check that host. If it is gone for good, declare it gone on the page of an application.",
        Page.SYSTEM,
    ),
    IncidentKind.DISK: _Kind(
        "A file system is full, or nearly.",
        "Free up space there; what waits continues by itself.",
        Page.SYSTEM,
    ),
    IncidentKind.WEB_DOWN: _Kind("The web process does not respond.", _BY_HAND, Page.SYSTEM),
    IncidentKind.DATABASE_DOWN: _Kind(
        "Nothing can be saved or decided; running queries continue.",
        "Check the database server and its disk.",
        Page.SYSTEM,
    ),
    IncidentKind.REDIS_DOWN: _Kind(
        "Events and live pages wait; running queries continue.",
        "Check the Redis or Valkey server.",
        Page.SYSTEM,
    ),
    IncidentKind.WORKER_DOWN: _Kind(
        "Nothing is started, stopped or restarted.", _BY_HAND, Page.SYSTEM
    ),
    IncidentKind.TICKS_LATE: _Kind(
        "A task of the worker hangs or is overloaded.", _BY_HAND, Page.SYSTEM
    ),
    IncidentKind.INGESTER_DOWN: _Kind(
        "Figures on pages stand still; running queries continue.", _BY_HAND, Page.SYSTEM
    ),
    IncidentKind.DATA_OLD: _Kind(
        "Drivers run, but their reports arrive late.",
        "Check the ingester and Redis on the System page.",
        Page.SYSTEM,
    ),
    IncidentKind.NO_CHANNEL: _Kind(
        "The incidents that it matches are shown here, but it notifies nobody of them.",
        "Choose a channel that is enabled in the rule, or disable the rule.",
        Page.RULES,
    ),
    IncidentKind.CHANNEL_DEAD: _Kind(
        "Its messages are retried for a day, then given up.",
        "Correct the channel's settings or its secret, and send a test message.",
        Page.CHANNELS,
    ),
}
#: Kinds whose cause is a failure: of a query, or of a driver or script.
OF_FAILURE = frozenset(
    {
        *(IncidentKind.FAILED, IncidentKind.BROKEN, IncidentKind.CRASH_LOOP),
        *(IncidentKind.DRIVER_DEATHS, IncidentKind.QUERY_IDENTITY, IncidentKind.DISK),
    }
)
#: Kinds of a query's problem that restarting the query ends.
RESTART_ENDS = frozenset({IncidentKind.STALLED, IncidentKind.ZOMBIE})


def explained(
    kind: IncidentKind, detail: str, place: Place, fault: Fault | None = None
) -> Explanation:
    """Return the explanation of an incident; `fault` is None if no failure is known."""
    about = _KINDS[kind]
    if fault is None or kind not in OF_FAILURE:
        page = _possible(about.page, place)
        return Explanation(joined(detail, about.meaning), _words(place, None), about.step, page)
    told = "" if fault.title.rpartition("Exception: ")[2] in detail else fault.title
    step, page = fault.way_out, Page.FAILURE
    if kind is IncidentKind.QUERY_IDENTITY:  # only the answer ends it
        step, page = about.step, _possible(about.page, place)
    cause = joined(told, detail, fault.meaning)
    return Explanation(cause, _words(place, fault.batch), step, page)


def _possible(page: Page, place: Place) -> Page:
    if page in OF_QUERY and (len(place.queries) != 1 or place.more):
        page = Page.APPLICATION
    return Page.INCIDENT if page in OF_APPLICATION and not place.application else page


def joined(*texts: str) -> str:
    """Return the first line of each text as sentences, each once.

    Below the first line, an error has frames and dumps, which its page shows.
    """
    told = dict.fromkeys(text.strip().splitlines()[0] for text in texts if text.strip())
    return " ".join(text if text.endswith((".", "!", "?", "…")) else f"{text}." for text in told)


def _words(place: Place, batch: int | None) -> str:
    listed = [*place.queries, *([f"{place.more:,} more"] if place.more else [])]
    of_queries = f"{'query' if len(listed) == 1 else 'queries'} {', '.join(listed)}"
    parts = (
        of_queries if listed else "",
        f"batch {batch:,}" if batch is not None else "",
        f"run {place.run}" if place.run is not None else "",
        f"application {place.application}" if place.application else "",
        f"host {place.host}" if place.host else "",
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
