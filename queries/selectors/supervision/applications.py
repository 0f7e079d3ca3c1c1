"""Read applications with driver, queries and pools, and changes since the driver's launch.

A driver keeps its configuration, pools and code until it is replaced; if they differ, the pages and
the API say that the application needs a restart, and why.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import OuterRef, QuerySet, Subquery

from listeners import selectors as heard
from listeners.loops.backlogs import loop_errors
from listeners.selectors import DriverTelemetry
from queries.code_roots import digest_on_disk
from queries.domain.definitions.parsing import application_changes
from queries.domain.definitions.spec import ApplicationSpec, strongest
from queries.domain.errors import Missing
from queries.domain.states import DISPATCHED_KINDS, OPEN_DRIVER_STATES, DriverKind
from queries.models.applications import Application, ApplicationRevision, SchedulerPool, Script
from queries.models.catalogs import Catalog
from queries.models.definitions import Query
from queries.models.drivers import Driver
from queries.selectors import visible
from queries.selectors.code import roots_of
from queries.selectors.hosts import release
from queries.selectors.rows import first_or_missing, newest_revisions

REVISION = "revision"
POOLS = "pools"
CODE = "code"
CATALOGS = "a catalog"
RELEASE = "Headgate's release"
UNREADABLE = "a stored definition that cannot be read"

_loop = loop_errors("drift", logging.getLogger(__name__))


def newest_application_revisions(application_ids: Iterable[int]) -> dict[int, ApplicationRevision]:
    """Return each application's newest revision, in one database query."""
    newest = ApplicationRevision.objects.filter(application=OuterRef("application"))
    rows = ApplicationRevision.objects.filter(
        application__in=list(application_ids),
        pk=Subquery(newest.order_by("-number").values("pk")[:1]),
    )
    return {row.application_id: row for row in rows}


def pools_of(application_ids: Iterable[int]) -> dict[int, list[SchedulerPool]]:
    """Return each application's pools by name, in one database query."""
    pools: dict[int, list[SchedulerPool]] = {}
    rows = SchedulerPool.objects.filter(application__in=list(application_ids))
    for pool in rows.order_by("application", "name"):
        pools.setdefault(pool.application_id, []).append(pool)
    return pools


def drift(
    driver: Driver | None,
    *,
    newest: ApplicationRevision | None,
    pools: Sequence[SchedulerPool],
) -> tuple[str, ...]:
    """Return a driver's differences from its definition, the code on disk, or our release.

    An unreadable stored form is reported as one difference, so that lists still work.
    """
    if driver is None or newest is None:
        return ()
    with _loop.isolate_errors(f"what driver number {driver.pk} was launched with"):
        return _drift(driver, newest=newest, pools=pools)
    return (UNREADABLE,)


def _drift(
    driver: Driver, *, newest: ApplicationRevision, pools: Sequence[SchedulerPool]
) -> tuple[str, ...]:
    differences = []
    # The launched revision is read only if it is a different one.
    if driver.application_revision_id != newest.pk and strongest(
        application_changes(driver.application_revision.spec, newest.spec)
    ):
        differences.append(REVISION)
    if _as_set(driver.pools) != _as_set(pool_form(pool) for pool in pools):
        differences.append(POOLS)
    if (names := newest.spec.get("catalogs")) and Catalog.objects.filter(
        name__in=names, changed_at__gt=driver.created_at
    ).exists():
        differences.append(CATALOGS)
    if _code_differs(driver):
        differences.append(CODE)
    if driver.release not in ("", release()):
        differences.append(RELEASE)
    return tuple(differences)


def _code_differs(driver: Driver) -> bool:
    """Return whether the driver's code roots have changed; False if that cannot be determined."""
    if driver.host != settings.HEADGATE_HOST:
        return False  # its code is on another host
    spec = ApplicationSpec.model_validate(driver.application_revision.spec)
    roots = roots_of(spec) if spec.python_path else None
    now = digest_on_disk(roots) if roots else None
    return now is not None and now != driver.code_sha256


def pool_form(pool: SchedulerPool) -> dict[str, Any]:
    """Return a pool in `PoolSpec`'s JSON form."""
    return {
        "name": pool.name,
        "weight": pool.weight,
        "min_share": pool.min_share,
        "mode": pool.mode,
    }


def _as_set(pools: Iterable[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {
        (pool["name"], pool.get("weight", 1), pool.get("min_share", 0), pool.get("mode", "FAIR"))
        for pool in pools
    }


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
    needs_restart: tuple[str, ...]  # reasons: `applications.py`
    telemetry: DriverTelemetry | None
    standby: Driver | None = None  # the open one
    script: Script | None = None


def applications() -> QuerySet[Application]:
    """Return the existing applications by name."""
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
