"""Request a thread dump of the driver that runs a query."""

from datetime import datetime, timedelta

from django.db import transaction

from queries.domain.access.acts import Act
from queries.domain.errors import Conflict
from queries.domain.states import RunOutcome
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.selectors.release import release
from queries.services.access.audit_trail import record_act
from queries.services.supervision.operation_rows import schedule_reconcile

#: A dump stops the whole JVM for some milliseconds.
AGAIN = timedelta(seconds=10)


def request_dump(*, query: Query, actor: str, now: datetime) -> Run:
    """Have the driver take a thread dump and a heap histogram with its next heartbeat.

    Returns the run. Raises `Conflict` if the query has no open run, if its driver runs another
    release, or if a dump was requested less than 10 s ago.
    """
    with transaction.atomic():
        rows = Run.objects.select_for_update(of=("self",), no_key=True)
        run = rows.filter(query=query, outcome=RunOutcome.OPEN).first()
        if run is None:
            raise Conflict(
                f"{query.name} is not running.",
                way_out="Start the query first.",
            )
        if run.driver.release != release():  # it may be unable to read an assignment with a request
            raise Conflict(
                f"The driver of {query.name} runs another release of Headgate.",
                way_out=f"Restart the application {query.application.name} first.",
            )
        if run.dump_asked_at is not None and now - run.dump_asked_at < AGAIN:
            raise Conflict(
                f"A thread dump of {query.name} was requested a moment ago.",
                way_out="Wait 10 seconds before the next one.",
            )
        run.dump_asked_at = now
        run.save(update_fields=["dump_asked_at"])
        record_act(Act.PROBE, actor=actor, now=now, subject=query.name, verb="thread dump")
    schedule_reconcile(query.application_id, now)
    return run
