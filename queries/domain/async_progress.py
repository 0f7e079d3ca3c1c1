"""Async progress tracking: when it may be used, what it leaves on disk, what a crash replays.

With it on, Spark writes down the offsets of a batch in a thread of its own and not of every
batch: at most one each checkpoint interval. Triggers get shorter, the offset log gets gaps,
and a start goes on from the last offsets that were kept, doing all later batches again as one.
With it off, Spark wants the offsets of the batch before the newest, and dies without them.
Source: Spark 4.3's AsyncProgressTrackingMicroBatchExecution, and runs of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from queries.domain.errors import Problem
from queries.domain.operators import Operator, operators
from queries.domain.spec import AvailableNow, Continuous, Once, PythonQuery, RealTime, SqlQuery
from queries.domain.sql_text import Text, read

ENABLED = "asyncProgressTrackingEnabled"
INTERVAL = "asyncProgressTrackingCheckpointIntervalMs"
#: How often offsets are kept where the definition does not say; real-time mode has 0.
DEFAULT_INTERVAL_MS = 1000
#: Java's longest: Spark reads the interval as a Long.
_LONGEST_MS = 2**63 - 1
#: Sinks that Spark lets through.
SINKS = frozenset({"kafka", "console", "memory", "noop"})
EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"

_FIELD = f"sink.options.{ENABLED}"


# --- what a definition says of it ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tracking:
    """Async progress tracking as a definition asks for it."""

    interval_ms: int  # offsets are kept at most this often; 0: those of every batch


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
    if not _asked(spec):
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
        problems.append(
            Problem(_FIELD, enabled[:200], "is neither true nor false.", 'Write "true" or "false".')
        )
    every = options.get(INTERVAL.lower(), "0")
    if not (every.isascii() and every.isdecimal()) or int(every) > _LONGEST_MS:
        problems.append(
            Problem(
                f"sink.options.{INTERVAL}",
                every[:200],
                "is not a number of milliseconds.",
                f'Write a whole number: "{DEFAULT_INTERVAL_MS}", or "0" to keep the offsets of '
                "every batch.",
            )
        )
    return problems


def _sink(name: str) -> list[Problem]:
    if name in SINKS:
        return []
    return [
        _refused(
            f"does not go with a {name} sink: rows of a batch that is done again could not be "
            "told from new ones.",
            f"Remove it, or write to {_either(SINKS)}.",
        )
    ]


def _trigger(spec: SqlQuery | PythonQuery, every: str) -> list[Problem]:
    trigger = spec.trigger
    if isinstance(trigger, Once | AvailableNow):
        return [
            _refused(
                f"does not go with the {trigger.kind} trigger: the query ends before its "
                "offsets would be kept.",
                "Remove it, or use a processing-time trigger.",
            )
        ]
    if isinstance(trigger, Continuous):
        return [
            _refused(
                "is ignored by Spark, without a word, under a continuous trigger, which keeps "
                "its offsets in the background anyway.",
                "Remove it.",
            )
        ]
    if isinstance(trigger, RealTime) and every != "0":
        return [
            Problem(
                f"sink.options.{INTERVAL}",
                every[:200],
                "must be 0 in real-time mode, whose own interval says how often offsets are kept.",
                'Set it to "0", or remove it.',
            )
        ]
    return []


def _state(spec: SqlQuery | PythonQuery) -> list[Problem]:
    because = stateful_because(spec) if isinstance(spec, SqlQuery) else ""
    if not because:
        return []
    return [
        _refused(
            f"does not go with a stateful query, and this one {because}. Spark would refuse it "
            "at its first batch.",
            "Remove it: state must be kept with each batch.",
        )
    ]


def evolution_problems(
    spec: SqlQuery | PythonQuery, application_conf: Mapping[str, str]
) -> list[Problem]:
    """Return why it does not go with source evolution, which the application may turn on too."""
    conf = {**application_conf, **spec.conf}
    if conf.get(EVOLUTION, "false").lower() != "true" or not _asked(spec):
        return []
    return [_refused(f"does not go with source evolution ({EVOLUTION}).", "Remove one of the two.")]


def _asked(spec: SqlQuery | PythonQuery) -> bool:
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
    if any(text.streams_reach(query) for query in _distinct(text)):
        return str(Operator.DISTINCT)
    if any(text.streams_reach(query) for query in _limited(text)):
        return str(Operator.LIMIT)
    return ""


def _distinct(text: Text) -> list[exp.Expression]:
    queries = text.statement.find_all(exp.Select, exp.SetOperation)
    return [query for query in queries if query.args.get("distinct")]


def _limited(text: Text) -> list[exp.Expression]:
    queries = text.statement.find_all(exp.Select, exp.SetOperation)
    return [query for query in queries if query.args.get("limit")]


def known_after_a_preflight(spec: SqlQuery | PythonQuery) -> str:
    """Return what of async progress tracking only Spark's plan will tell; "" for nothing."""
    if isinstance(spec, PythonQuery) and spec.sink is None:
        return (
            "Whether the function keeps state, and whether its own sink goes with async progress "
            "tracking, is known after a preflight."
        )
    if not _asked(spec):
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


def _either(names: frozenset[str]) -> str:
    *others, last = sorted(names)
    return f"{', '.join(others)} or {last}"


# --- what lies on disk --------------------------------------------------------------------


def missing_batch(begun: Sequence[int]) -> int | None:
    """Return the batch whose offsets Spark would ask for in vain without async tracking.

    `begun` are the batches that `offsets/` holds, in order. It is the one before the newest,
    where that is not there; None where a start without async tracking would work.
    """
    if not begun or begun[-1] == 0:
        return None
    before = begun[-1] - 1
    return before if before not in begun[-2:] else None


def resumed_after(
    begun: Sequence[int], committed: Sequence[int], *, in_gaps: bool = True
) -> int | None:
    """Return the batch whose end offsets a start would go on from; None: from the beginning.

    Spark goes on after the newest batch it has offsets of, where that one has committed too;
    else it does that batch again, from the end of the one before it in the log (`in_gaps`),
    or of the one with the id before.
    """
    if not begun:
        return None
    newest = begun[-1]
    if newest in committed:
        return newest
    if in_gaps:
        return begun[-2] if len(begun) > 1 else None
    return newest - 1 if newest else None


# --- what lies between two offsets ----------------------------------------------------------


def beyond(end: Any, start: Any) -> bool:
    """Tell whether an offset lies behind another of the same source, in any partition."""
    between = records_between(start, end)
    if between is not None:
        return between > 0
    return bool(end != start)


def records_between(start: Any, end: Any) -> int | None:
    """Return how many offsets lie from `start` to `end`; None where they cannot be counted.

    Counted are numbers, and objects of topics with partitions as Kafka has them. A partition
    that `start` does not name is counted from 0 only where it is not there at all.
    """
    if _number(start) and _number(end):
        return max(0, int(end) - int(start))
    if start is None or not isinstance(start, Mapping) or not isinstance(end, Mapping):
        return None
    total = 0
    for topic, partitions in end.items():
        before = start.get(topic, {})
        if not isinstance(partitions, Mapping) or not isinstance(before, Mapping):
            return None
        for partition, offset in partitions.items():
            first = before.get(partition, 0)
            if not _number(offset) or not _number(first):
                return None
            total += max(0, int(offset) - int(first))
    return total


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
