"""What stored events and rows say of a query since a deploy restarted it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Min, Q, QuerySet

from listeners.models import Progress
from queries.domain.deploys.judging import Seen, SeenFailure
from queries.domain.masking import mask_text
from queries.domain.reasons import Because, Detail, waited
from queries.domain.states import Desired, Phase, RunOutcome
from queries.models.definitions import Query
from queries.models.deploys.receipts import DeployChange
from queries.models.drivers import Run
from queries.models.failures import Failure
from queries.selectors.kafka.lag import lag_lines

#: Characters of an error in a receipt; the failure's own page has all of it.
_LONGEST = 500
_MOST_FAILURES = 5


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is judged, and what the receipt keeps of it."""

    seen: Seen
    kept: dict[str, Any]
    first_batch: int | None


def evidence(change: DeployChange, revision: int, *, now: datetime) -> Evidence:
    """Return what is known of a restarted query, on the revision that it was restarted on."""
    assert change.restarted_at is not None, "only what was restarted is judged"
    query = query_of(change)
    pinned = query.target_revision
    if query.discovered and pinned is not None:  # its revision is what its script starts
        revision = pinned.number
    runs = runs_since(change, revision)
    current = runs.filter(outcome=RunOutcome.OPEN).order_by("-epoch").first()
    proven = current.proven_at if current else None
    batches = Progress.objects.filter(run__in=list(runs.values_list("pk", flat=True)))
    counted = batches.aggregate(count=Count("pk"), first=Min("batch"))
    failures = _failures(change, runs)
    lag, rate = _lag(query, since=proven, now=now)
    seen = Seen(
        name=query.name,
        restarted_at=change.restarted_at,
        is_wanted=query.desired == Desired.RUNNING,
        on_revision=pinned is not None and pinned.number == revision,
        phase=Phase(query.phase),
        waits_for=waited(query.phase, query.phase_reason, query.phase_detail),
        is_looked_at=query.seen_generation >= query.generation,
        proven_at=proven,
        batches=counted["count"],
        failures=tuple(_seen(one, change.restarted_at) for one in failures),
        lag_before=change.evidence.get("lag_before"),
        lag=lag,
        arrival_rate=rate,
    )
    kept = {
        "run": current.epoch if current else None,
        "proven_at": proven.isoformat() if proven else None,
        "batches": counted["count"],
        "lag": lag,
        "failures": [_kept(one) for one in failures],
    }
    return Evidence(seen, kept, counted["first"])


def query_of(change: DeployChange) -> Query:
    """Return a change's query as it is now."""
    assert change.query_id is not None, "an application's own change has no query"
    rows = Query.objects.select_related("application", "target_revision")
    return rows.get(pk=change.query_id)


def runs_since(change: DeployChange, revision: int) -> QuerySet[Run]:
    """Return the runs of a query on a revision since its restart."""
    return Run.objects.filter(
        query=change.query_id, revision__number=revision, created_at__gte=change.restarted_at
    )


def has_started(change: DeployChange) -> bool:
    """Return whether Spark has started the new definition, and may have written with it."""
    if change.restarted_at is None or change.to_revision is None:
        return False
    return runs_since(change, change.to_revision).filter(started_at__isnull=False).exists()


def lag_before(query_id: int, *, now: datetime) -> int | None:
    """Return how many records a query is behind its sources; None where nobody measures it."""
    line = lag_lines([query_id], now=now).get(query_id)
    return line.records if line else None


def _lag(query: Query, *, since: datetime | None, now: datetime) -> tuple[int | None, float]:
    line = lag_lines([query.pk], now=now).get(query.pk)
    if line is None or since is None or line.seen_at <= since:
        return None, 0.0
    return line.records, line.arrival_rate or 0.0


def _failures(change: DeployChange, runs: QuerySet[Run]) -> list[Failure]:
    """Return failures since the restart, oldest first: of its runs, and of its driver itself."""
    own = Q(run__in=runs)
    drivers = Q(run=None, driver__application=change.application_id, at__gte=change.restarted_at)
    rows = Failure.objects.filter(own | drivers).select_related("group")
    return list(rows.order_by("at", "pk")[:_MOST_FAILURES])


def _seen(failure: Failure, since: datetime) -> SeenFailure:
    group = failure.group
    came_back = group.regressed_at is not None and group.regressed_at >= since
    about = Because(Detail.GROUP, {"group": group.title})
    return SeenFailure(about, is_new=came_back or group.first_seen >= since)


def _kept(failure: Failure) -> dict[str, Any]:
    return {
        "failure": failure.pk,
        "title": failure.group.title,
        "error_class": failure.error_class,
        "message": mask_text(failure.root_cause or failure.message)[:_LONGEST],
        "batch": failure.batch,
    }
