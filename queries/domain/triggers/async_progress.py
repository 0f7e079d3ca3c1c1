"""Async progress tracking: a definition's settings, and when it may be used.

If it is on, Spark writes the offsets of batches in a separate thread, at most once per checkpoint
interval. Triggers get shorter, the offset log gets gaps, and a start resumes from the last offsets
written, rerunning all later batches as one. If it is off, Spark needs the offsets of the batch
before the newest, and fails without them.

Source: Spark 4.3's AsyncProgressTrackingMicroBatchExecution, verified by running it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlglot import exp

from headgate_ground.tolerant import whole
from queries.domain.checkpoints.logs import records_between
from queries.domain.definitions.spec import (
    UNLISTED_SINKS,
    Continuous,
    PythonQuery,
    RealTime,
    SqlQuery,
)
from queries.domain.definitions.sql_text import SqlOperator, operators, read
from queries.domain.errors import Problem
from queries.domain.sparks import OURS, SINK_NAMES, Feature, Spark, has_feature

ENABLED = "asyncProgressTrackingEnabled"
INTERVAL = "asyncProgressTrackingCheckpointIntervalMs"
#: How often offsets are written by default; in real-time mode the default is 0.
DEFAULT_INTERVAL_MS = 1000
#: Java's Long.MAX_VALUE: Spark reads the interval as a Long.
_LONGEST_MS = 2**63 - 1
#: Whether async progress tracking is on by default for a stateless query in real-time mode; since
#: 4.3. Source: its SQLConf (true) and StreamingQueryManager.
REAL_TIME_DEFAULT = "spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled"

#: The field of a problem with the setting.
FIELD = f"sink.options.{ENABLED}"


# --- settings of a definition ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tracking:
    """Async progress tracking as set in a definition."""

    interval_ms: int  # offsets are written at most this often; 0: after every batch
    by_default: bool = False  # on because it is Spark's default for real-time mode without state


def tracking(
    spec: Mapping[str, Any],
    application_conf: Mapping[str, str] | None = None,
    spark: Spark = OURS,
) -> Tracking | None:
    """Return the async progress tracking in a definition's JSON form; None if it is off.

    Real-time mode has it on by default since Spark 4.3, except for stateful queries. It is not
    known here whether a function builds a stateful query, so a function counts as stateless.
    """
    options = _options(spec)
    real_time = (spec.get("trigger") or {}).get("kind") == "real_time"
    stated = options.get(ENABLED.lower())
    if stated is None:
        has = real_time and has_feature(spark, Feature.ASYNC_IN_REAL_TIME)
        on = has and _on_by_default(spec, application_conf or {})
        return Tracking(0, by_default=True) if on else None
    if stated.lower() != "true":
        return None
    text = options.get(INTERVAL.lower(), "0" if real_time else str(DEFAULT_INTERVAL_MS))
    interval = whole(text)
    return Tracking(DEFAULT_INTERVAL_MS if interval is None else interval)


def _on_by_default(spec: Mapping[str, Any], application_conf: Mapping[str, str]) -> bool:
    conf = {**application_conf, **(spec.get("conf") or {})}
    if str(conf.get(REAL_TIME_DEFAULT, "true")).lower() != "true":
        return False
    if spec.get("kind") != "sql":
        return True
    try:
        return not stateful_because(SqlQuery.model_validate(spec))
    except ValidationError:  # a stored form that can no longer be parsed must not break a page
        return True


def switched(spec: Mapping[str, Any], interval_ms: int | None) -> dict[str, Any]:
    """Return a definition's JSON form with tracking on at this interval, or off (None).

    In real-time mode it is turned off explicitly, because without the option it would be on.
    """
    sink = dict(spec.get("sink") or {})
    ours = {ENABLED.lower(), INTERVAL.lower()}
    options = {k: v for k, v in (sink.get("options") or {}).items() if k.lower() not in ours}
    if interval_ms is not None:
        options |= {ENABLED: "true", INTERVAL: str(interval_ms)}
    elif (spec.get("trigger") or {}).get("kind") == "real_time":
        options |= {ENABLED: "false"}
    return {**spec, "sink": {**sink, "options": options}}


# --- what a kill replays ------------------------------------------------------------------


def rows_in_flight(
    begin: Sequence[Any], end: Sequence[Any] | None, recent: Sequence[int], *, exact: bool
) -> int | None:
    """Return how many rows the batch in flight may have written; None if unknown.

    `begin` is where it began (the end of the previous batch, by source). `end` is where it ended if
    `exact`, otherwise the most that it can have read, or None. If its end is not logged, it is
    assumed to be as large as the largest of the `recent` batches: a kill repeats everything that it
    wrote, and no event reports a batch before its end.
    """
    between = [records_between(*pair) for pair in zip(begin, end or (), strict=False)]
    known_counts = [count for count in between if count is not None]
    rows = sum(known_counts) if known_counts and len(known_counts) == len(between) else None
    if exact:
        return rows
    largest = max(recent, default=None)
    if largest is None or rows is None:
        return largest
    return min(largest, rows)


def _options(spec: Mapping[str, Any]) -> dict[str, str]:
    sink = spec.get("sink") or {}
    return {key.lower(): str(value) for key, value in (sink.get("options") or {}).items()}


# --- allowed or rejected ------------------------------------------------------------------


def async_problems(spec: SqlQuery | PythonQuery) -> list[Problem]:
    """Return why Spark would reject, or silently ignore, async progress tracking here."""
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
        problems.append(Problem(FIELD, enabled[:200], "is neither true nor false.", way_out))
    every = options.get(INTERVAL.lower(), "0")
    interval = whole(every)
    if interval is None or interval > _LONGEST_MS:
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
        f"is not supported with a {name} sink: rows of a replayed batch could not be "
        "distinguished from new ones."
    )
    return [_refused(message, f"Remove it, or write to {either(UNLISTED_SINKS)}.")]


def _trigger(spec: SqlQuery | PythonQuery, every: str) -> list[Problem]:
    trigger = spec.trigger
    if trigger.ends:
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
        f"is not supported with a stateful query, and this one {because}. Spark would reject "
        "it at its first batch."
    )
    return [_refused(message, "Remove it: state must be saved with each batch.")]


def evolution_problems(
    spec: SqlQuery | PythonQuery, application_conf: Mapping[str, str], spark: Spark = OURS
) -> list[Problem]:
    """Return the conflict with sink evolution, which the application may turn on too.

    The commits of async progress tracking have no room for each sink's metadata. Source: Spark
    4.3's StreamingQueryManager, verified by running it; source evolution is not rejected.
    """
    conf = {**application_conf, **spec.conf}
    if conf.get(SINK_NAMES, "false").lower() != "true":
        return []
    message = f"is not supported with sink evolution ({SINK_NAMES})."
    if has_async_progress(spec):
        return [_refused(message, "Remove one of the two.")]
    if tracking(spec.model_dump(), application_conf, spark) is None:
        return []
    message = f"is on by default in real-time mode without state, and {message}"
    way_out = f'Set {ENABLED} to "false", or remove sink evolution.'
    return [Problem(FIELD, "", message, way_out)]


def has_async_progress(spec: SqlQuery | PythonQuery) -> bool:
    """Return whether a definition's options turn async progress tracking on."""
    options = spec.sink.options if spec.sink else {}
    return any(k.lower() == ENABLED.lower() and v.lower() == "true" for k, v in options.items())


def stateful_because(spec: SqlQuery) -> str:
    """Return why SQL is certainly stateful ("aggregates"); "" if it may not be."""
    text = read(spec)
    if text is None:
        return ""
    if any(text.streaming_aggregates()):
        return str(SqlOperator.AGGREGATION)
    if SqlOperator.STREAM_JOIN in operators(spec).used:
        return str(SqlOperator.STREAM_JOIN)
    for clause, operator in (("distinct", SqlOperator.DISTINCT), ("limit", SqlOperator.LIMIT)):
        queries = text.statement.find_all(exp.Select, exp.SetOperation)
        if any(query.args.get(clause) and text.streams_reach(query) for query in queries):
            return str(operator)
    return ""


def left_to_preflight(spec: SqlQuery | PythonQuery) -> str:
    """Return the async progress tracking doubts that only Spark's plan resolves; "" if none."""
    if isinstance(spec, PythonQuery) and spec.sink is None:
        return (
            "A preflight will show whether the function keeps state, and whether the function's "
            "own sink supports async progress tracking."
        )
    if not has_async_progress(spec):
        return ""
    if isinstance(spec, PythonQuery):
        return (
            "A preflight will show whether the function builds a stateful query: Spark rejects "
            "async progress tracking for those at the first batch."
        )
    sql_operators = operators(spec)
    if stateful_because(spec) or (sql_operators.readable and not sql_operators.unknown):
        return ""
    what = (
        f"{', '.join(sql_operators.unknown)} aggregates"
        if sql_operators.readable
        else "the text is stateful"
    )
    return (
        f"A preflight will show whether {what}: Spark rejects async progress tracking for "
        "stateful queries at the first batch."
    )


def _refused(message: str, way_out: str) -> Problem:
    return Problem(FIELD, "true", message, way_out)


def either(names: frozenset[str]) -> str:
    """Return the names as alternatives: "a", "a or b", "a, b or c"."""
    *others, last = sorted(names)
    return f"{', '.join(others)} or {last}" if others else last
