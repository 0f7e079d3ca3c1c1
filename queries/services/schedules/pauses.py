"""Pause a schedule, and resume it; its planned times are skipped in between."""

from datetime import datetime

from django.db import transaction

from queries.domain.access.acts import Act
from queries.models.definitions import Query
from queries.models.schedules.planned import ScheduleState
from queries.selectors.schedules.planned import ScheduleStatus, schedule_status
from queries.services.access.audit_trail import record_act
from queries.services.supervision.operations import locked


def pause(query: Query, *, actor: str, now: datetime) -> ScheduleStatus:
    """Pause a query's schedule; a run that it has started continues. `Missing` without one."""
    return _set(query, paused=True, actor=actor, now=now)


def resume(query: Query, *, actor: str, now: datetime) -> ScheduleStatus:
    """Resume a query's schedule from now on. `Missing` if it has none."""
    return _set(query, paused=False, actor=actor, now=now)


@transaction.atomic
def _set(query: Query, *, paused: bool, actor: str, now: datetime) -> ScheduleStatus:
    query = locked(query)  # as the task does, so that a time is not judged by both states
    state = schedule_status(query, now=now).state
    if (state.paused_at is not None) != paused:
        ScheduleState.objects.filter(pk=state.pk).update(
            paused_at=now if paused else None, paused_by=actor if paused else ""
        )
        record_act(Act.SCHEDULE, actor=actor, now=now, subject=query.name, paused=paused)
    return schedule_status(query, now=now)
