"""Assess how a revision would change its query's checkpoint state, before it starts."""

from typing import Any

from queries.domain.definitions.spec import SqlQuery
from queries.domain.definitions.sql_operators import KEEPS_STATE, SqlOperator, operators
from queries.domain.probes.preflight import digest
from queries.domain.probes.state_change import AnalyzedQuery, StateChange, shapes_of, state_change
from queries.domain.validation.params import effective
from queries.domain.validation.skipped import Check
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.selectors.probes import last_good_run
from queries.selectors.triggers.cores import parsed_or_none

#: Operators of a stream that keep state from batch to batch.
_STATE = KEEPS_STATE | {SqlOperator.STREAM_JOIN, SqlOperator.LIMIT}


def change_of(
    query: Query, spec: dict[str, Any], state: dict[str, Any] | None, state_by: str
) -> StateChange | None:
    """Return how a definition changes the state in the query's checkpoint.

    `state` lists what the query's state depends on, according to version `state_by` of Spark's
    analyzer. Returns None if the checkpoint is empty, or if the definition is the one that wrote
    it.
    """
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    wrote = _wrote(checkpoint)
    if wrote is None or digest(wrote.spec) == digest(spec):
        return None
    before, after = parsed_or_none(wrote.spec), parsed_or_none(spec)
    if not isinstance(before, SqlQuery) or not isinstance(after, SqlQuery):
        return StateChange(
            (), (), "the effect of code changes is not visible in the definition; run a preflight."
        )
    same = wrote.state_by == state_by  # two versions of Spark write plans differently
    old = shapes_of(wrote.state) if same else None
    return state_change(
        AnalyzedQuery(before, old), AnalyzedQuery(after, shapes_of(state) if same else None)
    )


def unaccepted_change(query: Query) -> tuple[QueryRevision, StateChange] | None:
    """Return the state change that would silently make results wrong at a start; None if none.

    Also returns None if a user has already accepted the change for this checkpoint.
    """
    newest = query.revisions.order_by("-number").first()
    if newest is None:
        return None
    change = change_of(query, newest.spec, newest.state, newest.state_by)
    if change is None or not change.silent:
        return None
    checkpoint_id = query.checkpoints.filter(retired_at=None).values_list("pk", flat=True).first()
    return None if newest.accepted_on_id == checkpoint_id else (newest, change)


def params_change(query: Query, params: dict[str, Any] | None) -> str:
    """Return a sentence naming `changed_params`, "" if there are none."""
    names = ", ".join(changed_params(query, params))
    return names and (
        f"The checkpoint of {query.name} has state that was written with other values of {names}, "
        "and Spark would continue with it."
    )


def changed_params(query: Query, params: dict[str, Any] | None) -> list[str]:
    """Return the names of parameters whose values differ from those that wrote existing state.

    Empty if the newest definition is not known to keep state: as for changed code, the effect on a
    function's state is not visible.
    """
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    run = last_good_run(checkpoint) if checkpoint is not None else None
    newest = query.revisions.order_by("-number").first()
    if run is None or run.params is None or newest is None:
        return []
    if not _keeps_state(newest):
        return []
    now = effective(newest.spec.get("params", {}), params)
    # A name that only one of the definitions has is a change of the definition itself.
    return sorted(name for name in now.keys() & run.params.keys() if now[name] != run.params[name])


def _keeps_state(revision: QueryRevision) -> bool:
    """Return whether Spark's analysis shows state; without one, whether the text shows it."""
    if revision.state is not None:
        return bool(revision.state.get("operators"))
    spec = parsed_or_none(revision.spec)
    return isinstance(spec, SqlQuery) and not _STATE.isdisjoint(operators(spec).used)


def sentences(change: StateChange) -> list[str]:
    """Return sentences that explain a change to the user who is about to start the query."""
    lines = []
    if change.silent:
        lines.append(
            "Spark continues with the old state without an error, and results are wrong until "
            f"the last old group is gone: {'; '.join(change.silent)}."
        )
    if change.refused:
        lines.append(
            f"Spark will refuse to start from this checkpoint: {'; '.join(change.refused)}."
        )
    if change.unknown:
        lines.append(f"{Check.STATE.word}: {change.unknown}")
    return lines


def _wrote(checkpoint: Checkpoint | None) -> QueryRevision | None:
    run = last_good_run(checkpoint) if checkpoint is not None else None
    return run.revision if run is not None else None
