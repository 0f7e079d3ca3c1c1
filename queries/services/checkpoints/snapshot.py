"""Take a snapshot: save a running or stopped query's checkpoint as of one batch.

Snapshots have their own folder next to the checkpoint, on its file system, so that hard links work
and no checkpoint is nested in another query's.
"""

import logging
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from controlplane.nudge import changed
from listeners.loops.backlogs import loop_errors
from queries.checkpoints.snapshot import remove
from queries.domain.checkpoints.ownership import FOLDER, local_path
from queries.domain.errors import NotAllowed
from queries.domain.states import Verb
from queries.launchers.base import Launcher
from queries.models.checkpoints import Snapshot
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.selectors.hosts import elsewhere, on_this_host
from queries.services.checkpoints.remote import copy_beside, delete_copy, readable_logs
from queries.services.checkpoints.switching import current, local_folder_of
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
    begin,
)

logger = logging.getLogger(__name__)
_prune = loop_errors("prune", logger)


def request_snapshot(
    *,
    query: Query,
    actor: str,
    now: datetime,
    batch: int | None = None,
    reason: str = "",
    pinned: bool = False,
) -> Operation:
    """Request a snapshot of the checkpoint after `batch`; None is the newest committed one.

    Raises `NotAllowed` if the checkpoint is not on this host, or nothing is committed.
    """
    checkpoint = current(query)
    if readable_logs(checkpoint.location).last_commit() is None:
        raise NotAllowed(
            f"{query.name} has not committed a batch yet.",
            way_out="Wait until it has committed one.",
        )
    arguments = {
        "checkpoint": checkpoint.pk,
        "batch": batch,
        "reason": reason[:200],
        "pinned": pinned,
    }
    return begin(PROCEDURE, query=query, arguments=arguments, actor=actor, now=now)


def pin(row: Snapshot, *, pinned: bool) -> None:
    """Exempt a snapshot from pruning, or end the exemption."""
    Snapshot.objects.filter(pk=row.pk).update(pinned=pinned)
    changed(f"query:{row.checkpoint.query_id}")


def remove_snapshot(row: Snapshot, *, now: datetime) -> None:
    """Delete a snapshot's files; keep its row as history. Pinned snapshots are not deleted."""
    with transaction.atomic():
        snapshot = Snapshot.objects.select_for_update().get(pk=row.pk)
        if snapshot.pinned:
            raise NotAllowed("The snapshot is protected.", way_out="Remove its protection first.")
        Snapshot.objects.filter(pk=row.pk, removed_at=None).update(removed_at=now)
    if local_path(row.location) and not elsewhere(row.checkpoint.query.application):
        remove(
            local_folder_of(row.location)
        )  # others are deleted by `prune`, on the application's host
    changed(f"query:{row.checkpoint.query_id}")


def prune(*, launcher: Launcher, now: datetime) -> int:
    """Delete this host's snapshots beyond each query's newest `SNAPSHOTS_KEPT`; return how many.

    Pinned snapshots are neither deleted nor counted. If a worker that died left files behind, they
    are deleted too, for snapshots removed within the last day.
    """
    removed = 0
    local = Snapshot.objects.filter(on_this_host("checkpoint__query__application__"))
    for row in local.filter(removed_at__gte=now - timedelta(days=1)):
        with _prune.isolate_errors(f"snapshot {row.location}"):
            application = row.checkpoint.query.application
            delete_copy(row.location, application, launcher=launcher, now=now)
    rows = local.filter(removed_at=None, pinned=False).select_related("checkpoint")
    counts: dict[int, int] = {}
    for row in rows.order_by("-taken_at", "-pk"):
        query = row.checkpoint.query_id
        counts[query] = counts.get(query, 0) + 1
        if counts[query] > settings.SNAPSHOTS_KEPT:
            with _prune.isolate_errors(f"snapshot {row.location}"):
                remove_snapshot(row, now=now)
                removed += 1
    return removed


# --- the steps ----------------------------------------------------------------------------


def _destination(context: StepContext) -> str:
    checkpoint = context.query.checkpoints.get(pk=context.arguments["checkpoint"])
    stamp = f"{context.operation.created_at:%Y%m%dT%H%M%S}-{str(context.operation.uuid)[:8]}"
    if (path := local_path(checkpoint.location)) is not None:
        return f"file://{path.parent / FOLDER / f'{path.name}.snapshots' / stamp}"
    parent, _, name = checkpoint.location.rpartition("/")
    return f"{parent}/{FOLDER}/{name}.snapshots/{stamp}"


def _copy(context: StepContext) -> StepResult:
    checkpoint = context.query.checkpoints.get(pk=context.arguments["checkpoint"])
    if "batch" not in context.result:
        copied = copy_beside(
            context, checkpoint.location, _destination(context), context.arguments["batch"]
        )
        if isinstance(copied, StepResult):
            return copied
        context.result.update(batch=copied.batch, bytes=copied.bytes, files=copied.files)
    return DONE


def _write_down(context: StepContext) -> StepResult:
    with transaction.atomic():
        context.insist()
        Snapshot.objects.get_or_create(
            location=_destination(context),
            defaults={
                "checkpoint_id": context.arguments["checkpoint"],
                "batch": context.result["batch"],
                "bytes": context.result["bytes"],
                "taken_at": context.now,
                "pinned": context.arguments["pinned"],
                "reason": context.arguments["reason"],
                "operation": context.operation,
            },
        )
        changed(f"query:{context.query.pk}")
    return DONE


def _undo(context: StepContext) -> StepResult | None:
    destination = _destination(context)
    if Snapshot.objects.filter(location=destination).exists():
        return None
    return delete_copy(
        destination, context.query.application, launcher=context.launcher, now=context.now
    )


PROCEDURE = Procedure(
    Verb.SNAPSHOT,
    (
        ProcedureStep("Copy the checkpoint", _copy),
        ProcedureStep("Record the snapshot", _write_down, commits=True),
    ),
    limit=timedelta(minutes=10),
    undo=_undo,
)
