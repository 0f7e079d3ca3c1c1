"""Record when the verdict on a query's health has changed.

A verdict is computed when it is read, because it can change merely as time passes. Only a regular
task can determine since when it has held: only this task writes `verdict` and `verdict_since`.
"""

import logging
from datetime import datetime

from django.db.models import Q

from controlplane.nudge import changed
from listeners.loops.troubles import loop_errors
from queries.domain.states import JUDGED_PHASES, RunOutcome
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.selectors.supervision.health import healths

logger = logging.getLogger(__name__)
_loop = loop_errors("verdicts", logger)


def note_verdicts(*, now: datetime) -> int:
    """Write the verdicts that have changed, each with the time; return how many."""
    rows = Query.objects.filter(Q(phase__in=sorted(JUDGED_PHASES)) | ~Q(verdict=""))
    queries = {query.pk: query for query in rows.select_related("application").order_by()}
    runs = {
        run.query_id: run
        for run in Run.objects.filter(outcome=RunOutcome.OPEN).select_related(
            "revision", "checkpoint", "driver"
        )
    }
    judged = healths([query for pk, query in queries.items() if pk in runs], runs, now=now)
    count = 0
    for pk, query in queries.items():
        verdict = str(judged[pk].verdict) if pk in judged else ""
        with _loop.isolate_errors(f"query {query.name}"):
            count += _note(query, verdict, now)
    return count


def _note(query: Query, verdict: str, now: datetime) -> int:
    if verdict == query.verdict:
        return 0
    # Compare-and-set: of two concurrent passes, the one that read the older row does nothing.
    since = now if verdict else None
    rows = Query.objects.filter(pk=query.pk, verdict=query.verdict)
    wrote = rows.update(verdict=verdict, verdict_since=since)
    if wrote:
        changed(f"query:{query.pk}")
    return wrote
