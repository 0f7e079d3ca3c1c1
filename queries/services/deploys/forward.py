"""The way forward: preflights, snapshots, definitions, restarts, and the judgement of a wave."""

from collections.abc import Sequence
from typing import Any

from queries.domain.deploys.judging import OK, TODO, Result, judge
from queries.domain.deploys.states import ChangeKind, ChangeState, Stage
from queries.domain.errors import NotAllowed
from queries.domain.states import Desired, OperationOutcome, Phase
from queries.models.checkpoints import Snapshot
from queries.models.deploys.receipts import DeployChange
from queries.models.history import Operation
from queries.selectors.deploys.evidence import evidence, lag_before
from queries.services.checkpoints.snapshot import request_snapshot
from queries.services.deploys import sets
from queries.services.deploys.rollback import run_newest
from queries.services.deploys.turns import (
    Turn,
    asked_for,
    followed,
    note,
    settled,
)
from queries.services.probes.preflight import begin_trial
from queries.services.supervision.application_operations import request_application_restart

#: Preflights of one deploy at the same time: each takes a start slot and a JVM's memory.
PREFLIGHTS_AT_ONCE = 2


# --- preflight ----------------------------------------------------------------------------


def look_at_preflight(turn: Turn, change: DeployChange) -> Result:
    """Return whether a query has passed on a copy of its checkpoint, as it is to run."""
    if found := settled(change):
        return found
    if change.kind != ChangeKind.QUERY or not change.spec or change.from_revision is None:
        return OK
    return followed(change, Stage.PREFLIGHT) if Stage.PREFLIGHT in change.operations else TODO


def begin_preflights(turn: Turn, todo: Sequence[DeployChange]) -> bool:
    """Try one query with what its application becomes; return whether there was room for it."""
    begun = [one for one in turn.changes if Stage.PREFLIGHT in one.operations]
    open_ones = Operation.objects.filter(
        uuid__in=[one.operations[Stage.PREFLIGHT] for one in begun], outcome=OperationOutcome.OPEN
    ).count()
    if open_ones >= PREFLIGHTS_AT_ONCE:
        return False
    change = todo[0]
    assert change.query is not None, "what has a revision is there"
    asked = begin_trial(
        query=change.query,
        spec=change.spec,
        application_spec=_application_to_be(turn.changes, change),
        **turn.by,
    )
    note(change, operations=asked_for(change, Stage.PREFLIGHT, asked), state=ChangeState.TRIED)
    return True


def _application_to_be(
    changes: Sequence[DeployChange], change: DeployChange
) -> dict[str, Any] | None:
    """Return what the deploy makes of a query's application; None: it stays as it is."""
    for one in changes:
        if one.kind == ChangeKind.APPLICATION and one.application_id == change.application_id:
            return {name: held for name, held in one.spec.items() if name != "pools"}
    return None


# --- snapshots ----------------------------------------------------------------------------


def look_at_snapshot(turn: Turn, change: DeployChange) -> Result:
    """Return whether the checkpoint is saved as it was before the wave."""
    if found := settled(change):
        return found
    if change.query_id is None or not change.runs or "no_snapshot" in change.evidence:
        return OK
    if Stage.SNAPSHOT not in change.operations:
        return TODO
    return followed(change, Stage.SNAPSHOT)


def take_snapshot(turn: Turn, todo: Sequence[DeployChange]) -> bool:
    """Ask for the snapshot of one query, pinned while the deploy lasts."""
    change = todo[0]
    assert change.query is not None, "what is not there has no checkpoint"
    why = f"before deploy {str(turn.deploy.uuid)[:8]}"
    try:
        asked = request_snapshot(query=change.query, reason=why, pinned=True, **turn.by)
    except NotAllowed as error:  # on no local disk, or nothing has committed
        kept = {**change.evidence, "no_snapshot": str(error)}
        note(change, evidence=kept, state=ChangeState.SAVED)
        return True
    note(change, operations=asked_for(change, Stage.SNAPSHOT, asked), state=ChangeState.SAVED)
    return True


def keep_snapshot(change: DeployChange) -> None:
    """Note which snapshot a change's operation has made."""
    if Stage.SNAPSHOT in change.operations and change.snapshot_id is None:
        rows = Snapshot.objects.filter(operation__uuid=change.operations[Stage.SNAPSHOT])
        note(change, snapshot=rows.first())


# --- definitions --------------------------------------------------------------------------


def look_at_write(turn: Turn, change: DeployChange) -> Result:
    """Return whether the definition is the newest."""
    return settled(change) or (OK if change.to_revision is not None else TODO)


def write(turn: Turn, todo: Sequence[DeployChange]) -> bool:
    """Write the definitions of the wave, all of them or none."""
    for change in turn.changes:
        keep_snapshot(change)
        if change.query is None:
            continue
        ran = change.query.desired == Desired.RUNNING and change.query.phase == Phase.RUNNING
        kept = {**change.evidence, "lag_before": lag_before(change.query.pk, now=turn.now)}
        note(change, ran=ran, evidence=kept)
    sets.write(turn, todo)
    for change in todo:
        note(change, state=ChangeState.WRITTEN)
    return True


# --- restarts -----------------------------------------------------------------------------


def look_at_restart(turn: Turn, change: DeployChange) -> Result:
    """Return whether the query was asked to run on its new definition."""
    if found := settled(change):
        return found
    if not change.runs or change.restarted_at is not None:
        return OK
    return TODO


def restart(turn: Turn, todo: Sequence[DeployChange]) -> bool:
    """Restart one query, or an application with all of its queries."""
    _restart(turn, unit_of(turn.changes, todo[0]))
    return True


def unit_of(changes: Sequence[DeployChange], first: DeployChange) -> list[DeployChange]:
    """Return what restarts together with a change; an application's own change comes last."""
    if not first.with_driver:
        return [first]
    unit = [
        one for one in changes if one.with_driver and one.application_id == first.application_id
    ]
    return sorted(unit, key=lambda one: one.kind == ChangeKind.APPLICATION)


def _restart(turn: Turn, unit: Sequence[DeployChange]) -> None:
    for change in unit:
        if not change.runs:
            continue
        asked = None
        if change.kind == ChangeKind.APPLICATION:
            assert change.application is not None, "it was written"
            asked = request_application_restart(application=change.application, **turn.by)
        elif change.is_written:
            asked = run_newest(change.query, **turn.by)  # type: ignore[arg-type]
        known = asked_for(change, Stage.RESTART, asked) if asked else change.operations
        note(change, operations=known, restarted_at=turn.now, state=ChangeState.RESTARTED)


# --- judgement ----------------------------------------------------------------------------


def look_at_judgement(turn: Turn, change: DeployChange) -> Result:
    """Return whether a query is good on its new definition; keep what was seen."""
    if found := settled(change):
        return found
    if change.kind != ChangeKind.QUERY or not change.runs:
        return OK
    if not change.is_written and not change.ran:
        return OK  # it was in trouble before, and only shares a driver with what changes
    assert change.to_revision is not None, "it was written"
    found_now = evidence(change, change.to_revision, now=turn.now)
    change.evidence = {**change.evidence, **found_now.kept}
    change.first_batch = found_now.first_batch
    return judge(turn.good, found_now.seen, now=turn.now)
