"""List the folders whose new files start queries, each at its own interval.

A local folder is listed by the application's host, a folder on remote storage by the application's
storage JVM. Only totals are stored; `ticks` decides what they start.
"""

import logging
import time
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from listeners.loops.backlogs import loop_errors
from queries.domain.definitions.locations import canonical, local_path
from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.planning import Totals, due_at, totals_from, totals_of
from queries.launchers.base import Launcher, LaunchRefused
from queries.models.applications import Application
from queries.models.schedules import ScheduleState
from queries.selectors.hosts import looked_after
from queries.services.checkpoints.storage_jvms import NoStorage, storage_of
from queries.services.local_roots import allowed_paths, follow
from queries.services.schedules.targets import target_of
from queries.storage.hadoop import LocalFiles, StorageFailed

logger = logging.getLogger(__name__)
_loop = loop_errors("look at folders", logger)

#: Seconds after which a pass lists no further folder; the next pass begins with the oldest.
PASS_S = 20.0
#: Files that are counted in a folder; one with more starts nothing, and says so.
MOST_FILES = 100_000


class _NotListed(Exception):
    """The folder was not listed; the message is a sentence."""


def look_at_folders(*, launcher: Launcher, now: datetime) -> None:
    """List this host's folders that are due, and note which have new files."""
    mine = looked_after("query__application__") | looked_after("application__")
    states = ScheduleState.objects.filter(mine, Q(kind="files"))
    began = time.monotonic()
    for state in states.select_related("query__application", "application").order_by("looked_at"):
        if time.monotonic() - began > PASS_S:
            break
        with _loop.isolate_errors(f"folder of the schedule of {target_of(state).name}"):
            _look(state, launcher, now)


def _look(state: ScheduleState, launcher: Launcher, now: datetime) -> None:
    target = target_of(state)
    with transaction.atomic():
        target.lock()
        schedule = target.schedule()
    if schedule is None or schedule.kind != "files":
        return
    if state.looked_at and timedelta() <= now - state.looked_at < timedelta(
        seconds=schedule.poll_interval_s
    ):
        return
    application = state.query.application if state.query else state.application
    assert application is not None, "a constraint of the table"
    try:
        totals = _totals(application, schedule, launcher, now)
    except NoStorage:
        return  # the JVM is starting; the next pass asks again
    except _NotListed as error:
        ScheduleState.objects.filter(pk=state.pk, digest=state.digest).update(
            problem=str(error)[:500], looked_at=now
        )
        return
    with transaction.atomic():
        target.lock()  # as `ticks` does: an arrival is not forgotten by a run that begins now
        _note(state.pk, state.digest, schedule, totals, now)


def _totals(
    application: Application, schedule: Schedule, launcher: Launcher, now: datetime
) -> Totals:
    """Return the folder's totals; raises `NoStorage` while its storage JVM starts."""
    folder = canonical(schedule.files)
    refused = allowed_paths(application.name).problem("schedule.files", folder, follow)
    if refused is not None:
        raise _NotListed(f"{schedule.files} {refused.message} {refused.way_out}")
    try:
        if local_path(folder) is not None:
            listing = LocalFiles().list(folder, deep=True, most=MOST_FILES)
        else:
            storage = storage_of(application, launcher=launcher, now=now)
            listing = storage.list(folder, deep=True, most=MOST_FILES)
    except (LaunchRefused, StorageFailed) as error:
        raise _NotListed(str(error)) from error
    if listing.more:
        raise _NotListed(
            f"{schedule.files} has more than {MOST_FILES:,} files, so new ones are not noticed."
            " Name a smaller folder, or use a cron expression."
        )
    return totals_of(
        (file.name, file.bytes, file.modified_at.timestamp() if file.modified_at else 0.0)
        for file in listing.entries
    )


def _note(state_id: int, digest: str, schedule: Schedule, totals: Totals, now: datetime) -> None:
    state = ScheduleState.objects.filter(pk=state_id, digest=digest).first()
    if state is None:
        return  # the definition has changed since
    arrived = totals.has_more_than(totals_from(state.totals))
    state.totals, state.looked_at, state.problem = totals.body(), now, ""
    if arrived:
        state.first_arrival_at = state.first_arrival_at or now
        state.newest_arrival_at = now
        state.next_at = due_at(state.first_arrival_at, now, schedule.quiet_period_s)
    state.save(
        update_fields=[
            *("totals", "looked_at", "problem"),
            *("first_arrival_at", "newest_arrival_at", "next_at"),
        ]
    )
