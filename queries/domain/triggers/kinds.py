"""The kinds of triggers: their names and costs, and the sources and sinks that they work with.

The limits are Spark 4.3's. They are checked when a definition is saved, because Spark itself
reports most violations only after a driver has been started for the query. Pages, advice and
limits derive from `KINDS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from queries.domain.definitions.spec import (
    UNLISTED_SINKS,
    AvailableNow,
    Continuous,
    Once,
    ProcessingTime,
    PythonQuery,
    RealTime,
    SqlQuery,
    Trigger,
    TriggerKind,
)
from queries.domain.definitions.sql_text import Operators, SqlOperator, operators
from queries.domain.errors import Problem
from queries.domain.triggers.async_progress import either
from queries.domain.triggers.intervals import interval_ms

#: Real-time mode's shortest batch (Spark: INVALID_STREAMING_REAL_TIME_MODE_TRIGGER_INTERVAL).
REAL_TIME_MIN_MS = 5000
CONTINUOUS_SOURCES = frozenset({"kafka", "rate"})
REAL_TIME_SOURCES = frozenset({"kafka"})
REAL_TIME_SINKS = UNLISTED_SINKS - {"noop"}
#: Operators that real-time mode does not support, verified with Spark 4.3 on a broker: its
#: allowlist does not contain them. Continuous processing supports no member of `SqlOperator`.
REAL_TIME_REFUSES = frozenset(
    {
        SqlOperator.STREAM_JOIN,
        SqlOperator.LIMIT,
        SqlOperator.SORT,
        SqlOperator.WINDOW,
        SqlOperator.SAMPLE,
    }
)


def interval_problem(field: str, text: str, *, at_least_ms: int = 0) -> Problem | None:
    """Return what is wrong with an interval, or None."""
    length = interval_ms(text)
    if length is None:
        way_out = 'Write a number and a unit: "10 seconds".'
        return Problem(field, text, "is not a valid interval.", way_out)
    if length < at_least_ms:
        least = f"{at_least_ms / 1000:g} seconds" if at_least_ms >= 1000 else f"{at_least_ms} ms"
        return Problem(field, text, f"is shorter than {least}.", f"Use {least} or more.")
    return None


def _limits(
    spec: SqlQuery | PythonQuery,
    what: str,
    sources: frozenset[str],
    sinks: frozenset[str],
) -> list[Problem]:
    problems = []
    if isinstance(spec, SqlQuery):
        for index, source in enumerate(spec.sources):
            if source.format not in sources:
                message = f"cannot be read by a {what} trigger."
                way_out = f"Use {either(sources)}, or a processing-time trigger."
                problems.append(Problem(f"sources.{index}.format", source.format, message, way_out))
    if spec.sink and spec.sink.format not in sinks:
        message = f"cannot be written by a {what} trigger."
        way_out = f"Use {either(sinks)}, or a processing-time trigger."
        problems.append(Problem("sink.format", spec.sink.format, message, way_out))
    return problems


def _continuous(spec: SqlQuery | PythonQuery) -> list[Problem]:
    problems = _limits(spec, "continuous", CONTINUOUS_SOURCES, UNLISTED_SINKS)
    if spec.sink and spec.sink.output_mode == "complete":
        message = "needs an aggregation, which continuous processing does not have."
        problems.append(Problem("sink.output_mode", "complete", message, "Use append or update."))
    if isinstance(spec, SqlQuery):
        problems += _operators(
            operators(spec).used, "supports only selections and projections", spec.trigger.kind
        )
    return problems


def _operators(refused_operators: frozenset[SqlOperator], why: str, kind: str) -> list[Problem]:
    return [
        Problem(
            "trigger.kind", kind, f"{why}; the text {operator}.", "Use a processing-time trigger."
        )
        for operator in sorted(refused_operators)
    ]


def _real_time(spec: SqlQuery | PythonQuery) -> list[Problem]:
    problems = _limits(spec, "real-time", REAL_TIME_SOURCES, REAL_TIME_SINKS)
    if spec.sink and spec.sink.output_mode != "update":
        message = "is not supported in real-time mode."
        way_out = "Real-time mode supports only update."
        problems.append(Problem("sink.output_mode", spec.sink.output_mode, message, way_out))
    if isinstance(spec, SqlQuery):
        problems += [
            Problem(
                f"sources.{index}.options.{key}",
                value,
                "is not supported in real-time mode.",
                "Remove it.",
            )
            for index, source in enumerate(spec.sources)
            for key, value in source.options.items()
            if key.lower() in ("maxoffsetspertrigger", "minoffsetspertrigger")
        ]
        problems += _operators(
            _refused_in_real_time(operators(spec)), "cannot do this in real time", "real_time"
        )
    return problems


def _refused_in_real_time(sql_operators: Operators) -> frozenset[SqlOperator]:
    refused_operators = sql_operators.used & REAL_TIME_REFUSES
    if {SqlOperator.UNION, SqlOperator.TWICE} <= sql_operators.used:
        refused_operators |= {SqlOperator.TWICE}
    return refused_operators


@dataclass(frozen=True, slots=True)
class TriggerProfile:
    """Everything known about one kind of trigger, except for its shape (`spec`)."""

    name: str
    costs: str  # what choosing it means, as a sentence
    choice: str  # its words on the form of a query
    words: str  # its words in lists of queries; {interval} is replaced
    example: Trigger  # to try its limits on a query
    shortest_ms: int = 0  # of its interval
    unmeasured: str = ""  # why no interval is suggested, as a sentence; "": one is
    without_cores: str = ""  # what happens with too few cores; for triggers that hold cores
    #: Returns its conflicts with the rest of a definition; None if it has none.
    conflicts: Callable[[SqlQuery | PythonQuery], list[Problem]] | None = None


_ENDS = "A query that ends on its own has no interval to choose."

#: In the order in which they are shown.
KINDS: Mapping[TriggerKind, TriggerProfile] = {
    TriggerKind.PROCESSING_TIME: TriggerProfile(
        "Processing time",
        "One batch per interval. A row waits half an interval on average, and then for the batch.",
        "processing time: a batch every interval",
        "every {interval}",
        ProcessingTime(interval="1 second"),
    ),
    TriggerKind.AVAILABLE_NOW: TriggerProfile(
        "Available now",
        "Reads all available data in batches within the source's limits, then ends.",
        "available now: read all available data, then end",
        "available now",
        AvailableNow(),
        unmeasured=_ENDS,
    ),
    TriggerKind.ONCE: TriggerProfile(
        "Once",
        "Reads all available data in a single batch regardless of the source's limits, then "
        "ends. Deprecated in Spark; available now does the same in batches.",
        "once: a single batch, then end",
        "once",
        Once(),
        unmeasured=_ENDS,
    ),
    TriggerKind.CONTINUOUS: TriggerProfile(
        "Continuous",
        "Long-running tasks process rows with a latency of milliseconds and permanently hold one "
        "core per source partition. Delivery is at least once. Experimental in Spark, which does "
        "not report progress.",
        "continuous: Kafka, no aggregation, at least once",
        "continuous, checkpoint every {interval}",
        Continuous(interval="1 second"),
        shortest_ms=1,
        unmeasured="Continuous processing has no batches, and its epochs do not report their cost.",
        without_cores="Spark would start it without a warning, but the query would do nothing.",
        conflicts=_continuous,
    ),
    TriggerKind.REAL_TIME: TriggerProfile(
        "Real time",
        "Rows are processed while the batch runs, with a latency of milliseconds. The query "
        "permanently holds one core per source partition and needs update mode. A restart replays "
        "the batch in flight and, for stateless queries, possibly the previous one, because "
        "progress is tracked asynchronously by default.",
        "real time: Kafka, update mode, milliseconds",
        "real-time, batches of {interval}",
        RealTime(interval="5 seconds"),
        shortest_ms=REAL_TIME_MIN_MS,
        unmeasured="A real-time batch has a fixed length that does not depend on its cost.",
        without_cores=(
            "the other partitions would wait for entire batches, and Spark would not warn about "
            "this."
        ),
        conflicts=_real_time,
    ),
}
