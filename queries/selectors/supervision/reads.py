"""Reads for pages and REST: runs, failures, applications, checkpoints, acts.

Lists are query sets in their natural order, newest or most urgent first, with everything
that a row shows selected along; whoever shows them slices or filters further.
"""

from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, F, OuterRef, Prefetch, Q, QuerySet, Subquery

from listeners import selectors as heard
from listeners.selectors import DriverTelemetry
from queries.domain.errors import Missing
from queries.domain.states import OPEN_DRIVER_STATES, DriverKind
from queries.models.applications import Application, ApplicationRevision, SchedulerPool
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Driver, Run
from queries.models.failures import Failure, FailureGroup
from queries.models.history import Operation, Transition
from queries.selectors.supervision.drift import drift, newest_application_revisions, pools_of
from queries.selectors.supervision.newest import newest_revisions

# --- runs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run with those before and after it, and what it did."""

    run: Run
    previous: Run | None
    next: Run | None
    failures: list[Failure]
    summary: dict[str, Any] | None  # listeners.selectors.run_summary
    transitions: list[Transition]  # oldest first


def runs() -> QuerySet[Run]:
    """Return all runs, newest first, with query, driver, application, revision, checkpoint."""
    return Run.objects.select_related(
        "query", "driver", "driver__application", "revision", "checkpoint"
    ).order_by("-epoch")


def runs_of(query: Query) -> QuerySet[Run]:
    """Return a query's runs, newest first."""
    return runs().filter(query=query)


def run_with_neighbours(*, run_id: int | None = None, epoch: int | None = None) -> RunDetail:
    """Return a run by its id or its epoch; raise `Missing` where there is none."""
    wanted = Q(pk=run_id) if epoch is None else Q(epoch=epoch)
    run = runs().select_related("driver__application_revision").filter(wanted).first()
    if run is None:
        raise Missing(f"There is no run {run_id if epoch is None else f'with epoch {epoch}'}.")
    others = Run.objects.filter(query=run.query_id)
    return RunDetail(
        run=run,
        previous=others.filter(epoch__lt=run.epoch).order_by("-epoch").first(),
        next=others.filter(epoch__gt=run.epoch).order_by("epoch").first(),
        failures=list(failures().filter(run=run)),
        summary=heard.run_summary(run.pk),
        transitions=list(run.transitions.order_by("at", "pk")),
    )


# --- failures -------------------------------------------------------------------------


def failures() -> QuerySet[Failure]:
    """Return all failures, newest first, with run, query, driver, application and group."""
    return Failure.objects.select_related(
        "run", "run__query", "run__revision", "driver", "driver__application", "group"
    ).order_by("-at", "-pk")


def failures_of(query: Query) -> QuerySet[Failure]:
    """Return a query's failures, and the deaths of drivers that ended one of its runs."""
    ended_a_run = Run.objects.filter(query=query, driver=OuterRef("driver"))
    return failures().filter(Q(run__query=query) | Q(run__isnull=True) & Exists(ended_a_run))


def failure_groups(
    *, status: str = "", application: str = "", query: str = "", search: str = ""
) -> QuerySet[FailureGroup]:
    """Return groups, the last seen first; an empty filter lets everything through."""
    rows = FailureGroup.objects.select_related("query", "application").order_by("-last_seen", "-pk")
    if status:
        rows = rows.filter(status=status)
    if application:
        rows = rows.filter(application__name=application)
    if query:
        rows = rows.filter(query__name=query)
    if search:
        rows = rows.filter(
            Q(title__icontains=search)
            | Q(query__name__icontains=search)
            | Q(application__name__icontains=search)
        )
    return rows


def failure_group(group_id: int) -> FailureGroup:
    """Return a group; raise `Missing` where there is none."""
    group = failure_groups().filter(pk=group_id).first()
    if group is None:
        raise Missing(f"There is no failure group {group_id}.")
    return group


# --- applications ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PoolHolding:
    """A scheduler pool with the living queries whose newest revision names it."""

    pool: SchedulerPool
    queries: list[Query]


@dataclass(frozen=True, slots=True)
class ApplicationDetail:
    """An application with its newest revision, its living driver and all that it holds."""

    application: Application
    newest: ApplicationRevision | None
    driver: Driver | None  # the open one
    queries: list[Query]  # living, by name
    pools: list[PoolHolding]
    default_pool: list[Query]  # living queries that name no pool
    needs_restart: tuple[str, ...]  # why: "revision", "pools", "code"
    telemetry: DriverTelemetry | None


def applications() -> QuerySet[Application]:
    """Return living applications by name."""
    return Application.objects.filter(archived_at__isnull=True).order_by("name")


def application(name: str) -> Application:
    """Return a living application; raise `Missing` where there is none of that name."""
    found = applications().filter(name=name).first()
    if found is None:
        raise Missing(
            f"There is no application named {name}.",
            way_out="Look at the list of applications for its name.",
        )
    return found


def application_detail(name: str) -> ApplicationDetail:
    """Return one living application; raise `Missing` where there is none of that name."""
    return application_details([application(name)])[0]


def application_details(rows: list[Application]) -> list[ApplicationDetail]:
    """Return the details of applications, in a constant number of database queries."""
    ids = [row.pk for row in rows]
    newest = newest_application_revisions(ids)
    pools = pools_of(ids)
    drivers = {
        driver.application_id: driver for driver in open_drivers().filter(application__in=ids)
    }
    telemetry = heard.telemetry([driver.pk for driver in drivers.values()])
    held: dict[int, list[Query]] = {pk: [] for pk in ids}
    for query in Query.objects.filter(application__in=ids, archived_at__isnull=True).order_by(
        "name"
    ):
        held[query.application_id].append(query)
    revisions = newest_revisions([query.pk for queries in held.values() for query in queries])
    named = {pk: revision.spec.get("pool", "") for pk, revision in revisions.items()}

    def detail(row: Application) -> ApplicationDetail:
        driver = drivers.get(row.pk)
        return ApplicationDetail(
            application=row,
            newest=newest.get(row.pk),
            driver=driver,
            queries=held[row.pk],
            pools=[
                PoolHolding(pool, [q for q in held[row.pk] if named.get(q.pk) == pool.name])
                for pool in pools.get(row.pk, [])
            ],
            default_pool=[q for q in held[row.pk] if not named.get(q.pk)],
            needs_restart=drift(driver, newest=newest.get(row.pk), pools=pools.get(row.pk, [])),
            telemetry=telemetry.get(driver.pk) if driver else None,
        )

    return [detail(row) for row in rows]


def drivers_of(row: Application) -> QuerySet[Driver]:
    """Return an application's drivers, newest first."""
    return Driver.objects.filter(application=row, kind=DriverKind.SERVICE).select_related(
        "application_revision"
    )


def open_drivers() -> QuerySet[Driver]:
    """Return the living service drivers."""
    return Driver.objects.filter(
        kind=DriverKind.SERVICE, state__in=OPEN_DRIVER_STATES
    ).select_related("application", "application_revision")


def pool_holding(row: Application, name: str) -> PoolHolding:
    """Return one pool of an application; raise `Missing` where there is none of that name."""
    for holding in application_details([row])[0].pools:
        if holding.pool.name == name:
            return holding
    raise Missing(f"Application {row.name} has no pool named {name}.")


# --- definitions ----------------------------------------------------------------------


def query(name: str) -> Query:
    """Return a living query; raise `Missing` where there is none of that name."""
    found = (
        Query.objects.select_related("application", "target_revision")
        .filter(name=name, archived_at__isnull=True)
        .first()
    )
    if found is None:
        raise Missing(
            f"There is no query named {name}.", way_out="Look at the list of queries for its name."
        )
    return found


def revisions_of(row: Query) -> QuerySet[QueryRevision]:
    """Return a query's revisions, newest first."""
    return QueryRevision.objects.filter(query=row).order_by("-number")


def application_revisions_of(row: Application) -> QuerySet[ApplicationRevision]:
    """Return an application's revisions, newest first."""
    return ApplicationRevision.objects.filter(application=row).order_by("-number")


def checkpoints() -> QuerySet[Checkpoint]:
    """Return checkpoints by location, the held ones first, each with its holder.

    The attribute `newest_runs` holds the newest run on it, with its driver, if there is one.
    """
    newest = Run.objects.filter(checkpoint=OuterRef("checkpoint")).order_by("-epoch")
    newest_runs = Run.objects.filter(pk=Subquery(newest.values("pk")[:1])).select_related("driver")
    return (
        Checkpoint.objects.select_related("query", "query__application", "built_from")
        .prefetch_related(Prefetch("runs", queryset=newest_runs, to_attr="newest_runs"))
        .order_by(F("retired_at").asc(nulls_first=True), "location", "pk")
    )


# --- acts -----------------------------------------------------------------------------


def operations() -> QuerySet[Operation]:
    """Return all operations, newest first, with query, application and parent."""
    rows = Operation.objects.select_related("query", "application", "parent")
    return rows.order_by("-created_at", "-pk")


def operation(uuid: Any) -> Operation:
    """Return an operation; raise `Missing` where there is none."""
    found = operations().filter(uuid=uuid).first()
    if found is None:
        raise Missing(f"There is no operation {uuid}.")
    return found


def transitions(
    *, query: Query | None = None, application: Application | None = None
) -> QuerySet[Transition]:
    """Return changes of state, newest first, of a query, an application or all."""
    rows = Transition.objects.select_related("query", "application", "driver", "run", "operation")
    if query is not None:
        rows = rows.filter(query=query)
    if application is not None:
        rows = rows.filter(application=application)
    return rows.order_by("-at", "-pk")


def audit() -> QuerySet[Transition]:
    """Return what persons and CI changed, newest first."""
    return transitions().exclude(actor="")
