"""The outcome of a preflight: passed, silently different, incomplete, or failed, with the remedy.

The outcome also lists what was not tested. No rows reached the real sink and the copy is not the
original, so a pass covers only state, source and plan.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from queries.domain.definitions.spec import (
    QUERY,
    UNKEPT_SINKS,
    Effect,
    PythonQuery,
    SqlQuery,
    declared,
)
from queries.domain.failures.categories import subject_of
from queries.domain.failures.diagnosis import classify
from queries.domain.probes.plan_comparison import ShapeDifference, compare, in_words, of_text
from queries.domain.probes.plan_shapes import Shapes, of_plan
from queries.domain.probes.questions import (
    AttemptEnd,
    PlanSeen,
    PreflightAttempt,
    ProbeResult,
    Tried,
)
from queries.domain.sparks import Spark, Written, as_json
from queries.domain.triggers.cores import outgrown


class PreflightVerdict(StrEnum):
    """The outcome of a preflight."""

    PASSED = "passed"
    INCOMPLETE = "incomplete"  # nothing failed, but the checkpoint was not tested
    DIFFERS = "differs"  # Spark accepts it, but the old state has a different meaning
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SparkChange:
    """A preflight with a different Spark version from the one that wrote the checkpoint."""

    back: Spark | None  # the version of the last good run; None: no run is known
    to: Spark
    before: Written  # the checkpoint
    after: Written  # the copy, after the attempts
    old_state: Shapes | None = None  # of the same definition, by `back`'s analyzer; None: unknown


@dataclass(frozen=True, slots=True)
class PreflightRequest:
    """What was tested, and against what."""

    spec: dict[str, Any]
    old_spec: dict[str, Any] | None = None  # the last definition that ran on the checkpoint
    old_missing: str = ""  # why the two definitions cannot be compared, if known in advance
    copy_missing: str = ""  # why the checkpoint was not tested
    is_new: bool = False  # nothing has committed on it, so there is nothing to try
    pinned: tuple[ShapeDifference, ...] = ()
    spark: SparkChange | None = None  # set if another version of Spark ran than before
    attempt_limit_s: float = 0
    cores: int | None = None  # of the application; None: its master does not specify them


_LABELS = {
    PreflightAttempt.REPLAY: "The newest batch of the checkpoint, executed again",
    PreflightAttempt.FRESH: "New data at the source",
    PreflightAttempt.SINK: "The same batch, written to a temporary folder",
    PreflightAttempt.TRIGGER: "Its own trigger",
}
#: The result of something that fails without starting the definition.
_UNTRIED = {"end": AttemptEnd.FAILED, "batch": None, "rows": None, "ms": 0}
_BAD = (AttemptEnd.FAILED, AttemptEnd.LATE)
_QUIET_SINKS = UNKEPT_SINKS | {""}
#: Fields that Spark does not see.
_UNSEEN = {
    name
    for model in (SqlQuery, PythonQuery)
    for name, effect in declared(model).items()
    if effect is Effect.NONE
}
_KAFKA_TYPES = frozenset({"string", "binary"})


def digest(spec: Mapping[str, Any]) -> str:
    """Return a digest of a definition, over the fields that affect Spark and require a restart."""
    try:
        fields = QUERY.validate_python(spec).model_dump(mode="json", by_alias=True)
    except ValidationError:  # written by another release, used as it is
        fields = dict(spec)
    fields = {name: value for name, value in fields.items() if name not in _UNSEEN}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def judge(request: PreflightRequest, result: ProbeResult) -> dict[str, Any]:
    """Return the outcome in JSON form for users and CI; `verdict` summarises it."""
    tries = [_attempt_report(attempt_report, request) for attempt_report in result.tried]
    if result.error is not None:
        tries.append(_failure("build", _build_label(result), result.error, request))
    tries += filter(None, (_kafka_problem(request, result), _cores_problem(request, result)))
    failed = any(attempt_report["end"] in _BAD for attempt_report in tries)
    differences, missing = _differences(request, result)
    outcome = {} if request.spark is None else {"spark": _of_spark(request.spark, result)}
    return outcome | {
        "verdict": _verdict(request, failed=failed, differs=bool(differences or request.pinned)),
        "tries": tries,
        "differences": [asdict(attempt_report) for attempt_report in differences],
        "pinned": [asdict(attempt_report) for attempt_report in request.pinned],
        "not_tried": _not_tried(request, result, missing),
        "took_ms": result.took_ms,
    }


def _verdict(request: PreflightRequest, *, failed: bool, differs: bool) -> PreflightVerdict:
    if failed:
        return PreflightVerdict.FAILED
    if request.copy_missing and not request.is_new:
        return PreflightVerdict.INCOMPLETE
    return PreflightVerdict.DIFFERS if differs else PreflightVerdict.PASSED


def sentence(judged: Mapping[str, Any]) -> str:
    """Return the first failure as one line of text, "" if nothing failed."""
    first = next(
        (attempt_report for attempt_report in judged["tries"] if attempt_report["end"] in _BAD),
        None,
    )
    return f"{first['label']}: {first['title']}" if first else ""


# --- attempts -------------------------------------------------------------------------


def _attempt_report(tried: Tried, request: PreflightRequest) -> dict[str, Any]:
    label = _LABELS[tried.attempt]
    if tried.end is AttemptEnd.FAILED:
        report = _failure(tried.attempt, label, tried.error or {}, request)
    else:
        report = {"attempt": tried.attempt, "label": label, "end": tried.end}
    if tried.end is AttemptEnd.LATE:
        report |= {
            "title": f"Not finished within {request.attempt_limit_s:.0f} s.",
            "meaning": "Spark gave no reason. Possible causes are a source that is not responding, "
            "a large batch or a large state.",
            "way_out": "Check whether the source responds, then try again.",
        }
    return {**report, "batch": tried.batch, "rows": tried.rows, "ms": tried.ms}


def _failure(
    attempt: str, label: str, error: Mapping[str, Any], request: PreflightRequest
) -> dict[str, Any]:
    fields = ("error_class", "type_name", "root_cause", "message")
    texts = {name: str(error.get(name, "")) for name in fields}
    subject = subject_of(str(request.spec.get("kind", "")), discovered=False)
    # a trial run: nothing is read again
    classification = classify(**texts, in_batch=False, subject=subject)
    return {
        "attempt": attempt,
        "label": label,
        "end": AttemptEnd.FAILED,
        "title": classification.title,
        "category": classification.category,
        "meaning": classification.meaning,
        "way_out": classification.way_out,
        "error_class": texts["error_class"],
        "root_cause": texts["root_cause"],
    }


def _build_label(result: ProbeResult) -> str:
    return result.at if result.plan is None else f"Step: {result.at.lower()}"


def _kafka_problem(request: PreflightRequest, result: ProbeResult) -> dict[str, Any] | None:
    """Return the problem of the columns for Spark's Kafka sink; no rows were sent to Kafka."""
    if result.sink != "kafka" or result.plan is None or result.plan.nodes is None:
        return None
    columns = dict(result.plan.columns)
    options = {name.lower() for name in (request.spec.get("sink") or {}).get("options", {})}
    fault = ""
    if columns.get("value") not in _KAFKA_TYPES:
        value_type = columns.get("value")
        fault = f"the value column is {value_type}" if value_type else "there is no value column"
    elif columns.get("key", "string") not in _KAFKA_TYPES:
        fault = f"the key column is {columns['key']}"
    elif request.spec.get("kind") == "sql" and "topic" not in options and "topic" not in columns:
        fault = "neither an option nor a column names the topic"
    if not fault:
        return None
    return _UNTRIED | {
        "attempt": "columns",
        "label": "The columns for Kafka",
        "title": f"The Kafka sink would reject the rows: {fault}.",
        "meaning": (
            "The sink needs a value column, and optionally a key column, as string or binary."
        ),
        "way_out": "Write to_json(struct(*)) AS value, or cast the column.",
    }


def _cores_problem(request: PreflightRequest, result: ProbeResult) -> dict[str, Any] | None:
    """Return a problem that Spark does not report: too few cores for the partitions read."""
    kind = (request.spec.get("trigger") or {}).get("kind", "")
    fault = outgrown(kind=kind, cores=request.cores, partitions=result.partitions)
    if not fault:
        return None
    return _UNTRIED | {
        "attempt": "cores",
        "label": "The cores for its trigger",
        "title": fault,
        "meaning": (
            "Such a query occupies its cores permanently, and Spark starts it even if there are "
            "too few cores."
        ),
        "way_out": "Give the application more cores, or use a processing-time trigger.",
    }


# --- plans ----------------------------------------------------------------------------


def _differences(
    request: PreflightRequest, result: ProbeResult
) -> tuple[tuple[ShapeDifference, ...], str]:
    """Return what differs, and why the comparison is missing or incomplete ("" if it is not)."""
    if request.old_spec is None or result.plan is None:
        return (), request.old_missing
    by_text = _by_text(request)
    old = result.old_plan or PlanSeen(missing="the probe driver did not get that far")
    if old.nodes is None or result.plan.nodes is None:
        if by_text is not None:
            return by_text, ""
        return (), f"the previous definition: {old.missing}"
    by_spark = compare(
        of_plan(old.nodes, old.output_mode),
        of_plan(result.plan.nodes, result.plan.output_mode),
    )
    return in_words(by_spark, by_text or ()), ""


def _by_text(request: PreflightRequest) -> tuple[ShapeDifference, ...] | None:
    """Compare the SQL of both forms, if it can be parsed."""
    old, new = (QUERY.validate_python(spec) for spec in (request.old_spec, request.spec))
    if not isinstance(old, SqlQuery) or not isinstance(new, SqlQuery):
        return None
    before, after = of_text(old), of_text(new)
    return compare(before, after) if before is not None and after is not None else None


def _of_spark(change: SparkChange, result: ProbeResult) -> dict[str, Any]:
    """Return the differences made by the other version.

    Versions write a plan's expressions differently, so only the kinds of the stateful operators are
    compared.
    """
    change_json = as_json(change.before, change.after, change.to, change.back)
    nodes, old = result.plan.nodes if result.plan else None, change.old_state
    if nodes is None or old is None:
        return {**change_json, "plan": None}
    sides = [
        [operator.kind for operator in shapes.operators] for shapes in (old, of_plan(nodes, ""))
    ]
    return {**change_json, "plan": [", ".join(side) or "none" for side in sides]}


# --- what was not tried ---------------------------------------------------------------


def _not_tried(request: PreflightRequest, result: ProbeResult, missing: str) -> list[str]:
    spec = QUERY.validate_python(request.spec)
    ends = {attempt.attempt: attempt.end for attempt in result.tried}
    untested_parts = [request.copy_missing] if request.copy_missing else []
    if missing:
        untested_parts.append(f"the comparison with {missing}")
    if ends.get(PreflightAttempt.FRESH) is AttemptEnd.NOTHING:
        untested_parts.append("new data: the source had none during the preflight")
    if result.sink == "foreachBatch":
        untested_parts.append("the code of foreachBatch: no batch was passed to it")
    elif result.sink == "foreach":
        untested_parts.append("the code of foreach: no row was passed to it")
    elif result.sink == "kafka":
        untested_parts.append(
            "writing to Kafka: its topic and permissions; the rows were discarded"
        )
    elif result.sink not in _QUIET_SINKS and PreflightAttempt.SINK not in ends:
        untested_parts.append(f"writing to {result.sink}: the rows were discarded")
    if PreflightAttempt.TRIGGER in ends:
        kind = spec.trigger.kind.replace("_", "-")
        untested_parts.append(
            f"running as {kind}: the rows were read in micro-batches, on few cores"
        )
    if isinstance(spec, PythonQuery):
        untested_parts.append(
            "what Python functions compute: changes inside them affect the results, but are "
            "not visible in the plan or in the types of the state"
        )
    return untested_parts
