"""Find the definitions that have run, or been tried, on a checkpoint."""

from typing import Any

from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.probes.preflight import PreflightVerdict, digest
from queries.domain.sparks import OURS, Spark, spark_of
from queries.domain.states import OperationOutcome, Verb
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.models.history import Operation


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
    spark = spark or _spark_of(query)
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


def _spark_of(query: Query) -> Spark:
    newest = query.application.revisions.order_by("-number").first()
    return spark_of(newest.spec if newest is not None else {})


def passed_preflight(
    query: Query, spec: dict[str, Any], checkpoint: Checkpoint, spark: Spark | None = None
) -> bool:
    """Return whether this definition has passed on this checkpoint, which was tried."""
    verdicts = preflight_verdicts(query, spec, checkpoint, spark)
    return any(verdict.get("verdict") != PreflightVerdict.INCOMPLETE for verdict in verdicts)


def untried(query: Query, spec: dict[str, Any], spark: Spark | None = None) -> str:
    """Return why preflights of a definition could not try the checkpoint; "" if one could.

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
        if before == (spark or _spark_of(query)):
            return False
    return not passed_preflight(query, spec, checkpoint, spark)
