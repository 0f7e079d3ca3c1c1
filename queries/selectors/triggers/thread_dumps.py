"""Read the thread dumps that a query's driver has taken, on request or because it hung."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from headgate_ground.wire import EventKind
from listeners.models import Event
from queries.domain.states import RunOutcome
from queries.models.definitions import Query
from queries.selectors import visible

#: How far back a page looks for the newest dump.
SHOWN = timedelta(days=1)
#: How long a request may take; then the page says that its driver has not answered.
PATIENCE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Dumps:
    """The newest dump of a query, and the request that is not answered yet."""

    newest: Event | None
    asked_at: datetime | None  # of the open run, if no dump was taken since
    overdue: bool  # the driver has not answered for a minute
    can_ask: bool  # a run is open


def thread_dumps(query: Query, *, now: datetime) -> Dumps:
    """Return the newest thread dump of the last day, and whether another one is requested."""
    rows = Event.objects.filter(query=query.pk, kind=EventKind.THREAD_DUMP, at__gt=now - SHOWN)
    newest = rows.order_by("-at").first()
    run = visible.runs().filter(query=query, outcome=RunOutcome.OPEN).first()
    requested_at = run.dump_asked_at if run is not None else None
    # The driver's clock may be behind, so its answer also repeats the request's time.
    if (requested_at is not None and newest is not None) and (
        newest.at >= requested_at or newest.body.get("asked") == requested_at.isoformat()
    ):
        requested_at = None
    overdue = requested_at is not None and now - requested_at > PATIENCE
    return Dumps(newest, requested_at, overdue, run is not None)
