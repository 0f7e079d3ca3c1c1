"""Whether each of the seven kinds of triggers suits a query: yes, no, or after a preflight.

The rules that reject a definition when it is saved are applied to every trigger in turn, so that
users know the limits before they choose. Limits that only Spark's plan shows are known after a
preflight.
"""

from dataclasses import dataclass
from enum import StrEnum

from queries.domain.definitions import sql_text
from queries.domain.definitions.spec import (
    HOLDING_TRIGGERS,
    ProcessingTime,
    PythonQuery,
    SqlQuery,
    Trigger,
    TriggerKind,
)
from queries.domain.definitions.sql_text import KEEPS_STATE, SqlOperator, operators
from queries.domain.errors import Problem
from queries.domain.triggers import kinds
from queries.domain.triggers.async_progress import (
    ENABLED,
    async_problems,
    has_async_progress,
    left_to_preflight,
)
from queries.domain.triggers.cores import Ground, core_doubts, core_problems
from queries.domain.triggers.intervals import interval_ms

ASYNC_PROGRESS = "async_progress"


class Suitability(StrEnum):
    """Whether a trigger suits a query, as far as known without Spark."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    PREFLIGHT = "known after a preflight"


@dataclass(frozen=True, slots=True)
class TriggerFit:
    """Whether one kind of trigger suits a query."""

    key: str  # a trigger's kind, "as_fast_as_possible" or "async_progress"
    name: str
    costs: str  # what choosing it means, as a sentence
    standing: Suitability
    reasons: tuple[str, ...]  # why it is rejected, or what a preflight must show
    chosen: bool  # the definition uses it


@dataclass(frozen=True, slots=True)
class _Way:
    key: str
    name: str
    costs: str
    trigger: Trigger | None  # None: the definition's own, with async progress tracking


_FAST = _Way(
    "as_fast_as_possible",
    "As fast as possible",
    "Each batch starts when the previous one ends: the shortest wait, but the driver is "
    "never idle.",
    ProcessingTime(interval="0 seconds"),
)
_ASYNC = _Way(
    ASYNC_PROGRESS,
    "Async progress",
    "Batches do not wait for their logs. At least once: a crash replays up to one "
    "interval of batches.",
    None,
)


def _ways(*, ends: bool = False, holds: bool = False) -> list[_Way]:
    return [
        _Way(str(kind), kind_facts.name, kind_facts.costs, kind_facts.example)
        for kind, kind_facts in kinds.KINDS.items()
        if (kind_facts.example.ends, kind_facts.example.holds) == (ends, holds)
    ]


_WAYS = (*_ways(), _FAST, *_ways(ends=True), _ASYNC, *_ways(holds=True))


def limits(spec: SqlQuery | PythonQuery, ground: Ground) -> list[TriggerFit]:
    """Return whether each kind of trigger suits a query, in order of latency."""
    return [_limit(spec, way, ground) for way in _WAYS]


def trigger_problems(spec: SqlQuery | PythonQuery, ground: Ground | None = None) -> list[Problem]:
    """Return what is wrong with a query's trigger, including its conflicts.

    `ground` describes where the query runs; None if that is not known.
    """
    kind = kinds.KINDS[TriggerKind(spec.trigger.kind)]
    problems: list[Problem] = []
    if isinstance(interval := getattr(spec.trigger, "interval", None), str):
        problem = kinds.interval_problem("trigger.interval", interval, at_least_ms=kind.shortest_ms)
        problems += [problem] if problem else []
    if kind.conflicts is not None:
        problems += kind.conflicts(spec)
    problems += core_problems(spec, ground or Ground())
    return problems + async_problems(spec)


def refusals(spec: SqlQuery | PythonQuery, ground: Ground) -> list[Problem]:
    """Return the definite errors in a query's trigger, both in its SQL and in its options."""
    return trigger_problems(spec, ground) + _of_the_rest(spec)


def doubts(spec: SqlQuery | PythonQuery, ground: Ground) -> list[str]:
    """Return the doubts about a query's trigger that only Spark can resolve, as sentences."""
    sentences = core_doubts(spec, ground)
    if spec.trigger.kind not in HOLDING_TRIGGERS:
        return sentences
    if isinstance(spec, PythonQuery):
        return [*sentences, "Its plan is built by a Python function that only Spark can analyze."]
    sql_operators = operators(spec)
    if not sql_operators.readable:
        sentences.append("Only Spark can parse its SQL.")
    if sql_operators.unknown:
        sentences.append(f"The effect of {', '.join(sql_operators.unknown)} is unknown.")
    if spec.trigger.kind == "real_time":
        sentences += _real_time_doubts(sql_operators.used)
    return sentences


def with_async_progress(spec: SqlQuery | PythonQuery) -> SqlQuery | PythonQuery:
    """Return a definition with async progress tracking turned on; unchanged if it has no sink."""
    if spec.sink is None:
        return spec
    other_options = {k: v for k, v in spec.sink.options.items() if k.lower() != ENABLED.lower()}
    sink = spec.sink.model_copy(update={"options": {**other_options, ENABLED: "true"}})
    return spec.model_copy(update={"sink": sink})


def _limit(spec: SqlQuery | PythonQuery, way: _Way, ground: Ground) -> TriggerFit:
    tried = _tried(spec, way)
    other_problems = {(problem.field, problem.message) for problem in _of_the_rest(spec)}
    reasons = [
        f"{_about(problem)} {problem.message}".strip()
        for problem in refusals(tried, ground)
        if (problem.field, problem.message) not in other_problems
    ]
    standing, chosen = Suitability.REFUSED, _chosen(spec) == way.key
    if not reasons:
        reasons = doubts(tried, ground)
        if way.key == ASYNC_PROGRESS and (unknown := left_to_preflight(tried)):
            reasons.append(unknown)
        standing = Suitability.PREFLIGHT if reasons else Suitability.ALLOWED
    return TriggerFit(way.key, way.name, way.costs, standing, tuple(dict.fromkeys(reasons)), chosen)


def _tried(spec: SqlQuery | PythonQuery, way: _Way) -> SqlQuery | PythonQuery:
    if way.trigger is None:  # it needs batches: use the definition's own trigger if it has them
        batches = spec.trigger if spec.trigger.kind not in HOLDING_TRIGGERS else ProcessingTime()
        return with_async_progress(spec.model_copy(update={"trigger": batches}))
    if way.trigger.kind == spec.trigger.kind and _chosen(spec, asynchronous=False) == way.key:
        return spec
    return spec.model_copy(update={"trigger": way.trigger})


def _of_the_rest(spec: SqlQuery | PythonQuery) -> list[Problem]:
    """Return what is wrong with a definition regardless of its trigger."""
    return sql_text.sql_problems(spec) if isinstance(spec, SqlQuery) else []


def _chosen(spec: SqlQuery | PythonQuery, *, asynchronous: bool = True) -> str:
    if asynchronous and has_async_progress(spec):
        return ASYNC_PROGRESS
    trigger = spec.trigger
    if isinstance(trigger, ProcessingTime) and interval_ms(trigger.interval) == 0:
        return "as_fast_as_possible"
    return trigger.kind


def _about(problem: Problem) -> str:
    """Return the subject of a problem, as the beginning of a sentence."""
    if problem.field.startswith(("trigger", "sink.options.async")):
        return "It"
    if problem.field == "sink.output_mode":
        return f"Output mode {problem.value}"
    if problem.field == "sink.format":
        return f"A {problem.value} sink"
    if problem.field.endswith(".format"):
        return f"A {problem.value} source"
    return f"{problem.field.rpartition('.')[2]} = {problem.value}"


def _real_time_doubts(sql_operators: frozenset[SqlOperator]) -> list[str]:
    sentences = []
    if sql_operators & {SqlOperator.STATIC_JOIN, SqlOperator.MEMBERSHIP}:
        sentences.append("A joined table must be small enough for Spark to send it to every task.")
    keeps_state = sql_operators & KEEPS_STATE
    if keeps_state and SqlOperator.UNION in sql_operators:
        sentences.append(
            "State before a union is not allowed; only the plan shows whether there is any."
        )
    if keeps_state:
        sentences.append(
            "It keeps state, so it needs a new checkpoint: a checkpoint that another trigger has "
            "started (format v1) is rejected."
        )
    return sentences
