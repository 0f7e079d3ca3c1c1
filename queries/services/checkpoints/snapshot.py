"""Take a snapshot: save a running or stopped query's checkpoint as of one batch.

Snapshots have their own folder next to the checkpoint, on its file system, so that hard links work
and no checkpoint is nested in another query's.
"""

import logging
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from controlplane.nudge import changed
from listeners.loops.troubles import each
from queries.checkpoints.snapshot import remove
from queries.domain.checkpoints.lock_files import FOLDER, local_path
from queries.domain.errors import NotAllowed
from queries.domain.states import Verb
from queries.launchers.base import Launcher
from queries.models.checkpoints import Snapshot
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.selectors.hosts import elsewhere, placed_here
from queries.services.checkpoints.remote import copy_beside, delete_copy, readable_logs
from queries.services.checkpoints.switching import current, place_of
from queries.services.procedures.engine import DONE, Procedure, Step, StepContext, StepResult, begin

logger = logging.getLogger(__name__)
_prune = each("prune", logger)


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
        found = Snapshot.objects.select_for_update().get(pk=row.pk)
        if found.pinned:
            raise NotAllowed("The snapshot is pinned.", way_out="Unpin it first.")
        Snapshot.objects.filter(pk=row.pk, removed_at=None).update(removed_at=now)
    if local_path(row.location) and not elsewhere(row.checkpoint.query.application):
        remove(place_of(row.location))  # others are deleted by `prune`, on the application's host
    changed(f"query:{row.checkpoint.query_id}")


def prune(*, launcher: Launcher, now: datetime) -> int:
    """Delete this host's snapshots beyond each query's newest `SNAPSHOTS_KEPT`; return how many.

    Pinned snapshots are neither deleted nor counted. If a worker that died left files behind, they
    are deleted too, for snapshots removed within the last day.
    """
    gone = 0
    here = Snapshot.objects.filter(placed_here("checkpoint__query__application__"))
    for row in here.filter(removed_at__gte=now - timedelta(days=1)):
        with _prune.by_itself(f"snapshot {row.location}"):
            application = row.checkpoint.query.application
            delete_copy(row.location, application, launcher=launcher, now=now)
    rows = here.filter(removed_at=None, pinned=False).select_related("checkpoint")
    seen: dict[int, int] = {}
    for row in rows.order_by("-taken_at", "-pk"):
        query = row.checkpoint.query_id
        seen[query] = seen.get(query, 0) + 1
        if seen[query] > settings.SNAPSHOTS_KEPT:
            with _prune.by_itself(f"snapshot {row.location}"):
                remove_snapshot(row, now=now)
                gone += 1
    return gone


# --- the steps ----------------------------------------------------------------------------


def _destination(turn: StepContext) -> str:
    checkpoint = turn.query.checkpoints.get(pk=turn.arguments["checkpoint"])
    stamp = f"{turn.operation.created_at:%Y%m%dT%H%M%S}-{str(turn.operation.uuid)[:8]}"
    if (path := local_path(checkpoint.location)) is not None:
        return f"file://{path.parent / FOLDER / f'{path.name}.snapshots' / stamp}"
    parent, _, name = checkpoint.location.rpartition("/")
    return f"{parent}/{FOLDER}/{name}.snapshots/{stamp}"


def _copy(turn: StepContext) -> StepResult:
    checkpoint = turn.query.checkpoints.get(pk=turn.arguments["checkpoint"])
    if "batch" not in turn.result:
        copied = copy_beside(turn, checkpoint.location, _destination(turn), turn.arguments["batch"])
        if isinstance(copied, StepResult):
            return copied
        turn.result.update(batch=copied.batch, bytes=copied.bytes, files=copied.files)
    return DONE


def _write_down(turn: StepContext) -> StepResult:
    with transaction.atomic():
        turn.insist()
        Snapshot.objects.get_or_create(
            location=_destination(turn),
            defaults={
                "checkpoint_id": turn.arguments["checkpoint"],
                "batch": turn.result["batch"],
                "bytes": turn.result["bytes"],
                "taken_at": turn.now,
                "pinned": turn.arguments["pinned"],
                "reason": turn.arguments["reason"],
                "operation": turn.operation,
            },
        )
        changed(f"query:{turn.query.pk}")
    return DONE


def _undo(turn: StepContext) -> StepResult | None:
    destination = _destination(turn)
    if Snapshot.objects.filter(location=destination).exists():
        return None
    return delete_copy(destination, turn.query.application, launcher=turn.launcher, now=turn.now)


PROCEDURE = Procedure(
    Verb.SNAPSHOT,
    (Step("Copy the checkpoint", _copy), Step("Record the snapshot", _write_down, commits=True)),
    limit=timedelta(minutes=10),
    undo=_undo,
)
