"""What a preflight's findings mean: passed, silently different, or failed, and what to do.

The outcome also lists what was not tried. The rows went nowhere and the copy is not the original,
so a pass is a statement about state, source and plan, not about everything.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from queries.domain.definitions.spec import UNKEPT_SINKS, PythonQuery, QuerySpec, SqlQuery
from queries.domain.failures.diagnosis import classify
from queries.domain.probes.plan_comparison import Difference, compare, in_words
from queries.domain.probes.plan_shapes import of_plan
from queries.domain.probes.plan_texts import of_text
from queries.domain.probes.questions import Attempt, AttemptEnd, PlanSeen, ProbeResult, Tried
from queries.domain.triggers.cores import outgrown

_SPEC: TypeAdapter[Any] = TypeAdapter(QuerySpec)


class Verdict(StrEnum):
    """The outcome of a preflight."""

    PASSED = "passed"
    DIFFERS = "differs"  # Spark accepts it, but the old state means something else
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was tried, against what."""

    spec: dict[str, Any]
    old_spec: dict[str, Any] | None = None  # what ran last on the checkpoint
    old_missing: str = ""  # why the two cannot be compared, where it is known beforehand
    copy_missing: str = ""  # why the checkpoint was not tried
    pinned: tuple[Difference, ...] = ()
    attempt_limit_s: float = 0
    cores: int | None = None  # of the application; None: its master does not say


_LABELS = {
    Attempt.REPLAY: "The newest batch of the checkpoint, executed again",
    Attempt.FRESH: "New data at the source",
    Attempt.SINK: "The same batch, written to a temporary folder",
    Attempt.TRIGGER: "Its own trigger",
}
#: What was seen to fail without a start of the definition.
_UNTRIED = {"end": AttemptEnd.FAILED, "batch": None, "rows": None, "ms": 0}
_BAD = (AttemptEnd.FAILED, AttemptEnd.LATE)
_QUIET_SINKS = UNKEPT_SINKS | {""}
_KAFKA_TYPES = frozenset({"string", "binary"})


def digest(spec: Mapping[str, Any]) -> str:
    """Return a name for what a definition says; its description says nothing to Spark."""
    try:
        said = _SPEC.validate_python(spec).model_dump(mode="json", by_alias=True)
    except ValidationError:  # a form of an earlier release, taken as it is
        said = dict(spec)
    said.pop("description", None)
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def judge(asked: Asked, result: ProbeResult) -> dict[str, Any]:
    """Return the outcome in JSON form for users and CI; `verdict` sums it up."""
    tries = [_told(each, asked) for each in result.tried]
    if result.error is not None:
        tries.append(_failure("build", _build_label(result), result.error))
    tries += filter(None, (_kafka_problem(asked, result), _cores_problem(asked, result)))
    failed = any(each["end"] in _BAD for each in tries)
    differences, missing = _differences(asked, result)
    named = bool(differences or asked.pinned)
    verdict = Verdict.FAILED if failed else Verdict.DIFFERS if named else Verdict.PASSED
    return {
        "verdict": verdict,
        "tries": tries,
        "differences": [asdict(each) for each in differences],
        "pinned": [asdict(each) for each in asked.pinned],
        "not_tried": _not_tried(asked, result, missing),
        "took_ms": result.took_ms,
    }


def sentence(judged: Mapping[str, Any]) -> str:
    """Return the first thing that failed as a line of text, "" where nothing did."""
    first = next((each for each in judged["tries"] if each["end"] in _BAD), None)
    return f"{first['label']}: {first['title']}" if first else ""


# --- the tries ------------------------------------------------------------------------


def _told(tried: Tried, asked: Asked) -> dict[str, Any]:
    label = _LABELS[tried.attempt]
    if tried.end is AttemptEnd.FAILED:
        told = _failure(tried.attempt, label, tried.error or {})
    else:
        told = {"attempt": tried.attempt, "label": label, "end": tried.end}
    if tried.end is AttemptEnd.LATE:
        told |= {
            "title": f"Not finished within {asked.attempt_limit_s:.0f} s.",
            "meaning": "Spark gave no reason. Possible causes are a source that does not respond, "
            "a large batch or a large state.",
            "way_out": "Check whether the source responds, then try again.",
        }
    return {**told, "batch": tried.batch, "rows": tried.rows, "ms": tried.ms}


def _failure(attempt: str, label: str, error: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("error_class", "type_name", "root_cause", "message")
    texts = {name: str(error.get(name, "")) for name in fields}
    found = classify(**texts, in_batch=False)  # a trial run: nothing is read again
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
    """Return what Spark's Kafka sink would refuse of the columns; no row was sent to it."""
    if result.sink != "kafka" or result.plan is None or result.plan.nodes is None:
        return None
    columns = dict(result.plan.columns)
    options = {name.lower() for name in (asked.spec.get("sink") or {}).get("options", {})}
    said = ""
    if columns.get("value") not in _KAFKA_TYPES:
        held = columns.get("value")
        said = f"column value is {held}" if held else "there is no column value"
    elif columns.get("key", "string") not in _KAFKA_TYPES:
        said = f"column key is {columns['key']}"
    elif asked.spec.get("kind") == "sql" and "topic" not in options and "topic" not in columns:
        said = "neither an option nor a column names the topic"
    if not said:
        return None
    return _UNTRIED | {
        "attempt": "columns",
        "label": "The columns for Kafka",
        "title": f"The Kafka sink would refuse the rows: {said}.",
        "meaning": "It takes a column value, and key where there is one, as string or binary.",
        "way_out": "Write to_json(struct(*)) AS value, or cast the column.",
    }


def _cores_problem(asked: Asked, result: ProbeResult) -> dict[str, Any] | None:
    """Return what Spark would not report: too few cores for the partitions that were read."""
    kind = (asked.spec.get("trigger") or {}).get("kind", "")
    said = outgrown(kind=kind, cores=asked.cores, partitions=result.partitions)
    if not said:
        return None
    return _UNTRIED | {
        "attempt": "cores",
        "label": "The cores for its trigger",
        "title": said,
        "meaning": "Such a query holds its cores permanently, and Spark starts it even without "
        "them.",
        "way_out": "Give the application more cores, or use a processing-time trigger.",
    }


# --- the plans ------------------------------------------------------------------------


def _differences(asked: Asked, result: ProbeResult) -> tuple[tuple[Difference, ...], str]:
    """Return what differs, and why the comparison is missing or incomplete ("" if not)."""
    if asked.old_spec is None or result.plan is None:
        return (), asked.old_missing
    by_text = _by_text(asked)
    old = result.old_plan or PlanSeen(missing="the probe driver did not get that far")
    if old.nodes is None or result.plan.nodes is None:
        if by_text is not None:
            return by_text, ""
        return (), f"what ran before: {old.missing}"
    by_spark = compare(
        of_plan(old.nodes, old.output_mode),
        of_plan(result.plan.nodes, result.plan.output_mode),
    )
    return in_words(by_spark, by_text or ()), ""


def _by_text(asked: Asked) -> tuple[Difference, ...] | None:
    """Compare the texts, where both are SQL that can be read."""
    old, new = (_SPEC.validate_python(spec) for spec in (asked.old_spec, asked.spec))
    if not isinstance(old, SqlQuery) or not isinstance(new, SqlQuery):
        return None
    before, after = of_text(old), of_text(new)
    return compare(before, after) if before is not None and after is not None else None


# --- what was not tried ---------------------------------------------------------------


def _not_tried(asked: Asked, result: ProbeResult, missing: str) -> list[str]:
    spec = _SPEC.validate_python(asked.spec)
    ends = {each.attempt: each.end for each in result.tried}
    found = [asked.copy_missing] if asked.copy_missing else []
    if missing:
        found.append(f"the comparison with {missing}")
    if ends.get(Attempt.FRESH) is AttemptEnd.NOTHING:
        found.append("new rows: the source had none during the preflight")
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
            "what Python functions compute: a change inside them changes the results, but shows "
            "neither in the plan nor in the types of the state"
        )
    return found
