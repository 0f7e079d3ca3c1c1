"""Build the Observation that `decide` reads, from the rows and the launcher's sighting."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import takewhile

import psutil
from django.conf import settings
from django.db.models import Count, Exists, FilteredRelation, OuterRef, Q, QuerySet, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce, NullIf

from queries import host_pressure
from queries.code_roots import has_module
from queries.domain.checkpoints.ownership import local_path
from queries.domain.definitions.spec import ENDING_TRIGGERS, ApplicationSpec, DriverPlace
from queries.domain.failures.error_text import left_out, missing_module
from queries.domain.failures.rules import MODULE_ADDED_LATER
from queries.domain.hosts import memory_mb
from queries.domain.protocol import Hangs, RunStatus
from queries.domain.restart import Earlier
from queries.domain.states import (
    OPEN_DRIVER_STATES,
    Candidacy,
    Desired,
    DriverKind,
    DriverState,
    Phase,
    Reason,
    RestartBlock,
    RunOutcome,
    StopMode,
    Verdict,
)
from queries.domain.supervision.observation import (
    HOLDS_SLOT,
    PASSED,
    DriverSeen,
    Limits,
    Observation,
    QuerySeen,
    RunSeen,
    ScriptSeen,
    Sighting,
    Slots,
    StartMark,
    Suspicion,
    idle_since,
)
from queries.domain.supervision.outcomes import DEATHS
from queries.jvm.compiled import compile_failed, missing
from queries.models.applications import Application, ApplicationRevision, Script
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Host, Run
from queries.models.history import Failure
from queries.selectors.checkpoint_logs import in_flight_at_death
from queries.selectors.code import is_to_prepare
from queries.selectors.failures.occurrences import deaths_in_a_row
from queries.selectors.spark_folders import jars_of
from queries.selectors.supervision.health import healths

#: Memory of a storage JVM with its Python, measured: 305 MB after listing, reading and copying.
STORAGE_JVM_MB = 384
#: The memory in the definition that a driver was launched with.
_MEMORY = KeyTextTransform("memory", "application_revision__spec")
_PLACE = KeyTextTransform("driver", "application_revision__spec")

#: Nothing is launched next to an open driver, so its application needs no slot.
_UNREAD = Slots(starting=0, limit=0, memory_used_mb=0, memory_budget_mb=0, memory_needed_mb=0)
_UNLIMITED = Slots(starting=0, limit=1, memory_used_mb=0, memory_budget_mb=0, memory_needed_mb=0)
#: How many of a query's newest runs are examined for driver deaths.
RUNS_JUDGED = 5


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one application, read together: the input of an observation."""

    application: Application
    revision: ApplicationRevision
    driver: Driver | None  # the open one
    queries: tuple[Query, ...]
    runs: dict[int, Run]  # query -> open run
    checkpoints: dict[int, Checkpoint]  # query -> current checkpoint
    paused: bool
    script: Script | None = None  # None: its queries are defined

    @property
    def locations(self) -> tuple[str, ...]:
        """The locations of the checkpoints that the application's driver may use."""
        return tuple(checkpoint.location for checkpoint in self.checkpoints.values())

    @property
    def placed_on(self) -> str:
        """The application's host; "" if it is not placed yet."""
        return self.driver.host if self.driver is not None else self.application.host

    @property
    def movable(self) -> bool:
        """Whether another host could start the application without taking anything over."""
        free = self.driver is None and not self.runs
        return free and all(local_path(location) is None for location in self.locations)


def read_rows(application_id: int) -> Rows | None:
    """Return the application's rows, or None if it is gone.

    This runs for each application every few seconds, and its cost depends on the number of database
    queries: there are two. An application has at most one open driver, and a query at most one open
    run and one current checkpoint, so the joins do not repeat rows. Sorting here is cheaper than in
    the database.
    """
    application = next(iter(_applications(settings.HEADGATE_HOST).filter(pk=application_id)), None)
    if application is None:
        return None
    newest = application.target_revision or application.revisions.order_by("-number").first()
    if newest is None:
        return None
    # Shared columns are read once; the others when they are needed.
    driver: Driver | None = getattr(application, "open_driver", None)
    if driver is not None:
        driver.application = application
        if driver.application_revision_id == newest.pk:
            driver.application_revision = newest
    runs: dict[int, Run] = {}
    checkpoints: dict[int, Checkpoint] = {}
    supervised_queries: list[Query] = []
    for query in sorted(_queries().filter(application=application_id), key=lambda row: row.pk):
        query.application = application
        run: Run | None = getattr(query, "open_run", None)
        # An archived query that still has a run (impossible, but cheap to handle) is not forgotten.
        if query.archived_at is not None and run is None:
            continue
        supervised_queries.append(query)
        checkpoint: Checkpoint | None = getattr(query, "current", None)
        if checkpoint is not None:
            checkpoints[query.pk] = checkpoint
        if run is not None:
            runs[query.pk] = run
            _complete(run, query, driver, checkpoint)
    return Rows(
        application=application,
        revision=newest,
        driver=driver,
        queries=tuple(supervised_queries),
        runs=runs,
        checkpoints=checkpoints,
        script=getattr(application, "script", None),
        paused=bool(getattr(application, "paused", False)),
    )


@cache  # build the SQL once: that costs as much as running it
def _applications(this_host: str) -> QuerySet[Application]:
    """Return the applications, each with its open driver and whether its host is stopping."""
    is_open = Q(drivers__kind=DriverKind.SERVICE, drivers__state__in=sorted(OPEN_DRIVER_STATES))
    placed = Coalesce(NullIf(Coalesce("open_driver__host", "host"), Value("")), Value(this_host))
    stopping = Host.objects.exclude(stopping_since=None).filter(name=OuterRef("placed"))
    rows = Application.objects.annotate(open_driver=FilteredRelation("drivers", condition=is_open))
    rows = rows.alias(placed=placed).annotate(paused=Exists(stopping)).order_by()
    return rows.select_related("target_revision", "script", "open_driver")  # type: ignore[misc]


@cache
def _queries() -> QuerySet[Query]:
    """Return the queries, each with its open run and its current checkpoint."""
    is_open, is_current = Q(runs__outcome=RunOutcome.OPEN), Q(checkpoints__retired_at=None)
    rows = Query.objects.annotate(
        open_run=FilteredRelation("runs", condition=is_open),
        current=FilteredRelation("checkpoints", condition=is_current),
    ).order_by()
    return rows.select_related("target_revision", "open_run", "current")  # type: ignore[misc]


def _complete(run: Run, query: Query, driver: Driver | None, checkpoint: Checkpoint | None) -> None:
    """Set the related rows of a run that were read together with it."""
    run.query = query
    if query.target_revision is not None and run.revision_id == query.target_revision.pk:
        run.revision = query.target_revision
    if driver is not None and run.driver_id == driver.pk:
        run.driver = driver
    if checkpoint is not None and run.checkpoint_id == checkpoint.pk:
        run.checkpoint = checkpoint


def observation(
    rows: Rows,
    sighting: Sighting | None,
    *,
    now: datetime,
    silent_host: str = "",
    standby: bool = False,
) -> Observation:
    """Return the observation of an application; `sighting` is of its open driver, if any.

    `silent_host` is the application's host if that is silent; `standby` is whether a standby driver
    could take over.
    """
    application = rows.application
    spec = ApplicationSpec.model_validate(rows.revision.spec)
    by_run = {run: _run_report(status, spec) for run, status in statuses(sighting).items()}
    stalled = _stalled(rows, now) if spec.policy.restart_on_stall else frozenset()
    ended = sighting is not None and sighting.liveness in PASSED
    # A script decides about its queries: one query's failure is not a reason to end the others.
    scope = spec.failure_scope if rows.script is None else "query"
    classes = settings.JARS_DIR, jars_of(spec.spark)
    return Observation(
        application=application.pk,
        name=application.name,
        generation=application.generation,
        seen_generation=application.seen_generation,
        reached_generation=application.reached_generation,
        policy=spec.policy,
        failure_scope=scope,
        queries=tuple(_query(rows, query, by_run, stalled, ended) for query in rows.queries),
        driver=observed_driver(rows.driver, sighting),
        slots=slots(spec, now=now) if rows.driver is None else _UNREAD,
        pressure=host_pressure.read_pressure(),
        limits=supervision_limits(),
        failures=application.failures,
        recent_failures=_recent_of_drivers(application),
        deaths=_deaths(rows),
        next_attempt_at=application.next_attempt_at,
        restart_block=RestartBlock(application.restart_block),
        restart_block_reason=application.restart_block_reason,
        code_ready=rows.driver is not None or not is_to_prepare(spec),
        # Without the version itself, the launch is refused with what to do.
        no_classes=missing(*classes) if rows.driver is None and classes[1].is_dir() else "",
        classes_failed=compile_failed(*classes),
        paused=rows.paused,
        script=_script(rows),
        standby=standby,
        silent_host=silent_host,
    )


def supervision_limits() -> Limits:
    """Return the deadlines of starts and stops from the settings."""
    return Limits(
        start_s=settings.START_DEADLINE_S,
        start_max_s=settings.START_MAX_S,
        stop_s=settings.STOP_DEADLINE_S,
    )


def slots(spec: ApplicationSpec, *, now: datetime) -> Slots:
    """Return this host's capacity, to decide whether another driver of that size fits.

    Standby drivers do not count: they are ended when a driver needs their memory
    (`services/supervision/standbys.py`). Nor do pods: Kubernetes finds them a place, and they need
    no capacity here.
    """
    if spec.runs_in_pod:
        return _UNLIMITED
    rows = open_drivers_on_this_host().exclude(kind=DriverKind.STANDBY)
    rows = rows.annotate(memory=_MEMORY, place=_PLACE)
    slot_time = HOLDS_SLOT
    if (
        host_pressure.read_pressure().is_high
    ):  # then a start waits for the processors, however long it takes
        slot_time = timedelta(seconds=settings.START_MAX_S)
    holds = Q(state=DriverState.STARTING, created_at__gt=now - slot_time)
    counted = rows.values_list("kind", "place", "memory").annotate(
        Count("pk"), starting=Count("pk", filter=holds & ~Q(kind=DriverKind.STORAGE))
    )
    used_mb = starting = 0
    for kind, place, memory, count, started in counted:
        if place == DriverPlace.POD and kind == DriverKind.SERVICE:
            continue
        used_mb += count * _counted_mb(kind, memory)
        starting += started
    return Slots(
        starting=starting,
        limit=settings.STARTS_AT_ONCE,
        memory_used_mb=used_mb,
        memory_budget_mb=memory_budget_mb(),
        memory_needed_mb=memory_mb(spec.memory),
    )


def busy_beside_a_start(*, now: datetime) -> str:
    """Return why no probe or storage JVM may start while a driver is starting; "" if it may.

    On a busy host, each JVM that starts makes the start of a query's driver take even longer.
    """
    pressure = host_pressure.read_pressure()
    if not pressure.is_high:
        return ""
    since = now - timedelta(seconds=settings.START_MAX_S)
    starting = open_drivers_on_this_host().filter(
        kind=DriverKind.SERVICE, state=DriverState.STARTING, created_at__gt=since
    )
    return f"a driver is starting on this busy host ({pressure.figure})" if starting else ""


def open_drivers_on_this_host() -> QuerySet[Driver]:
    """Return this host's open drivers of every kind, with their applications' definitions."""
    rows = Driver.objects.filter(host=settings.HEADGATE_HOST, state__in=sorted(OPEN_DRIVER_STATES))
    return rows.select_related("application_revision").order_by()


def memory_of(driver: Driver) -> int:
    """Return the memory that a driver counts for, in MB."""
    return _counted_mb(driver.kind, driver.application_revision.spec["memory"])


def _counted_mb(kind: str, memory: str) -> int:
    return STORAGE_JVM_MB if kind == DriverKind.STORAGE else memory_mb(memory)


def memory_budget_mb() -> int:
    """Return how much memory the drivers of this host may have together, in MB."""
    budget: int = settings.DRIVER_MEMORY_BUDGET_MB or _host_budget_mb()
    return budget


def _host_budget_mb() -> int:
    return int(psutil.virtual_memory().total * 0.8 / 1024 / 1024)


def statuses(sighting: Sighting | None) -> dict[int, RunStatus]:
    """Return the driver's reports on its runs, by run id."""
    if sighting is None or sighting.status is None:
        return {}
    return {status.run: status for status in sighting.status.runs}


def _run_report(status: RunStatus, spec: ApplicationSpec) -> RunStatus:
    """Return a run's report; if it reports a missing module that now exists, mark that.

    Only the control plane sees the code on disk, because the driver runs a copy made at its start.
    """
    error = status.error
    module = missing_module(error.type_name, error.root_cause) if error else ""
    if error is None or not module:
        return status
    if not left_out(partial(has_module, spec.python_path, module), False):
        return status
    return replace(status, error=replace(error, type_name=MODULE_ADDED_LATER))


def _stalled(rows: Rows, now: datetime) -> frozenset[int]:
    """Return the queries whose health is STALLED."""
    health_by_query = healths(
        [query for query in rows.queries if query.pk in rows.runs], rows.runs, now=now
    )
    if rows.driver is not None and idle_since(rows.driver.executors_wanted):
        return frozenset()  # a new driver would not get an executor either
    return frozenset(
        pk for pk, health in health_by_query.items() if health.verdict is Verdict.STALLED
    )


def _query(
    rows: Rows,
    query: Query,
    by_run: dict[int, RunStatus],
    stalled: frozenset[int],
    ended: bool,
) -> QuerySeen:
    run, checkpoint = rows.runs.get(query.pk), rows.checkpoints.get(query.pk)
    wanted: Script | Query = rows.script or query  # a script's queries follow its desired state
    return QuerySeen(
        id=query.pk,
        name=query.name,
        desired=Desired(wanted.desired),
        generation=query.generation,
        seen_generation=query.seen_generation,
        reached_generation=query.reached_generation,
        phase=Phase(query.phase),
        phase_reason=Reason(query.phase_reason),
        phase_detail=query.phase_detail,
        stop_mode=StopMode(wanted.stop_mode),
        stop_deadline=wanted.stop_deadline,
        failures=query.failures,
        next_attempt_at=query.next_attempt_at,
        restart_block=RestartBlock(query.restart_block),
        run=_run(run, _line(run, by_run), ended) if run else None,
        hangs=next(
            (status.hangs for status in by_run.values() if _hangs(status, query)), Hangs.NOTHING
        ),
        source_unreachable_since=query.source_unreachable_since,
        stalled=query.pk in stalled,
        recent_failures=_recent(query),
        suspicion=_suspicion(query) if _looks_for_a_culprit(rows) else Suspicion(),
        is_dropped=query.gone_at is not None,
        remote=checkpoint is not None and local_path(checkpoint.location) is None,
    )


def _line(run: Run, by_run: dict[int, RunStatus]) -> RunStatus | None:
    """Return the report on a run, even if the driver does not know the run's row yet."""
    return by_run.get(run.pk) or (by_run.get(-run.found) if run.found else None)


def _script(rows: Rows) -> ScriptSeen | None:
    script = rows.script
    if script is None:
        return None
    return ScriptSeen(
        desired=Desired(script.desired),
        phase=Phase(script.phase),
        reason=Reason(script.phase_reason),
        detail=script.phase_detail,
    )


def _recent_of_drivers(application: Application) -> tuple[Earlier, ...]:
    rows = Failure.objects.filter(
        driver__application=application, driver__kind=DriverKind.SERVICE, run=None
    )
    commits = Run.objects.filter(driver=OuterRef("driver"), first_commit_at__isnull=False)
    return _earlier(rows, Exists(commits), application.failures)


def _looks_for_a_culprit(rows: Rows) -> bool:
    """Return whether each query's activity at the last driver deaths may matter."""
    shared = rows.script is None and len(rows.queries) > 1
    return shared and rows.application.failures >= DEATHS


def _deaths(rows: Rows) -> int:
    """Return how many drivers in a row have died, if that may matter."""
    if not _looks_for_a_culprit(rows):
        return 0
    return deaths_in_a_row(rows.application, most=rows.application.failures)


def _hangs(status: RunStatus, query: Query) -> bool:
    return status.query == query.pk and status.hangs is not Hangs.NOTHING


def _run(run: Run, status: RunStatus | None, driver_ended: bool) -> RunSeen:
    committed = run.first_commit_at or (status and time_of(status.first_commit_at))
    idle = status and time_of(status.first_idle_at)
    trigger = str(run.revision.spec.get("trigger", {}).get("kind", ""))
    is_certain, batch = True, None
    if driver_ended:
        is_certain, batch = left_out(lambda: (True, in_flight_at_death(run, status)), (False, None))
    return RunSeen(
        id=run.pk,
        driver=run.driver_id,
        generation=run.generation,
        created_at=run.created_at,
        ends_by_itself=trigger in ENDING_TRIGGERS,
        trigger=trigger,
        subject=run.subject,
        proven_at=run.proven_at or committed or idle or None,
        committed=bool(committed),
        stop_asked_at=run.stop_asked_at,
        status=status,
        in_flight=batch,
        in_flight_known=is_certain,
    )


def _suspicion(query: Query) -> Suspicion:
    """Return the activity of the query's newest runs when their drivers died."""
    others = Run.objects.filter(driver=OuterRef("driver")).exclude(at_death=Candidacy.NONE)
    ended = Run.objects.filter(query=query, generation=query.generation).exclude(
        outcome=RunOutcome.OPEN
    )
    neighbours = Exists(others.exclude(pk=OuterRef("pk")))
    runs = list(ended.annotate(crowded=neighbours).order_by("-epoch")[:RUNS_JUDGED])
    lone = takewhile(lambda run: run.at_death == Candidacy.STARTING and not run.crowded, runs)
    newest = runs[0] if runs else None
    return Suspicion(
        last=Candidacy(newest.at_death) if newest else Candidacy.NONE,
        run=newest.pk if newest else 0,
        lone=len(list(lone)),
    )


def _recent(query: Query) -> tuple[Earlier, ...]:
    return _earlier(
        Failure.objects.filter(run__query=query), "run__first_commit_at", query.failures
    )


def _earlier(
    rows: QuerySet[Failure], committed: str | Exists, failures: int
) -> tuple[Earlier, ...]:
    """Return the newest of these failures, at most as many as the counter says."""
    if not failures:
        return ()
    newest = rows.order_by("-at", "-pk").values_list("group__fingerprint", "batch", committed)
    return tuple(
        Earlier(print_, batch, bool(commit))
        for print_, batch, commit in newest[: min(failures, 100)]
    )


def observed_driver(driver: Driver | None, sighting: Sighting | None) -> DriverSeen | None:
    """Return a driver's row and sighting as one value; None without either."""
    if driver is None or sighting is None:
        return None
    return DriverSeen(
        id=driver.pk,
        epoch=driver.epoch,
        state=DriverState(driver.state),
        generation=driver.generation,
        created_at=driver.created_at,
        sighting=sighting,
        end_wanted=Reason(driver.end_wanted),
        end_wanted_at=driver.end_wanted_at,
        took_over_at=driver.took_over_at,
        progress=StartMark(driver.advanced_at, driver.advanced_cpu_s, driver.advanced_step)
        if driver.advanced_at is not None
        else None,
    )


def time_of(text: str | None) -> datetime | None:
    """Return a reported time; None if none was reported."""
    return datetime.fromisoformat(text) if text else None
