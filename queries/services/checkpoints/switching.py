"""Point a stopped query at another checkpoint directory: one transaction, the old row kept.

The new directory is built beside the old one, which stays byte for byte as it is. Where the
new one lies is settled when the operation is asked for, so that a step taken twice means the
same place.
"""

import re
from datetime import datetime

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.definitions.locations import checkpoint_problem
from queries.domain.errors import Conflict, Invalid
from queries.domain.reasons import Because
from queries.domain.states import Desired, Reason, RunOutcome
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.models.history import Transition
from queries.services.procedures.engine import DONE, StepContext, StepResult, waiting
from queries.services.supervision.operation_rows import wake
from queries.services.supervision.operations import locked

#: What `beside` puts after a name; taken off before the next is put there.
_SUFFIX = re.compile(r"\.(r\d+|reset)-\d{8}T\d{6}")


def current(query: Query) -> Checkpoint:
    """Return the checkpoint that the query holds now."""
    return Checkpoint.objects.get(query=query, retired_at=None)


def beside(location: str, kind: str, now: datetime) -> str:
    """Return a location beside another, named for what it is: `delays.r40-20260302T120000`.

    Raises `Invalid` where some query holds it, or it is nested in one that does.
    """
    parent, _, name = location.rpartition("/")
    place = f"{parent}/{_SUFFIX.sub('', name)}.{kind}-{now:%Y%m%dT%H%M%S}"
    held = Checkpoint.objects.filter(retired_at=None).select_related("query")
    problem = checkpoint_problem(place, {row.location: row.query.name for row in held})
    if problem is not None:
        raise Invalid([problem])
    return place


def switch(turn: StepContext, location: str, reason: Reason, detail: Because) -> StepResult:
    """Retire the query's checkpoint and give it the one at `location`, built from it."""
    with transaction.atomic():
        row = locked(turn.query)
        turn.insist()
        old = current(row)
        if old.location == location:
            return DONE  # the worker that did it died before it could say so
        if Run.objects.filter(query=row, outcome=RunOutcome.OPEN).exists():
            return waiting("a run is still open")
        if row.desired != Desired.STOPPED:
            raise Conflict(f"{row.name} was started in the meantime.", way_out="Request it again.")
        # Whoever decides on what was read before this moment loses the compare-and-set.
        wake(row.application_id, turn.now)
        Checkpoint.objects.filter(pk=old.pk).update(retired_at=turn.now)
        Checkpoint.objects.create(query=row, location=location, created_at=turn.now, built_from=old)
        Transition.objects.create(
            at=turn.now,
            application=row.application,
            query=row,
            subject="checkpoint",
            before=_name(old.location),
            after=_name(location),
            reason=reason,
            detail=detail,
            actor=turn.operation.actor,
            operation=turn.operation,
        )
        changed(f"query:{row.pk}", "checkpoints")
    return DONE


def _name(location: str) -> str:
    name = location.rpartition("/")[2]
    return name if len(name) <= 40 else f"…{name[-39:]}"
