"""Find what ran or was tested on a checkpoint, and what a revision would change in its state."""

from typing import Any

from queries.domain.definitions.spec import ApplicationSpec, SqlQuery
from queries.domain.definitions.sql_text import KEEPS_STATE, SqlOperator, operators
from queries.domain.probes.plan_comparison import (
    AnalyzedQuery,
    StateChange,
    shapes_of,
    state_change,
)
from queries.domain.probes.preflight import PreflightVerdict, digest
from queries.domain.sparks import OURS, Spark, spark_of
from queries.domain.states import OperationOutcome, Verb
from queries.domain.validation.params import effective
from queries.domain.validation.skipped import Check
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.selectors.triggers.cores import parsed_or_none


def last_good_run(checkpoint: Checkpoint) -> Run | None:
    """Return the newest run that committed on a checkpoint, or on the one it was built from."""
    origin: Checkpoint | None = checkpoint
    while origin is not None:
        runs = Run.objects.filter(checkpoint=origin, first_commit_at__isnull=False)
        wanted = runs.select_related("revision", "driver__application_revision")
        run = wanted.order_by("-epoch").first()
        if run is not None:
            return run
        origin = origin.built_from
    return None


def preflight_verdicts(
    query: Query, spec: dict[str, Any], checkpoint: Checkpoint, spark: Spark | None = None
) -> list[dict[str, Any]]:
    """Return the results of completed preflights of this definition on this checkpoint.

    Those with another Spark than the application's do not count.
    """
    spark = spark or spark_of_query(query)
    done = Operation.objects.filter(
        query=query,
        verb=Verb.PREFLIGHT,
        outcome=OperationOutcome.DONE,
        arguments__digest=digest(spec),
        result__checkpoint=checkpoint.pk,
    )
    results = done.order_by("pk").values_list("result", flat=True)
    tried = (preflight for preflight in results if preflight.get("spark", OURS) == spark)
    return [result.get("preflight") or {} for result in tried]


def spark_of_query(query: Query) -> Spark:
    """Return the version in the newest definition of a query's application."""
    newest = query.application.revisions.order_by("-number").first()
    return spark_of(newest.spec if newest is not None else {})


def passed_preflight(
    query: Query, spec: dict[str, Any], checkpoint: Checkpoint, spark: Spark | None = None
) -> bool:
    """Return whether this definition has passed a preflight on this checkpoint."""
    verdicts = preflight_verdicts(query, spec, checkpoint, spark)
    return any(verdict.get("verdict") != PreflightVerdict.INCOMPLETE for verdict in verdicts)


def untried(query: Query, spec: dict[str, Any], spark: Spark | None = None) -> str:
    """Return why preflights of a definition could not test the checkpoint; "" if one could.

    Also "" if none was completed.
    """
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    if checkpoint is None:
        return ""
    verdicts = preflight_verdicts(query, spec, checkpoint, spark)
    if not verdicts or verdicts[-1].get("verdict") != PreflightVerdict.INCOMPLETE:
        return ""
    return str(next(iter(verdicts[-1].get("not_tried", [])), "the checkpoint"))


def failed_preflight(query: Query) -> bool:
    """Return whether the latest preflight failed and the next start requires one."""
    if not is_unproven(query):
        return False
    revision = query.revisions.order_by("-number")[0]
    tried = Operation.objects.filter(
        query=query, verb=Verb.PREFLIGHT, arguments__digest=digest(revision.spec)
    )
    newest = tried.order_by("-created_at", "-pk").first()
    return newest is not None and newest.outcome == OperationOutcome.FAILED


def is_unproven(query: Query) -> bool:
    """Return whether the newest revision must pass a preflight before it may start.

    It must if the application requires preflights, unless the same definition was the last to run
    on this checkpoint.
    """
    newest = query.application.revisions.order_by("-number").first()
    if newest is None or not ApplicationSpec.model_validate(newest.spec).require_preflight:
        return False
    return lacks_preflight(query, query.revisions.order_by("-number")[0].spec)


def lacks_preflight(query: Query, spec: dict[str, Any], spark: Spark | None = None) -> bool:
    """Return whether a required preflight of this definition is missing on the checkpoint."""
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    if checkpoint is None:
        return False
    run = last_good_run(checkpoint)
    if run is not None and digest(run.revision.spec) == digest(spec):
        before = spark_of(run.driver.application_revision.spec)
        if before == (spark or spark_of_query(query)):
            return False
    return not passed_preflight(query, spec, checkpoint, spark)


#: Operators of a stream that keep state from batch to batch.
_STATE = KEEPS_STATE | {SqlOperator.STREAM_JOIN, SqlOperator.LIMIT}


def change_of(
    query: Query, spec: dict[str, Any], state: dict[str, Any] | None, state_by: str
) -> StateChange | None:
    """Return how a definition changes the state in the query's checkpoint.

    `state` lists the dependencies of the query's state, according to version `state_by` of Spark's
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
    """Return whether Spark's analysis shows state; without it, whether the SQL shows it."""
    if revision.state is not None:
        return bool(revision.state.get("operators"))
    spec = parsed_or_none(revision.spec)
    return isinstance(spec, SqlQuery) and not _STATE.isdisjoint(operators(spec).used)


def sentences(change: StateChange) -> list[str]:
    """Return sentences that explain a change to a user who is about to start the query."""
    lines = []
    if change.silent:
        lines.append(
            "Spark continues with the old state without an error, and results are wrong until "
            f"the last old group is gone: {'; '.join(change.silent)}."
        )
    if change.refused:
        lines.append(f"Spark will reject this checkpoint: {'; '.join(change.refused)}.")
    if change.unknown:
        lines.append(f"{Check.STATE.word}: {change.unknown}")
    return lines


def _wrote(checkpoint: Checkpoint | None) -> QueryRevision | None:
    run = last_good_run(checkpoint) if checkpoint is not None else None
    return run.revision if run is not None else None
