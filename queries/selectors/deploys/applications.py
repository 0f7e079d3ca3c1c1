"""Collect evidence about an application since a deploy replaced its driver, from rows.

An application is assessed by the same rule as its queries: the queries that run in it show that its
code, packages and configuration work. For a script, every query that it starts counts. Otherwise,
queries that ran or changed are assessed individually, so for the application the first one that
runs is enough.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Q

from listeners.models import Progress
from queries.domain.deploys.judging import Basis, ObservedChange
from queries.domain.reasons import Because, Detail, waited
from queries.domain.states import (
    HELD_PHASES,
    OPEN_DRIVER_STATES,
    Desired,
    DriverKind,
    DriverState,
    Hold,
    Phase,
    RunOutcome,
)
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.deploys.receipts import DeployChange
from queries.models.drivers import Driver, Run
from queries.selectors.deploys.evidence import (
    DONE,
    DeployEvidence,
    driver_since,
    failures_of,
    is_reconciled,
    is_starting,
    observed_failure,
    ready_at,
    stored_failures,
)


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
    life = _of_script(script, driver, runs) if script else _of_driver(row, driver, runs)
    failures = failures_of(change, Q(run__driver=driver) if script and driver else Q(pk=None))
    pinned = row.target_revision
    ready = ready_at(driver) if driver else None
    observed = ObservedChange(
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
    return DeployEvidence(observed, stored, None)


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


def _of_script(script: Script, driver: Driver | None, runs: Iterable[Run]) -> _Life:
    wanted, phase = script.desired == Desired.RUNNING, Phase(script.phase)
    explanation = waited(script.phase, script.phase_reason, script.phase_detail)
    if driver is None or phase is not Phase.RUNNING:
        about = Because(Detail.AWAITS_DRIVER, {"about": explanation.as_json()})
        is_blocked = phase in HELD_PHASES
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
    blocked = [query for query in wanted if query.phase in HELD_PHASES]
    current = [query for query in blocked if query.seen_generation >= query.generation]
    if not wanted:
        phase = Phase.COMPLETED if is_good else Phase.STOPPED
    elif row.hold == Hold.FAILED:
        phase, waits_for = Phase.FAILED, row.hold_reason
    elif not is_good and len(current) == len(wanted):
        first = blocked[0]
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
