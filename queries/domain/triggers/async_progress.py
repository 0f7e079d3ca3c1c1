"""Async progress tracking: what a definition sets, and when it may be used.

With it on, Spark writes the offsets of batches in a separate thread, at most once per checkpoint
interval. Triggers get shorter, the offset log gets gaps, and a start resumes from the last
offsets that were written, running all later batches again as one. With it off, Spark needs the
offsets of the batch before the newest, and fails without them.
Source: Spark 4.3's AsyncProgressTrackingMicroBatchExecution, and runs of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from queries.domain.checkpoints.logged_offsets import records_between
from queries.domain.definitions.spec import (
    UNLISTED_SINKS,
    AvailableNow,
    Continuous,
    Once,
    PythonQuery,
    RealTime,
    SqlQuery,
)
from queries.domain.definitions.sql_operators import Operator, operators
from queries.domain.definitions.sql_text import read
from queries.domain.errors import Problem

ENABLED = "asyncProgressTrackingEnabled"
INTERVAL = "asyncProgressTrackingCheckpointIntervalMs"
#: How often offsets are written by default; in real-time mode it is 0.
DEFAULT_INTERVAL_MS = 1000
#: Java's longest: Spark reads the interval as a Long.
_LONGEST_MS = 2**63 - 1
EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"

_FIELD = f"sink.options.{ENABLED}"


# --- what a definition sets ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tracking:
    """Async progress tracking as a definition asks for it."""

    interval_ms: int  # offsets are written at most this often; 0: those of every batch


def tracking(spec: Mapping[str, Any]) -> Tracking | None:
    """Return what a definition's JSON form asks for; None where it is off."""
    options = _options(spec)
    if options.get(ENABLED.lower(), "").lower() != "true":
        return None
    real_time = (spec.get("trigger") or {}).get("kind") == "real_time"
    text = options.get(INTERVAL.lower(), "0" if real_time else str(DEFAULT_INTERVAL_MS))
    return Tracking(int(text) if text.isdecimal() else DEFAULT_INTERVAL_MS)


def switched(spec: Mapping[str, Any], interval_ms: int | None) -> dict[str, Any]:
    """Return a definition's JSON form with it on at this interval, or off (None)."""
    sink = dict(spec.get("sink") or {})
    ours = {ENABLED.lower(), INTERVAL.lower()}
    options = {k: v for k, v in (sink.get("options") or {}).items() if k.lower() not in ours}
    if interval_ms is not None:
        options |= {ENABLED: "true", INTERVAL: str(interval_ms)}
    return {**spec, "sink": {**sink, "options": options}}


# --- what a kill replays ------------------------------------------------------------------


def rows_in_flight(
    begin: Sequence[Any], end: Sequence[Any] | None, recent: Sequence[int], *, exact: bool
) -> int | None:
    """Return how many rows the batch in flight may have written; None where nobody can know.

    `begin` is where it began (the end of the batch before it, by source), `end` where it ended if
    `exact`, else what it can have read at most, or None. Where its own end is not logged it counts
    as the largest of the `recent` batches: a kill brings back all that it had written, and no
    event tells of a batch before its end.
    """
    between = [records_between(*pair) for pair in zip(begin, end or (), strict=False)]
    counted = [count for count in between if count is not None]
    known = sum(counted) if counted and len(counted) == len(between) else None
    if exact:
        return known
    largest = max(recent, default=None)
    if largest is None or known is None:
        return largest
    return min(largest, known)


def _options(spec: Mapping[str, Any]) -> dict[str, str]:
    sink = spec.get("sink") or {}
    return {key.lower(): str(value) for key, value in (sink.get("options") or {}).items()}


# --- allowed or refused -------------------------------------------------------------------


def async_problems(spec: SqlQuery | PythonQuery) -> list[Problem]:
    """Return why Spark would refuse, or silently ignore, async progress tracking here."""
    if spec.sink is None:
        return []
    options = {key.lower(): value for key, value in spec.sink.options.items()}
    problems = _values(options)
    if not has_async_progress(spec):
        return problems
    return [
        *problems,
        *_sink(spec.sink.format),
        *_trigger(spec, options.get(INTERVAL.lower(), "0")),
        *_state(spec),
        *evolution_problems(spec, {}),
    ]


def _values(options: Mapping[str, str]) -> list[Problem]:
    problems = []
    enabled = options.get(ENABLED.lower(), "false")
    if enabled.lower() not in ("true", "false"):
        way_out = 'Write "true" or "false".'
        problems.append(Problem(_FIELD, enabled[:200], "is neither true nor false.", way_out))
    every = options.get(INTERVAL.lower(), "0")
    if not (every.isascii() and every.isdecimal()) or int(every) > _LONGEST_MS:
        message = "is not a number of milliseconds."
        way_out = (
            f'Write a whole number: "{DEFAULT_INTERVAL_MS}", or "0" to keep the offsets of '
            "every batch."
        )
        problems.append(Problem(f"sink.options.{INTERVAL}", every[:200], message, way_out))
    return problems


def _sink(name: str) -> list[Problem]:
    if name in UNLISTED_SINKS:
        return []
    message = (
        f"is not supported with a {name} sink: rows of a replayed batch could not be told "
        "from new ones."
    )
    return [_refused(message, f"Remove it, or write to {either(UNLISTED_SINKS)}.")]


def _trigger(spec: SqlQuery | PythonQuery, every: str) -> list[Problem]:
    trigger = spec.trigger
    if isinstance(trigger, Once | AvailableNow):
        message = (
            f"is not supported with the {trigger.kind} trigger: the query ends before its "
            "offsets would be saved."
        )
        return [_refused(message, "Remove it, or use a processing-time trigger.")]
    if isinstance(trigger, Continuous):
        message = (
            "is silently ignored by Spark with a continuous trigger, which saves its offsets "
            "in the background anyway."
        )
        return [_refused(message, "Remove it.")]
    if isinstance(trigger, RealTime) and every != "0":
        message = (
            "must be 0 in real-time mode, where the trigger's interval sets how often offsets "
            "are saved."
        )
        way_out = 'Set it to "0", or remove it.'
        return [Problem(f"sink.options.{INTERVAL}", every[:200], message, way_out)]
    return []


def _state(spec: SqlQuery | PythonQuery) -> list[Problem]:
    because = stateful_because(spec) if isinstance(spec, SqlQuery) else ""
    if not because:
        return []
    message = (
        f"is not supported with a stateful query, and this one {because}. Spark would refuse "
        "it at its first batch."
    )
    return [_refused(message, "Remove it: state must be saved with each batch.")]


def evolution_problems(
    spec: SqlQuery | PythonQuery, application_conf: Mapping[str, str]
) -> list[Problem]:
    """Return why it does not go with source evolution, which the application may turn on too."""
    conf = {**application_conf, **spec.conf}
    if conf.get(EVOLUTION, "false").lower() != "true" or not has_async_progress(spec):
        return []
    way_out = "Remove one of the two."
    return [_refused(f"is not supported with source evolution ({EVOLUTION}).", way_out)]


def has_async_progress(spec: SqlQuery | PythonQuery) -> bool:
    """Return whether a definition turns async progress tracking on."""
    options = spec.sink.options if spec.sink else {}
    return any(k.lower() == ENABLED.lower() and v.lower() == "true" for k, v in options.items())


def stateful_because(spec: SqlQuery) -> str:
    """Return why a text is stateful for certain ("aggregates"); "" where it may not be."""
    text = read(spec)
    if text is None:
        return ""
    if any(text.streaming_aggregates()):
        return str(Operator.AGGREGATION)
    if Operator.STREAM_JOIN in operators(spec).found:
        return str(Operator.STREAM_JOIN)
    for clause, operator in (("distinct", Operator.DISTINCT), ("limit", Operator.LIMIT)):
        queries = text.statement.find_all(exp.Select, exp.SetOperation)
        if any(query.args.get(clause) and text.streams_reach(query) for query in queries):
            return str(operator)
    return ""


def known_after_a_preflight(spec: SqlQuery | PythonQuery) -> str:
    """Return what only Spark's plan shows about async progress tracking; "" for nothing."""
    if isinstance(spec, PythonQuery) and spec.sink is None:
        return (
            "Whether the function keeps state, and whether its own sink supports async progress "
            "tracking, is known after a preflight."
        )
    if not has_async_progress(spec):
        return ""
    if isinstance(spec, PythonQuery):
        return (
            "Whether the function builds a stateful query is known after a preflight: Spark "
            "refuses async progress tracking for those at the first batch."
        )
    asked = operators(spec)
    if stateful_because(spec) or (asked.readable and not asked.unknown):
        return ""
    what = f"{', '.join(asked.unknown)} aggregates" if asked.readable else "the text is stateful"
    return (
        f"Whether {what} is known after a preflight: Spark refuses async progress tracking for "
        "stateful queries at the first batch."
    )


def _refused(message: str, way_out: str) -> Problem:
    return Problem(_FIELD, "true", message, way_out)


def either(names: frozenset[str]) -> str:
    """Return names as a choice: "a", "a or b", "a, b or c"."""
    *others, last = sorted(names)
    return f"{', '.join(others)} or {last}" if others else last
