"""Read applications with their driver, queries and pools."""

from dataclasses import dataclass

from django.db.models import QuerySet

from listeners import selectors as heard
from listeners.selectors import DriverTelemetry
from queries.domain.errors import Missing
from queries.domain.states import DISPATCHED_KINDS, OPEN_DRIVER_STATES, DriverKind
from queries.models.applications import Application, ApplicationRevision, SchedulerPool, Script
from queries.models.definitions import Query
from queries.models.drivers import Driver
from queries.selectors import visible
from queries.selectors.first_or_missing import first_or_missing
from queries.selectors.newest import newest_revisions
from queries.selectors.supervision.drift import drift, newest_application_revisions, pools_of


@dataclass(frozen=True, slots=True)
class PoolHolding:
    """A scheduler pool with the existing queries whose newest revision names it."""

    pool: SchedulerPool
    queries: list[Query]


@dataclass(frozen=True, slots=True)
class ApplicationDetail:
    """An application with its newest revision, its live driver and its contents."""

    application: Application
    newest: ApplicationRevision | None
    driver: Driver | None  # the open one
    queries: list[Query]  # living, by name
    pools: list[PoolHolding]
    default_pool: list[Query]  # living queries that name no pool
    needs_restart: tuple[str, ...]  # reasons: `drift.py`
    telemetry: DriverTelemetry | None
    standby: Driver | None = None  # the open one
    script: Script | None = None


def applications() -> QuerySet[Application]:
    """Return existing applications by name."""
    living = visible.applications().filter(archived_at__isnull=True)
    return living.select_related("team", "script").order_by("name")


def application(name: str) -> Application:
    """Return an existing application; raise `Missing` if none has that name."""
    return first_or_missing(
        applications().filter(name=name),
        f'Application "{name}" does not exist.',
        way_out="Check its name in the list of applications.",
    )


def application_detail(name: str) -> ApplicationDetail:
    """Return one existing application; raise `Missing` if none has that name."""
    return application_details([application(name)])[0]


def application_details(rows: list[Application]) -> list[ApplicationDetail]:
    """Return the details of applications, in a constant number of database queries."""
    ids = [row.pk for row in rows]
    newest = newest_application_revisions(ids)
    pools = pools_of(ids)
    drivers = {
        driver.application_id: driver for driver in open_drivers().filter(application__in=ids)
    }
    standbys = {row.application_id: row for row in _open_standbys().filter(application__in=ids)}
    telemetry = heard.telemetry([driver.pk for driver in drivers.values()])
    queries_by_application: dict[int, list[Query]] = {pk: [] for pk in ids}
    for query in (
        visible.queries().filter(application__in=ids, archived_at__isnull=True).order_by("name")
    ):
        queries_by_application[query.application_id].append(query)
    revisions = newest_revisions(
        [query.pk for queries in queries_by_application.values() for query in queries]
    )
    named = {
        pk: revision.spec.get("pool", "") if isinstance(revision.spec, dict) else ""
        for pk, revision in revisions.items()
    }

    def detail(row: Application) -> ApplicationDetail:
        driver = drivers.get(row.pk)
        return ApplicationDetail(
            application=row,
            newest=newest.get(row.pk),
            driver=driver,
            queries=queries_by_application[row.pk],
            pools=[
                PoolHolding(
                    pool,
                    [q for q in queries_by_application[row.pk] if named.get(q.pk) == pool.name],
                )
                for pool in pools.get(row.pk, [])
            ],
            default_pool=[q for q in queries_by_application[row.pk] if not named.get(q.pk)],
            needs_restart=drift(driver, newest=newest.get(row.pk), pools=pools.get(row.pk, [])),
            telemetry=telemetry.get(driver.pk) if driver else None,
            standby=standbys.get(row.pk),
            script=getattr(row, "script", None),
        )

    return [detail(row) for row in rows]


def drivers_of(row: Application) -> QuerySet[Driver]:
    """Return an application's drivers and standbys, newest first."""
    return (
        visible.drivers()
        .filter(application=row, kind__in=DISPATCHED_KINDS)
        .select_related("application_revision")
    )


def driver_of(row: Application, epoch: int) -> Driver:
    """Return one driver of an application; raise `Missing` if none has that epoch."""
    return first_or_missing(
        drivers_of(row).filter(epoch=epoch),
        f"Application {row.name} has no driver of epoch {epoch}.",
        way_out="List its drivers.",
    )


def open_drivers() -> QuerySet[Driver]:
    """Return the live service drivers."""
    return (
        visible.drivers()
        .filter(kind=DriverKind.SERVICE, state__in=OPEN_DRIVER_STATES)
        .select_related("application", "application_revision")
    )


def _open_standbys() -> QuerySet[Driver]:
    """Return the open standbys, oldest first."""
    rows = visible.drivers().filter(kind=DriverKind.STANDBY, state__in=OPEN_DRIVER_STATES)
    return rows.select_related("application", "application_revision").order_by("epoch")


def pool_holding(row: Application, name: str) -> PoolHolding:
    """Return one pool of an application; raise `Missing` if none has that name."""
    for holding in application_details([row])[0].pools:
        if holding.pool.name == name:
            return holding
    raise Missing(f"Application {row.name} has no pool named {name}.")
