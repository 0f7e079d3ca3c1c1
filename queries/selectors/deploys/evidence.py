"""Collect evidence about a query, or an application's driver, since a deploy restarted it.

An application is assessed by the same rule as its queries: the queries that run in it show that its
code, packages and configuration work. For a script, every query that it starts counts. Otherwise,
queries that ran or changed are assessed individually, so for the application the first one that
runs is enough.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Max, Min, Q, QuerySet

from listeners.models import Progress
from queries import host_pressure
from queries.domain.deploys.course import Basis, ObservedChange, SeenFailure
from queries.domain.reasons import Because, Detail, waited
from queries.domain.states import (
    BLOCKED_PHASES,
    OPEN_DRIVER_STATES,
    Desired,
    DriverKind,
    DriverState,
    Phase,
    Reason,
    RestartBlock,
    RunOutcome,
)
from queries.domain.supervision.progress import waits_for_start
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.deploys import DeployChange
from queries.models.drivers import Driver, Run
from queries.models.history import Failure, Transition
from queries.selectors.kafka.lag import lag_lines

#: Characters of an error in a report; the failure's own page has the complete text.
_LONGEST = 500
_MOST_FAILURES = 5
#: Outcomes of a run that ended properly, by its trigger or by its script.
DONE = (RunOutcome.COMPLETED, RunOutcome.STOPPED)


@dataclass(frozen=True, slots=True)
class DeployEvidence:
    """The facts to assess, and the part of them that the report stores."""

    observed: ObservedChange
    stored: dict[str, Any]
    first_batch: int | None


def of_query(change: DeployChange, revision: int, *, now: datetime) -> DeployEvidence:
    """Return the evidence about a query on the revision that it was restarted on."""
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
    observed_change = ObservedChange(
        name=query.name,
        restarted_at=change.restarted_at,
        is_wanted=query.desired == Desired.RUNNING,
        on_revision=pinned is not None and pinned.number == revision,
        phase=Phase(query.phase),
        waits_for=waited(query.phase, query.phase_reason, query.phase_detail),
        is_looked_at=query.seen_generation >= query.generation and is_reconciled(query.application),
        proven_at=proven,
        batches=counted["count"],
        failures=tuple(observed_failure(failure, change.restarted_at) for failure in failures),
        lag_before=change.evidence.get("lag_before"),
        lag=lag,
        arrival_rate=rate,
        is_starting=is_starting(query.phase, query.phase_reason),
        started_at=current.started_at if current else None,
        start_max=timedelta(seconds=settings.START_MAX_S),
    )
    judged_by = Detail.JUDGED_RUNS
    if query.discovered:
        observed_change = _of_script(observed_change, change, runs)
        judged_by = Detail.NOT_JUDGED if observed_change.unstarted_since else judged_by
    elif not change.is_written and not change.ran:
        observed_change, judged_by = (
            replace(observed_change, basis=Basis.FAILURES),
            Detail.JUDGED_FAILURES,
        )
    stored = {
        "judged_by": Because(judged_by).as_json(),
        "restarted_at": change.restarted_at.isoformat(),
        "run": current.pk if current else None,
        "proven_at": proven.isoformat() if proven else None,
        "batches": counted["count"],
        "lag": lag,
        "failures": stored_failures(failures),
    }
    return DeployEvidence(observed_change, stored, counted["first"])


def is_starting(phase: str, reason: str) -> bool:
    """Return whether a query or script waits for a start that supervision gives up when stuck."""
    busy = host_pressure.read_pressure().is_high
    return waits_for_start(Phase(phase), Reason(reason), busy=busy)


def _of_script(
    observed_change: ObservedChange, change: DeployChange, runs: QuerySet[Run]
) -> ObservedChange:
    """Return the evidence about a query that its script starts or no longer starts."""
    newest = runs.order_by("-epoch").first()
    if newest is not None:
        ended = newest.outcome in DONE
        about = Because(Detail.AWAITS_COMMIT, {"about": observed_change.waits_for.as_json()})
        phase = Phase.COMPLETED if ended else observed_change.phase
        return replace(
            observed_change, basis=Basis.FOUND, is_wanted=not ended, phase=phase, waits_for=about
        )
    driver = driver_since(change)
    since = quiet_since(driver) if driver else None
    return replace(
        observed_change,
        basis=Basis.FOUND,
        is_wanted=True,
        waits_for=Because(Detail.SCRIPT_STARTS),
        unstarted_since=since,
    )


def query_of(change: DeployChange) -> Query:
    """Return the current row of a change's query."""
    assert change.query_id is not None, "an application's own change has no query"
    rows = Query.objects.select_related("application", "target_revision")
    return rows.get(pk=change.query_id)


def runs_since(change: DeployChange, revision: int) -> QuerySet[Run]:
    """Return a query's runs on a revision since its restart."""
    rows = Run.objects.filter(query=change.query_id, revision__number=revision)
    if change.restart_epoch is None:
        return rows.filter(created_at__gte=change.restarted_at)
    if change.with_driver:  # until it exits, the previous driver may start it once more
        took_over = Q(driver__took_over_at__gte=change.restarted_at)
        rows = rows.filter(Q(driver__epoch__gt=change.restart_epoch) | took_over)
    return rows.filter(epoch__gt=change.restart_epoch)


def drivers_since(change: DeployChange) -> QuerySet[Driver]:
    """Return the drivers of a change's application since its restart, newest first."""
    rows = Driver.objects.filter(application=change.application_id, kind=DriverKind.SERVICE)
    if change.restart_epoch is None:
        return rows.filter(created_at__gte=change.restarted_at).order_by("-epoch")
    took_over = Q(took_over_at__gte=change.restarted_at)  # as a standby, which has an older epoch
    return rows.filter(Q(epoch__gt=change.restart_epoch) | took_over).order_by("-epoch")


def driver_since(change: DeployChange) -> Driver | None:
    """Return the newest driver of a change's application since its restart."""
    return drivers_since(change).first()


def ready_at(driver: Driver) -> datetime | None:
    """Return when a driver's session started; None if it has not, or never will."""
    rows = Transition.objects.filter(driver=driver, subject="driver", after=DriverState.LIVE)
    return rows.order_by("at").values_list("at", flat=True).first()


def quiet_since(driver: Driver) -> datetime | None:
    """Return when a script last started anything; None while its driver is not ready."""
    ready = ready_at(driver)
    last = driver.runs.aggregate(last=Max("created_at"))["last"]
    return max(ready, last) if ready and last else ready


def is_reconciled(application: Application) -> bool:
    """Return whether reconcile has seen the application's newest restart."""
    return application.seen_generation >= application.generation


def has_started(change: DeployChange) -> bool:
    """Return whether Spark has started the new definition, which may have written data."""
    if change.restarted_at is None or change.to_revision is None:
        return False
    return runs_since(change, change.to_revision).filter(started_at__isnull=False).exists()


def lag_before(query_id: int, *, now: datetime) -> int | None:
    """Return a query's lag in records; None if it is not measured."""
    line = lag_lines([query_id], now=now).get(query_id)
    return line.records if line else None


def _lag(query: Query, *, since: datetime | None, now: datetime) -> tuple[int | None, float]:
    line = lag_lines([query.pk], now=now).get(query.pk)
    if line is None or since is None or line.seen_at <= since:
        return None, 0.0
    return line.records, line.arrival_rate or 0.0


def _failures(change: DeployChange, runs: QuerySet[Run]) -> list[Failure]:
    """Return the failures since the restart, oldest first: those of runs and drivers."""
    return failures_of(change, Q(run__in=runs))


def failures_of(change: DeployChange, which: Q) -> list[Failure]:
    """Return the failures of these runs, and of drivers since the restart, oldest first."""
    drivers = Q(run=None, driver__in=drivers_since(change).values("pk"))
    rows = Failure.objects.filter(which | drivers).select_related("group")
    return list(rows.order_by("at", "pk")[:_MOST_FAILURES])


def observed_failure(failure: Failure, since: datetime) -> SeenFailure:
    """Return a failure in the form for the assessment, with whether it is new since `since`."""
    group = failure.group
    came_back = group.regressed_at is not None and group.regressed_at >= since
    about = Because(Detail.GROUP, {"group": group.title})
    return SeenFailure(about, is_new=came_back or group.first_seen >= since)


def stored_failures(failures: Iterable[Failure]) -> list[dict[str, Any]]:
    """Return the failures in the form stored in a report."""
    return [
        {
            "failure": failure.pk,
            "title": failure.group.title,
            "error_class": failure.error_class,
            "message": failure.shown(failure.root_cause or failure.message)[:_LONGEST],
            "batch": failure.batch,
        }
        for failure in failures
    ]


@dataclass(frozen=True, slots=True)
class _Life:
    """The state of an application's script, or of its driver."""

    basis: Basis
    is_wanted: bool
    phase: Phase
    waits_for: Because
    proven_at: datetime | None = None
    batches: int = 0


def of_application(change: DeployChange, revision: int, *, now: datetime) -> DeployEvidence:
    """Return the evidence about an application on a revision, since its driver was replaced."""
    assert change.restarted_at is not None, "only what was restarted is judged"
    assert change.application_id is not None, "what was written is there"
    row = Application.objects.select_related("target_revision").get(pk=change.application_id)
    script = Script.objects.filter(application=row).first()
    driver = driver_since(change)
    runs = _newest_runs(driver)
    life = _of_script_driver(script, driver, runs) if script else _of_driver(row, driver, runs)
    failures = failures_of(change, Q(run__driver=driver) if script and driver else Q(pk=None))
    pinned = row.target_revision
    ready = ready_at(driver) if driver else None
    observed_change = ObservedChange(
        name=row.name,
        restarted_at=change.restarted_at,
        is_wanted=life.is_wanted,
        on_revision=pinned is not None and pinned.number == revision,
        phase=life.phase,
        waits_for=life.waits_for,
        is_looked_at=is_reconciled(row),
        proven_at=life.proven_at,
        batches=life.batches,
        failures=tuple(observed_failure(failure, change.restarted_at) for failure in failures),
        basis=life.basis,
        is_starting=_is_starting(script, driver),
        started_at=ready,
        start_max=timedelta(seconds=settings.START_MAX_S),
    )
    stored = {
        "judged_by": _judged_by(life.basis, driver, runs).as_json(),
        "restarted_at": change.restarted_at.isoformat(),
        "driver": driver.epoch if driver else None,
        "ready_at": ready.isoformat() if ready else None,
        "proven_at": life.proven_at.isoformat() if life.proven_at else None,
        "queries": [
            {"query": run.query.name, "run": run.pk, "proven_at": _iso(run.proven_at)}
            for run in runs
        ],
        "failures": stored_failures(failures),
    }
    return DeployEvidence(observed_change, stored, None)


def _is_starting(script: Script | None, driver: Driver | None) -> bool:
    if script is not None:
        return is_starting(script.phase, script.phase_reason)
    return driver is not None and driver.state == DriverState.STARTING


def application_runs(application: Application) -> bool:
    """Return whether an application's script runs or, if it has no script, its driver."""
    script = Script.objects.filter(application=application).first()
    if script is not None:
        return script.phase == Phase.RUNNING
    drivers = application.drivers.filter(kind=DriverKind.SERVICE, state=DriverState.LIVE)
    return drivers.exists()


def _newest_runs(driver: Driver | None) -> list[Run]:
    """Return the newest run of each query in a driver, by the query's name."""
    rows = Run.objects.filter(driver=driver).select_related("query") if driver else ()
    newest = {run.query_id: run for run in sorted(rows, key=lambda run: run.epoch)}
    return sorted(newest.values(), key=lambda run: run.query.name)


def _of_script_driver(script: Script, driver: Driver | None, runs: Iterable[Run]) -> _Life:
    wanted, phase = script.desired == Desired.RUNNING, Phase(script.phase)
    explanation = waited(script.phase, script.phase_reason, script.phase_detail)
    if driver is None or phase is not Phase.RUNNING:
        about = Because(Detail.AWAITS_DRIVER, {"about": explanation.as_json()})
        is_blocked = phase in BLOCKED_PHASES
        return _Life(Basis.SCRIPT, wanted, phase, explanation if is_blocked else about)
    going = [run for run in runs if run.outcome not in DONE]
    unproven = [run.query.name for run in going if run.outcome or run.proven_at is None]
    if not runs:
        return _Life(Basis.SCRIPT, wanted, phase, Because(Detail.AWAITS_FIRST_QUERY))
    if unproven:
        about = Because(Detail.AWAITS_QUERIES, {"queries": ", ".join(unproven)})
        return _Life(Basis.SCRIPT, wanted, phase, about)
    proven = max(_good_at(run) for run in runs)
    batches = _fewest_batches(going)
    return _Life(Basis.SCRIPT, wanted, phase, explanation, proven, batches)


def _of_driver(row: Application, driver: Driver | None, runs: Iterable[Run]) -> _Life:
    queries = Query.objects.filter(application=row, archived_at=None, desired=Desired.RUNNING)
    wanted = list(queries.order_by("name"))
    is_good = [run for run in runs if run.proven_at or run.outcome == RunOutcome.COMPLETED]
    proven = min((_good_at(run) for run in is_good), default=None)
    phase, waits_for = Phase.STARTING, Because(Detail.AWAITS_ANY_QUERY)
    blocked_queries = [query for query in wanted if query.phase in BLOCKED_PHASES]
    current = [query for query in blocked_queries if query.seen_generation >= query.generation]
    if not wanted:
        phase = Phase.COMPLETED if is_good else Phase.STOPPED
    elif row.restart_block == RestartBlock.FAILED:
        phase, waits_for = Phase.FAILED, row.restart_block_reason
    elif not is_good and len(current) == len(wanted):
        first = blocked_queries[0]
        phase = Phase.FAILED
        waits_for = waited(first.phase, first.phase_reason, first.phase_detail)
    elif driver is not None and driver.state == DriverState.LIVE:
        phase = Phase.RUNNING
    elif driver is None or driver.state not in OPEN_DRIVER_STATES or not proven:
        first = wanted[0]
        about = waited(first.phase, first.phase_reason, first.phase_detail)
        waits_for = Because(Detail.AWAITS_DRIVER, {"about": about.as_json()})
    return _Life(Basis.DRIVER, bool(wanted), phase, waits_for, proven)


def _good_at(run: Run) -> datetime:
    """Return when a run was confirmed good."""
    confirmed_at = run.proven_at or run.ended_at
    assert confirmed_at is not None, "what is not proven has ended"
    return confirmed_at


def _fewest_batches(runs: Iterable[Run]) -> int:
    """Return the smallest number of batches that any of these runs has committed.

    Without runs, this is a number larger than any deploy requires.
    """
    ids = [run.pk for run in runs]
    rows = Progress.objects.filter(run__in=ids).values("run").annotate(count=Count("pk"))
    counts = {row["run"]: row["count"] for row in rows.order_by()}
    return min((counts.get(pk, 0) for pk in ids), default=1000)


def _judged_by(basis: Basis, driver: Driver | None, runs: Iterable[Run]) -> Because:
    params = {"driver": driver.epoch if driver else None}
    if basis is Basis.DRIVER:
        return Because(Detail.JUDGED_DRIVER, params)
    if names := ", ".join(run.query.name for run in runs):
        return Because(Detail.JUDGED_SCRIPT_QUERIES, {**params, "queries": names})
    return Because(Detail.JUDGED_SCRIPT, params)


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
