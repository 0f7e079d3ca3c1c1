"""Switch a stopped query to another checkpoint directory, in one transaction.

The old row is kept. The new directory is built next to the old one, which stays unchanged byte for
byte. Its location is decided when the operation is requested, so that a repeated step uses the same
one.
"""

import re
from datetime import datetime
from pathlib import Path

from django.db import transaction

from controlplane.nudge import changed
from queries.checkpoints.snapshot import CannotCopy
from queries.domain.checkpoints.lock_files import local_path
from queries.domain.definitions.locations import checkpoint_problem
from queries.domain.errors import Conflict, Invalid, NotAllowed
from queries.domain.kafka.topic_ids import as_json, as_of, ids_of
from queries.domain.reasons import Because
from queries.domain.states import Desired, Reason, RunOutcome
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.selectors.definitions.locations import held_checkpoints
from queries.services.changes import record
from queries.services.procedures.engine import DONE, StepContext, StepResult, waiting
from queries.services.supervision.operation_rows import schedule_reconcile
from queries.services.supervision.operations import locked

#: The suffix that `beside` appends to a name; removed before the next one is appended.
_SUFFIX = re.compile(r"\.(r\d+|reset)-\d{8}T\d{6}")


def current(query: Query) -> Checkpoint:
    """Return the query's current checkpoint."""
    return Checkpoint.objects.get(query=query, retired_at=None)


def local_folder_of(location: str) -> Path:
    """Return the folder of a local location."""
    path = local_path(location)
    if path is None:
        raise NotAllowed(f"{location} is not on this host.")
    return Path(path)


def beside(location: str, kind: str, now: datetime) -> str:
    """Return a location next to another, named by its purpose: `delays.r40-20260302T120000`.

    Raises `Invalid` if a query already uses that location, or one that contains it.
    """
    parent, _, name = location.rpartition("/")
    sibling = f"{parent}/{_SUFFIX.sub('', name)}.{kind}-{now:%Y%m%dT%H%M%S}"
    problem = checkpoint_problem(sibling, held_checkpoints())
    if problem is not None:
        raise Invalid([problem])
    return sibling


def switch(
    context: StepContext,
    reason: Reason,
    detail: Because,
    *,
    batch: int | None = None,
    host: str = "",
) -> StepResult:
    """Retire the query's checkpoint and switch the query to the one that the operation built.

    `batch` is the batch to continue after; None if the sources start elsewhere, with the topics
    that exist at that time. `host` is the host that takes over the application; "" if it does not
    move.
    """
    location = context.arguments["location"]
    path = local_path(location)  # on a storage, the step that built it has just succeeded
    if path is not None and not Path(path).exists():
        way_out = f"Request the {context.operation.verb} again."
        raise CannotCopy("The new checkpoint is gone.", way_out=way_out)
    with transaction.atomic():
        row = locked(context.query)
        context.insist()
        old = current(row)
        if old.location == location:
            return DONE  # already done by a worker that died before recording it
        if Run.objects.filter(query=row, outcome=RunOutcome.OPEN).exists():
            return waiting("a run is still open")
        if row.desired != Desired.STOPPED:
            raise Conflict(f"{row.name} was started in the meantime.", way_out="Request it again.")
        # Decisions on rows read before this moment fail the compare-and-set.
        schedule_reconcile(row.application_id, context.now)
        Checkpoint.objects.filter(pk=old.pk).update(retired_at=context.now)
        ids = as_json(as_of(ids_of(old.topic_ids), batch)) if batch is not None else {}
        Checkpoint.objects.create(
            query=row,
            location=location,
            by_default=old.by_default,
            created_at=context.now,
            built_from=old,
            topic_ids=ids,
        )
        if host:
            Application.objects.filter(pk=row.application_id).update(host=host)
        about = {"application": row.application, "query": row, "detail": detail}
        who = {"actor": context.operation.actor, "operation": context.operation}
        before, after = _name(old.location), _name(location)
        record("checkpoint", before, after, reason, now=context.now, **about, **who)
        changed(f"query:{row.pk}", "checkpoints")
    return DONE


def _name(location: str) -> str:
    name = location.rpartition("/")[2]
    return name if len(name) <= 40 else f"…{name[-39:]}"
