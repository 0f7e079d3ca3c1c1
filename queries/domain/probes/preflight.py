"""The outcome of a preflight: passed, silently different, incomplete, or failed, and what to do.

The outcome also lists what was not tried. No rows reached the real sink and the copy is not the
original, so a pass only covers state, source and plan, not everything.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from queries.domain.definitions.effects import Effect, declared
from queries.domain.definitions.spec import QUERY, UNKEPT_SINKS, PythonQuery, SqlQuery
from queries.domain.failures.diagnosis import classify
from queries.domain.failures.subjects import subject_of
from queries.domain.probes.plan_comparison import Difference, compare, in_words
from queries.domain.probes.plan_shapes import Shapes, of_plan
from queries.domain.probes.plan_texts import of_text
from queries.domain.probes.questions import Attempt, AttemptEnd, PlanSeen, ProbeResult, Tried
from queries.domain.sparks import Spark
from queries.domain.sparks.upgrade import Written, as_json
from queries.domain.triggers.cores import outgrown


class Verdict(StrEnum):
    """The outcome of a preflight."""

    PASSED = "passed"
    INCOMPLETE = "incomplete"  # nothing failed, but the checkpoint was not tried
    DIFFERS = "differs"  # Spark accepts it, but the old state has a different meaning
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SparkChange:
    """A preflight with another version of Spark than the one that wrote the checkpoint."""

    back: Spark | None  # the version of the last good run; None: no run is known
    to: Spark
    before: Written  # the checkpoint
    after: Written  # the copy, after the attempts
    old_state: Shapes | None = None  # of the same definition, by `back`'s analyzer; None: unknown


@dataclass(frozen=True, slots=True)
class Asked:
    """What was tried, and against what."""

    spec: dict[str, Any]
    old_spec: dict[str, Any] | None = None  # the last definition that ran on the checkpoint
    old_missing: str = ""  # why the two definitions cannot be compared, if known in advance
    copy_missing: str = ""  # why the checkpoint was not tried
    is_new: bool = False  # nothing has committed on it, so there is nothing to try
    pinned: tuple[Difference, ...] = ()
    spark: SparkChange | None = None  # set if another version of Spark ran than before
    attempt_limit_s: float = 0
    cores: int | None = None  # of the application; None: its master does not specify them


_LABELS = {
    Attempt.REPLAY: "The newest batch of the checkpoint, executed again",
    Attempt.FRESH: "New data at the source",
    Attempt.SINK: "The same batch, written to a temporary folder",
    Attempt.TRIGGER: "Its own trigger",
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
        said = QUERY.validate_python(spec).model_dump(mode="json", by_alias=True)
    except ValidationError:  # written by another release, used as it is
        said = dict(spec)
    said = {name: held for name, held in said.items() if name not in _UNSEEN}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def judge(asked: Asked, result: ProbeResult) -> dict[str, Any]:
    """Return the outcome in JSON form for users and CI; `verdict` summarises it."""
    tries = [_told(each, asked) for each in result.tried]
    if result.error is not None:
        tries.append(_failure("build", _build_label(result), result.error, asked))
    tries += filter(None, (_kafka_problem(asked, result), _cores_problem(asked, result)))
    failed = any(each["end"] in _BAD for each in tries)
    differences, missing = _differences(asked, result)
    found = {} if asked.spark is None else {"spark": _of_spark(asked.spark, result)}
    return found | {
        "verdict": _verdict(asked, failed=failed, differs=bool(differences or asked.pinned)),
        "tries": tries,
        "differences": [asdict(each) for each in differences],
        "pinned": [asdict(each) for each in asked.pinned],
        "not_tried": _not_tried(asked, result, missing),
        "took_ms": result.took_ms,
    }


def _verdict(asked: Asked, *, failed: bool, differs: bool) -> Verdict:
    if failed:
        return Verdict.FAILED
    if asked.copy_missing and not asked.is_new:
        return Verdict.INCOMPLETE
    return Verdict.DIFFERS if differs else Verdict.PASSED


def sentence(judged: Mapping[str, Any]) -> str:
    """Return the first failure as one line of text, "" if nothing failed."""
    first = next((each for each in judged["tries"] if each["end"] in _BAD), None)
    return f"{first['label']}: {first['title']}" if first else ""


# --- attempts -------------------------------------------------------------------------


def _told(tried: Tried, asked: Asked) -> dict[str, Any]:
    label = _LABELS[tried.attempt]
    if tried.end is AttemptEnd.FAILED:
        told = _failure(tried.attempt, label, tried.error or {}, asked)
    else:
        told = {"attempt": tried.attempt, "label": label, "end": tried.end}
    if tried.end is AttemptEnd.LATE:
        told |= {
            "title": f"Not finished within {asked.attempt_limit_s:.0f} s.",
            "meaning": "Spark gave no reason. Possible causes are a source that is not responding, "
            "a large batch or a large state.",
            "way_out": "Check whether the source responds, then try again.",
        }
    return {**told, "batch": tried.batch, "rows": tried.rows, "ms": tried.ms}


def _failure(attempt: str, label: str, error: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    fields = ("error_class", "type_name", "root_cause", "message")
    texts = {name: str(error.get(name, "")) for name in fields}
    subject = subject_of(str(asked.spec.get("kind", "")), discovered=False)
    # a trial run: nothing is read again
    found = classify(**texts, in_batch=False, subject=subject)
    return {
        "attempt": attempt,
        "label": label,
        "end": AttemptEnd.FAILED,
        "title": found.title,
        "category": found.category,
        "meaning": found.meaning,
        "way_out": found.way_out,
        "error_class": texts["error_class"],
        "root_cause": texts["root_cause"],
    }


def _build_label(result: ProbeResult) -> str:
    return result.at if result.plan is None else f"Step: {result.at.lower()}"


def _kafka_problem(asked: Asked, result: ProbeResult) -> dict[str, Any] | None:
    """Return what Spark's Kafka sink would reject in the columns; no rows were sent to Kafka."""
    if result.sink != "kafka" or result.plan is None or result.plan.nodes is None:
        return None
    columns = dict(result.plan.columns)
    options = {name.lower() for name in (asked.spec.get("sink") or {}).get("options", {})}
    said = ""
    if columns.get("value") not in _KAFKA_TYPES:
        held = columns.get("value")
        said = f"the value column is {held}" if held else "there is no value column"
    elif columns.get("key", "string") not in _KAFKA_TYPES:
        said = f"the key column is {columns['key']}"
    elif asked.spec.get("kind") == "sql" and "topic" not in options and "topic" not in columns:
        said = "neither an option nor a column names the topic"
    if not said:
        return None
    return _UNTRIED | {
        "attempt": "columns",
        "label": "The columns for Kafka",
        "title": f"The Kafka sink would reject the rows: {said}.",
        "meaning": (
            "The sink needs a value column, and optionally a key column, as string or binary."
        ),
        "way_out": "Write to_json(struct(*)) AS value, or cast the column.",
    }


def _cores_problem(asked: Asked, result: ProbeResult) -> dict[str, Any] | None:
    """Return a problem that Spark does not report: too few cores for the partitions read."""
    kind = (asked.spec.get("trigger") or {}).get("kind", "")
    said = outgrown(kind=kind, cores=asked.cores, partitions=result.partitions)
    if not said:
        return None
    return _UNTRIED | {
        "attempt": "cores",
        "label": "The cores for its trigger",
        "title": said,
        "meaning": (
            "Such a query occupies its cores permanently, and Spark starts it even if there are "
            "too few cores."
        ),
        "way_out": "Give the application more cores, or use a processing-time trigger.",
    }


# --- plans ----------------------------------------------------------------------------


def _differences(asked: Asked, result: ProbeResult) -> tuple[tuple[Difference, ...], str]:
    """Return what differs, and why the comparison is missing or incomplete ("" if it is not)."""
    if asked.old_spec is None or result.plan is None:
        return (), asked.old_missing
    by_text = _by_text(asked)
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


def _by_text(asked: Asked) -> tuple[Difference, ...] | None:
    """Compare the texts, if both are SQL texts that can be parsed."""
    old, new = (QUERY.validate_python(spec) for spec in (asked.old_spec, asked.spec))
    if not isinstance(old, SqlQuery) or not isinstance(new, SqlQuery):
        return None
    before, after = of_text(old), of_text(new)
    return compare(before, after) if before is not None and after is not None else None


def _of_spark(change: SparkChange, result: ProbeResult) -> dict[str, Any]:
    """Return what the other version changes.

    Versions write a plan's expressions differently, so only the kinds of the stateful operators are
    compared.
    """
    found = as_json(change.before, change.after, change.to, change.back)
    nodes, old = result.plan.nodes if result.plan else None, change.old_state
    if nodes is None or old is None:
        return {**found, "plan": None}
    sides = [[one.kind for one in each.operators] for each in (old, of_plan(nodes, ""))]
    return {**found, "plan": [", ".join(side) or "none" for side in sides]}


# --- what was not tried ---------------------------------------------------------------


def _not_tried(asked: Asked, result: ProbeResult, missing: str) -> list[str]:
    spec = QUERY.validate_python(asked.spec)
    ends = {each.attempt: each.end for each in result.tried}
    found = [asked.copy_missing] if asked.copy_missing else []
    if missing:
        found.append(f"the comparison with {missing}")
    if ends.get(Attempt.FRESH) is AttemptEnd.NOTHING:
        found.append("new data: the source had none during the preflight")
    if result.sink == "foreachBatch":
        found.append("the code of foreachBatch: no batch was passed to it")
    elif result.sink == "foreach":
        found.append("the code of foreach: no row was passed to it")
    elif result.sink == "kafka":
        found.append("writing to Kafka: its topic and permissions; the rows were discarded")
    elif result.sink not in _QUIET_SINKS and Attempt.SINK not in ends:
        found.append(f"writing to {result.sink}: the rows were discarded")
    if Attempt.TRIGGER in ends:
        kind = spec.trigger.kind.replace("_", "-")
        found.append(f"running as {kind}: the rows were read in micro-batches, on few cores")
    if isinstance(spec, PythonQuery):
        found.append(
            "what Python functions compute: changes inside them affect the results, but are "
            "not visible in the plan or in the types of the state"
        )
    return found
