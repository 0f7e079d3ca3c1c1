"""Read small values for the console: outcomes for bars, ages, and counts for badges."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max

from listeners.models import Heartbeat, Latest
from queries.domain.hosts import SILENT_AFTER
from queries.domain.states import DriverKind, DriverState, GroupStatus, RunOutcome
from queries.selectors import visible


def outcomes(run_ids: Iterable[int]) -> dict[int, str]:
    """Return the outcome of each of these runs; "" for an open run."""
    return dict(visible.runs().filter(pk__in=set(run_ids)).values_list("pk", "outcome"))


def newest_event_at() -> datetime | None:
    """Return when the newest event or heartbeat of any driver was ingested."""
    event: datetime | None = Latest.objects.aggregate(at=Max("at"))["at"]
    heartbeat: datetime | None = Heartbeat.objects.aggregate(at=Max("received_at"))["at"]
    return max((at for at in (event, heartbeat) if at), default=None)


@dataclass(frozen=True, slots=True)
class SilentDriver:
    """A driver that should send heartbeats but has been silent for a while."""

    since: datetime  # its newest heartbeat, else its launch
    application: int
    queries: frozenset[int]  # with an open run in it
    runs: frozenset[int]


def silent_drivers(*, now: datetime) -> list[SilentDriver]:
    """Return the live drivers from which nothing has been ingested for `SILENT_AFTER`."""
    drivers = visible.drivers().filter(kind=DriverKind.SERVICE, state=DriverState.LIVE)
    rows = {row.pk: row for row in drivers.only("pk", "created_at", "application_id")}
    beats = Heartbeat.objects.filter(driver__in=list(rows)).values_list("driver", "received_at")
    last_ingested = dict(beats)
    since = {pk: last_ingested.get(pk, row.created_at) for pk, row in rows.items()}
    silent = {pk: at for pk, at in since.items() if now - at > SILENT_AFTER}
    runs: dict[int, list[tuple[int, int]]] = {pk: [] for pk in silent}
    for driver, run, query in (
        visible.runs()
        .filter(driver__in=list(silent), outcome=RunOutcome.OPEN)
        .values_list("driver", "pk", "query")
    ):
        runs[driver].append((run, query))
    return [
        SilentDriver(
            since=at,
            application=rows[pk].application_id,
            queries=frozenset(query for _, query in runs[pk]),
            runs=frozenset(run for run, _ in runs[pk]),
        )
        for pk, at in silent.items()
    ]


def names_of(query_ids: Iterable[int]) -> dict[int, str]:
    """Return the names of queries that have not been deleted, by primary key."""
    rows = visible.queries().filter(pk__in=set(query_ids), archived_at__isnull=True)
    return dict(rows.values_list("pk", "name"))


def names_in_drivers(driver_ids: Iterable[int]) -> list[str]:
    """Return the names of existing queries with an open run in one of these drivers."""
    rows = visible.runs().filter(
        driver__in=set(driver_ids), outcome="", query__archived_at__isnull=True
    )
    return list(rows.values_list("query__name", flat=True))


def open_failure_groups() -> int:
    """Return the number of open failure groups."""
    return visible.failure_groups().filter(status=GroupStatus.OPEN).count()
