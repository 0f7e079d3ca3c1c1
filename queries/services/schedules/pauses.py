"""Pause a schedule, and resume it; its planned times are skipped in between.

What is due at either moment is decided by the schedule as it was until then, whoever looks when.
"""

from datetime import datetime

from django.db import transaction

from queries.domain.access import Act
from queries.domain.schedules.planning import SkipReason
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.schedules import ScheduleState
from queries.selectors.schedules import ScheduleStatus, schedule_status
from queries.services.access.audit import record_act
from queries.services.schedules.targets import QueryTarget, ScriptTarget
from queries.services.schedules.ticks import decide_due


def pause(owner: Query | Application, *, actor: str, now: datetime) -> ScheduleStatus:
    """Pause a schedule; a run that it has started continues. `Missing` without one."""
    return _set(owner, paused=True, actor=actor, now=now)


def resume(owner: Query | Application, *, actor: str, now: datetime) -> ScheduleStatus:
    """Resume a schedule from now on. `Missing` if there is none."""
    return _set(owner, paused=False, actor=actor, now=now)


@transaction.atomic
def _set(owner: Query | Application, *, paused: bool, actor: str, now: datetime) -> ScheduleStatus:
    target = (
        QueryTarget(owner.name, owner)
        if isinstance(owner, Query)
        else ScriptTarget(owner.name, owner)
    )
    target.lock()  # as the task does, so that a time is not judged by both states
    status = schedule_status(owner, now=now)
    state = status.state
    if (state.paused_at is not None) != paused:
        decide_due(target, status.schedule, now, SkipReason.PAUSED)
        ScheduleState.objects.filter(pk=state.pk).update(
            paused_at=now if paused else None, paused_by=actor if paused else ""
        )
        record_act(Act.SCHEDULE, actor=actor, now=now, subject=owner.name, paused=paused)
    return schedule_status(owner, now=now)
