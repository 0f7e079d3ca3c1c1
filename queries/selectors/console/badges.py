"""Small reads that only the console makes: outcomes for bars, ages, counts for badges."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Max

from listeners.models import Heartbeat, Latest
from queries.domain.states import GroupStatus
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.failures import FailureGroup


def outcomes(run_ids: Iterable[int]) -> dict[int, str]:
    """Return how each of these runs ended, "" for one that is open."""
    return dict(Run.objects.filter(pk__in=set(run_ids)).values_list("pk", "outcome"))


def newest_event_at() -> datetime | None:
    """Return when the newest event or heartbeat of any driver was taken in."""
    event: datetime | None = Latest.objects.aggregate(at=Max("at"))["at"]
    heartbeat: datetime | None = Heartbeat.objects.aggregate(at=Max("received_at"))["at"]
    return max((at for at in (event, heartbeat) if at), default=None)


def names_of(query_ids: Iterable[int]) -> dict[int, str]:
    """Return the names of living queries by primary key."""
    rows = Query.objects.filter(pk__in=set(query_ids), archived_at__isnull=True)
    return dict(rows.values_list("pk", "name"))


def names_in_drivers(driver_ids: Iterable[int]) -> list[str]:
    """Return the names of living queries with an open run in one of these drivers."""
    rows = Run.objects.filter(
        driver__in=set(driver_ids), outcome="", query__archived_at__isnull=True
    )
    return list(rows.values_list("query__name", flat=True))


def open_failure_groups() -> int:
    """Return the number of failure groups that are open."""
    return FailureGroup.objects.filter(status=GroupStatus.OPEN).count()
