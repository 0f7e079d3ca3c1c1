"""Keep a standby driver for each application that wants one, on the host that runs its driver.

A standby is a driver of kind STANDBY: its Spark session has started and has run one small batch.
Its epoch is higher than that of the driver next to it. It does not own a checkpoint or execute
anything until `current.json` contains its epoch. `reconcile` lets it take over where it would
otherwise launch a driver (docs/decisions/0039-standby-drivers.md).
"""

import logging
from datetime import datetime

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import OuterRef, Q, Subquery
from django.db.models.fields.json import KT

from listeners.loops.backlogs import loop_errors
from listeners.missing.gaps import note_exit
from queries import host_pressure
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.hosts import memory_mb
from queries.domain.protocol import Assignment, DriverSpec
from queries.domain.states import (
    DISPATCHED_KINDS,
    OPEN_DRIVER_STATES,
    Desired,
    DriverKind,
    DriverState,
    Reason,
    RestartBlock,
)
from queries.domain.supervision.decision import DriverAction, DriverDecision
from queries.domain.supervision.standbys import (
    COUNTED,
    TAKES_OVER,
    StandbyDecision,
    StandbyWanted,
    decide_standby,
    is_calm,
    may_take_over,
)
from queries.jvm.compiled import begin, compile_failed, existing
from queries.launchers.base import Launcher, LaunchRefused
from queries.models.applications import Application, ApplicationRevision
from queries.models.drivers import Driver
from queries.selectors.spark_folders import jars_of
from queries.selectors.supervision.applications import pool_form
from queries.selectors.supervision.observation import (
    Rows,
    memory_budget_mb,
    memory_of,
    observed_driver,
    open_drivers_on_this_host,
    read_rows,
    slots,
    supervision_limits,
)
from queries.services.code import preparing
from queries.services.code.preparing import Frozen
from queries.services.supervision import assignments, decision_rows

logger = logging.getLogger(__name__)
_loop = loop_errors("standbys", logger)

_OPEN = sorted(OPEN_DRIVER_STATES)


def keep_standbys(*, launcher: Launcher, now: datetime) -> None:
    """Launch, observe and end the standbys of this host's applications."""
    newest = ApplicationRevision.objects.filter(application=OuterRef("application"))
    standby_modes = newest.order_by("-number").annotate(standby_mode=KT("spec__standby"))
    local_drivers = Driver.objects.filter(host=settings.HEADGATE_HOST, state__in=_OPEN).order_by()
    drivers = local_drivers.filter(kind__in=DISPATCHED_KINDS).annotate(
        wanted=Subquery(standby_modes.values("standby_mode")[:1])
    )
    drivers = drivers.filter(Q(kind=DriverKind.STANDBY) | Q(wanted="own"))
    for pk, name in sorted(set(drivers.values_list("application_id", "application__name"))):
        with _loop.isolate_errors(name):
            keep_standby(pk, launcher=launcher, now=now)


def keep_standby(application_id: int, *, launcher: Launcher, now: datetime) -> None:
    """Bring one application's standby on this host a step closer to its desired state."""
    rows = read_rows(application_id)
    if rows is None:
        return
    row = _open_row(rows.application)
    standby = None
    if row is not None:
        name = rows.application.name
        standby = observed_driver(row, launcher.sight(name, row.epoch, identity=row.identity))
    limits = supervision_limits()
    choice = decide_standby(standby, _wanted(rows, row, launcher, now), limits, now)
    if row is None:
        if choice.action is DriverAction.LAUNCH:
            _launch(rows, launcher, now)
        return
    assert standby is not None
    written = DriverDecision(
        state=choice.state,
        end_wanted=choice.end_wanted,
        exit=choice.exit,
        reason=_reason(choice),
        progress=choice.progress,
    )
    with transaction.atomic():
        still = Driver.objects.select_for_update().filter(pk=row.pk, kind=DriverKind.STANDBY)
        if not still.exists():  # it has taken over in the meantime
            return
        if choice.exit is not None:
            last = choice.exit.last_seq
            note_exit(driver=row.pk, epoch=row.epoch, last_seq=last, at=now)
        decision_rows.update_driver(row, standby.sighting, written, now=now)
    _act(row, choice, launcher)


def able(rows: Rows, launcher: Launcher, *, now: datetime) -> Driver | None:
    """Return the standby that can take over as the application's driver; None if there is none."""
    row = _open_row(rows.application)
    if row is None or row.state not in TAKES_OVER or _why_not_fit(rows, row):
        return None
    standby = observed_driver(
        row, launcher.sight(rows.application.name, row.epoch, identity=row.identity)
    )
    assert standby is not None
    return row if may_take_over(standby, supervision_limits(), now) else None


def fits(standby: Driver, now_frozen: Frozen) -> bool:
    """Return whether a driver launched now would have the same spec and code.

    Raises `LaunchRefused` if no driver may be launched now.
    """
    if now_frozen.sha256 != standby.code_sha256:
        return False
    return assignments.launched_with(assignments.driver_spec(standby, now_frozen)) == (
        standby.launched_with
    )


def end(standby: Driver, reason: Reason, *, now: datetime) -> None:
    """Note that a standby must end; the next pass ends it."""
    standby_rows = Driver.objects.filter(pk=standby.pk, kind=DriverKind.STANDBY, end_wanted="")
    standby_rows.update(end_wanted=reason, end_wanted_at=now)


def make_room(spec: ApplicationSpec, *, now: datetime) -> None:
    """End this host's newest standbys until a driver of that size fits.

    Call this when a driver is launched: it does not wait for them. A standby has hardly used its
    memory, and ends before the new driver uses its own.
    """
    drivers = list(open_drivers_on_this_host())
    over = sum(map(memory_of, drivers)) + memory_mb(spec.memory) - memory_budget_mb()
    waiting = [row for row in drivers if row.kind == DriverKind.STANDBY and not row.end_wanted]
    for row in sorted(waiting, key=lambda row: -row.epoch):
        if over <= 0:
            return
        end(row, Reason.GIVEN_UP, now=now)
        over -= memory_of(row)


def _open_row(application: Application) -> Driver | None:
    rows = application.drivers.filter(
        kind=DriverKind.STANDBY, host=settings.HEADGATE_HOST, state__in=_OPEN
    )
    return rows.select_related("application", "application_revision").first()


def _wanted(rows: Rows, row: Driver | None, launcher: Launcher, now: datetime) -> StandbyWanted:
    why_not = _why_not(rows) or (_why_not_fit(rows, row) if row is not None else Reason.NONE)
    if row is not None:
        if not why_not and row.state == DriverState.LIVE and not _still_fits(row, launcher):
            why_not = Reason.REPLACED
        return StandbyWanted(why_not)
    if why_not:
        return StandbyWanted(why_not)
    ended = rows.application.drivers.filter(
        kind=DriverKind.STANDBY,
        end_wanted__in=("", Reason.START_TIMED_OUT),  # nobody wanted either
        ended_at__gt=now - COUNTED,
    )
    deaths = list(ended.order_by("-ended_at").values_list("ended_at", flat=True))
    return StandbyWanted(
        may_start=_may_start(rows, now),
        deaths=len(deaths),
        last_death=deaths[0] if deaths else None,
    )


def _why_not(rows: Rows) -> Reason:
    """Return why an application should have no standby on this host; NONE if it should."""
    newest = rows.application.revisions.order_by("-number").first() or rows.revision
    spec = ApplicationSpec.model_validate(newest.spec)
    if rows.paused:
        return Reason.SHUTDOWN
    running = any(query.desired == Desired.RUNNING for query in rows.queries)
    elsewhere = rows.placed_on != settings.HEADGATE_HOST
    has_failed = rows.application.restart_block == RestartBlock.FAILED
    if spec.standby == "none" or not running or elsewhere or has_failed:
        return Reason.NOT_WANTED
    return Reason.NONE


def _why_not_fit(rows: Rows, row: Driver) -> Reason:
    """Return why a standby does not match a new driver; NONE if it may match."""
    if row.end_wanted:
        return Reason(row.end_wanted)
    pools = [pool_form(pool) for pool in rows.application.pools.all()]
    later = rows.application.drivers.filter(kind=DriverKind.SERVICE, epoch__gt=row.epoch)
    if row.application_revision_id != rows.revision.pk or row.pools != pools or later.exists():
        return Reason.REPLACED
    return Reason.NONE


def _still_fits(row: Driver, launcher: Launcher) -> bool:
    """Return whether a driver with the same copies of the code would still have the same spec."""
    try:
        return fits(row, preparing.frozen(row, launcher))
    except LaunchRefused as error:
        return error.passing  # otherwise, no driver may be launched now


def _may_start(rows: Rows, now: datetime) -> bool:
    """Return whether the driver is calm, and nothing is waiting for this host's memory or cores.

    It waits until our Java classes are compiled or cannot be: without them, it could not take over
    every query.
    """
    if host_pressure.read_pressure().is_high and not settings.STANDBYS_WHEN_BUSY:
        return False
    driver = rows.driver
    if driver is None or driver.state != DriverState.LIVE or driver.end_wanted:
        return False
    runs = rows.runs.values()
    if not runs or not all(is_calm(run.proven_at, run.first_commit_at, now) for run in runs):
        return False
    spec = ApplicationSpec.model_validate(rows.revision.spec)
    classes = settings.JARS_DIR, jars_of(spec.spark)
    begin(*classes)
    if existing(*classes) is None and not compile_failed(*classes):
        return False
    drivers = list(open_drivers_on_this_host())
    if any(row.state == DriverState.STARTING for row in drivers) or slots(spec, now=now).free:
        return False
    return sum(map(memory_of, drivers)) + memory_mb(spec.memory) <= memory_budget_mb()


def _launch(rows: Rows, launcher: Launcher, now: datetime) -> None:
    spec = ApplicationSpec.model_validate(rows.revision.spec)
    try:
        frozen = preparing.freeze(spec, launcher)
        with transaction.atomic():
            row = decision_rows.create_driver(
                rows.application,
                rows.revision,
                launcher=launcher,
                code_sha256=frozen.sha256,
                now=now,
                kind=DriverKind.STANDBY,
            )
            driver_spec = assignments.driver_spec(row, frozen)
            row.launched_with = assignments.launched_with(driver_spec)
            row.save(update_fields=["launched_with"])
    except LaunchRefused as error:  # its driver's launch would be refused, too, and says so
        logger.info("no standby for %s: %s", rows.application.name, error)
        return
    except IntegrityError:  # another task of this worker was faster
        return
    _spawn(row, driver_spec, launcher)


def _spawn(row: Driver, spec: DriverSpec, launcher: Launcher) -> None:
    try:
        launcher.launch(spec, Assignment(generation=0, epoch=row.epoch), assignments.pools_xml(row))
    except LaunchRefused as error:  # tried again at each look until its start is overdue
        logger.warning("standby %s not launched: %s", row.epoch, error)


def _act(row: Driver, choice: StandbyDecision, launcher: Launcher) -> None:
    """Act on the process as its row requires; the next call repeats any lost action."""
    name = row.application.name
    try:
        match choice.action:
            case DriverAction.SPAWN:
                spec = assignments.driver_spec(row, preparing.frozen(row, launcher))
                _spawn(row, spec, launcher)
            case DriverAction.SEAL:
                launcher.seal(name, row.epoch)
            case DriverAction.TERMINATE:
                launcher.terminate(name, row.epoch)
            case DriverAction.KILL:
                launcher.kill(name, row.epoch, choice.end_wanted or Reason.DRIVER_DIED)
            case _:
                pass
    except LaunchRefused as error:
        logger.warning("standby %s: %s", row.epoch, error)


def _reason(choice: StandbyDecision) -> Reason:
    """Return the reason of a standby's state."""
    if choice.state is DriverState.FENCED:
        return Reason.FENCED
    if choice.exit is not None:
        return choice.end_wanted or Reason.DRIVER_DIED
    return choice.end_wanted or Reason.STANDS_BY
