"""Advice on a query's trigger from its own batches: what another trigger would cost and gain.

`intervals` describes how latency and throughput follow from the cost of a batch. Advice does
not change anything, and never suggests a definition that would be rejected.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from queries.domain.definitions.parsing import as_json, parse_query
from queries.domain.definitions.spec import (
    ProcessingTime,
    PythonQuery,
    RealTime,
    SqlQuery,
    TriggerKind,
)
from queries.domain.definitions.sql_text import KEEPS_STATE, operators
from queries.domain.triggers.async_progress import has_async_progress
from queries.domain.triggers.batch_cost import (
    ROUND_MS,
    BatchCost,
    BatchSample,
    Expected,
    LogFiles,
    Untold,
    cost_of,
    expected,
    interval_text,
    intervals,
    log_cost,
    words,
)
from queries.domain.triggers.cores import Ground
from queries.domain.triggers.intervals import interval_ms
from queries.domain.triggers.kinds import KINDS
from queries.domain.triggers.limits import TriggerFit, doubts, limits, refusals, with_async_progress

#: A suggested interval keeps the driver busy for at most this share of it, by the band's worst
#: line: twice as many rows may arrive before batches take longer than the interval.
BUSY_AT_MOST = 0.5
#: Share of a trigger that checkpointing must take before async progress tracking is worth its cost.
TAX_WORTH = 0.1


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """One executed batch of the query, from its progress."""

    at: datetime  # the trigger's start
    rows: int
    trigger_ms: float  # triggerExecution
    logs_ms: float  # walCommit + commitOffsets: the checkpoint's part
    first: bool = False  # first of its run: it plans and compiles, so it is not measured


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One change to the trigger, with its benefit and cost."""

    key: str  # "interval", "async_progress", "real_time"
    title: str
    brings: str
    costs: str
    spec: dict[str, Any]  # the complete changed definition in its JSON form
    doubts: tuple[str, ...] = ()  # what only a preflight can answer

    @property
    def choice(self) -> str:
        """Return the form's value: the key, and a digest of the change that it showed."""
        change = json.dumps(self.spec, sort_keys=True).encode()
        return f"{self.key}-{hashlib.sha256(change).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class TriggerAdvice:
    """Everything known about a query's trigger."""

    limits: tuple[TriggerFit, ...]
    batches: int  # number of batches examined
    untold: str = ""  # why the cost cannot be calculated from the batches
    cost: BatchCost | None = None
    rate: float | None = None  # rows read per second
    tax: float | None = None  # share of its triggers spent on checkpointing
    logs_ms: float | None = None  # the same per batch, on average
    now: Expected | None = None  # expected at its own interval
    curve: tuple[Expected, ...] = ()  # by interval, ascending
    overload: str = ""  # shown if no interval keeps up
    log_cost: str = ""  # what would help against the cost of log entries on a storage, if anything
    suggestions: tuple[Suggestion, ...] = ()


def advise(
    spec: SqlQuery | PythonQuery,
    ground: Ground,
    batches: Sequence[BatchSeen],
    files: LogFiles | None = None,
) -> TriggerAdvice:
    """Return advice for a query from its executed batches (oldest first) of one revision.

    `files` are the files of a checkpoint that is not local.
    """
    trigger_limits = tuple(limits(spec, ground))
    if not isinstance(spec.trigger, ProcessingTime):
        kind = KINDS[TriggerKind(spec.trigger.kind)]
        return TriggerAdvice(trigger_limits, len(batches), untold=kind.unmeasured)
    measured_batches = [batch for batch in batches if not batch.first and batch.rows > 0]
    total = sum(batch.trigger_ms for batch in measured_batches)
    tax = sum(batch.logs_ms for batch in measured_batches) / total if total else None
    logs_ms = (
        sum(batch.logs_ms for batch in measured_batches) / len(measured_batches)
        if measured_batches
        else None
    )
    interval = float(interval_ms(spec.trigger.interval) or 0)
    costs = ""
    if files is not None and logs_ms is not None:
        costs = log_cost(files, logs_ms, total / len(measured_batches), interval)
    rate = rate_of(batches)
    cost = cost_of([BatchSample(batch.rows, batch.trigger_ms) for batch in measured_batches])
    if isinstance(cost, Untold) or rate is None:
        return TriggerAdvice(
            limits=trigger_limits,
            batches=len(measured_batches),
            untold=cost.reason if isinstance(cost, Untold) else _NO_RATE,
            rate=rate,
            tax=tax,
            logs_ms=logs_ms,
            log_cost=costs,
            suggestions=_allowed(
                [_async_progress(spec, None, tax or 0.0, logs_ms or 0.0)], spec, ground
            ),
        )
    now = expected(cost, rate, interval)
    return TriggerAdvice(
        limits=trigger_limits,
        batches=len(measured_batches),
        cost=cost,
        rate=rate,
        tax=tax,
        logs_ms=logs_ms,
        now=now,
        curve=tuple(
            expected(cost, rate, interval_choice) for interval_choice in intervals(interval)
        ),
        overload=_overload(cost, rate, now),
        log_cost=costs,
        suggestions=_allowed(
            [
                _interval(spec, cost, rate, now),
                _async_progress(spec, now.latency_ms, tax or 0.0, logs_ms or 0.0),
                _real_time(spec, ground, now),
            ],
            spec,
            ground,
        ),
    )


_NO_RATE = "The batches are too close together to measure the input rate."


def rate_of(batches: Sequence[BatchSeen]) -> float | None:
    """Return the rows per second that the newest run has read; None if unknown.

    The rows of each batch arrived before it began, so the first batch's rows are left out.
    """
    firsts = [index for index, batch in enumerate(batches) if batch.first]
    run = batches[firsts[-1] :] if firsts else batches
    if len(run) < 2:
        return None
    seconds = (run[-1].at - run[0].at).total_seconds()
    rows = sum(batch.rows for batch in run[1:])
    return rows / seconds if seconds > 0 and rows else None


def _worst_busy(cost: BatchCost, rate: float, interval: float) -> float:
    """Return the greatest share of an interval that its batch can take."""
    return cost.band(rate * interval / 1000)[1] / interval


def _overload(cost: BatchCost, rate: float, now: Expected) -> str:
    if now.period_ms is None:
        return (
            f"No interval keeps up: at an input of {rate:.3g} rows/s, the rows alone take more "
            "than 100 % of the time. Use more cores, or do less work per row."
        )
    if now.interval_ms and now.period_ms > now.interval_ms:
        return (
            f"Its batches take longer than the interval: {words(now.period_ms)} instead of "
            f"{words(now.interval_ms)}."
        )
    return ""


# --- suggestions ----------------------------------------------------------------------


def _allowed(
    suggestions: Sequence[Suggestion | None], spec: SqlQuery | PythonQuery, ground: Ground
) -> tuple[Suggestion, ...]:
    """Return the suggestions whose definitions would not be rejected."""
    known_problems = {(problem.field, problem.message) for problem in refusals(spec, ground)}
    return tuple(
        suggestion
        for suggestion in suggestions
        if suggestion is not None and not _refused(suggestion, ground, known_problems)
    )


def _refused(suggestion: Suggestion, ground: Ground, known_problems: set[tuple[str, str]]) -> bool:
    problems = refusals(parse_query(suggestion.spec), ground)
    return any((problem.field, problem.message) not in known_problems for problem in problems)


def _interval(
    spec: SqlQuery | PythonQuery, cost: BatchCost, rate: float, now: Expected
) -> Suggestion | None:
    """Suggest the shortest round interval that leaves room, if it is different and better."""
    fit = next(
        (round_ms for round_ms in ROUND_MS if _worst_busy(cost, rate, round_ms) <= BUSY_AT_MOST),
        None,
    )
    if fit is None or fit == now.interval_ms or now.latency_ms is None or now.busy is None:
        return None
    then = expected(cost, rate, fit)
    # Batches that fill at most half of the interval keep up by every line of the band.
    assert then.latency_ms is not None
    assert then.busy is not None
    assert then.high_ms is not None
    shorter = fit < now.interval_ms
    if shorter and (now.low_ms is None or then.high_ms >= now.low_ms):
        return None  # within the error band: no certain gain
    if not shorter and now.busy <= BUSY_AT_MOST:
        return None  # there is enough room already
    text = interval_text(fit)
    change = {"trigger": ProcessingTime(interval=text)}
    latency = f"from {words(now.latency_ms)} to {words(then.latency_ms)}"
    busy = f"from {now.busy:.0%} to {then.busy:.0%} of the time"
    hourly = f"{_hourly(now)} batches per hour become {_hourly(then)}"
    brings = (
        f"{hourly}: the query is busy {busy}, and the input rate can double before it falls behind."
    )
    costs = f"A row waits longer: {latency} on average ({_band(then)})."
    if shorter:
        brings = (
            f"A row takes {words(then.latency_ms)} on average instead of {words(now.latency_ms)} "
            f"({_band(then)})."
        )
        costs = (
            f"{hourly}, each with its fixed {words(cost.line.fixed_ms)}: the query is busy {busy}."
        )
    title = f"A {'shorter' if shorter else 'longer'} interval: {text}"
    return Suggestion("interval", title, brings, costs, as_json(spec.model_copy(update=change)))


def _async_progress(
    spec: SqlQuery | PythonQuery, latency_ms: float | None, tax: float, logs_ms: float
) -> Suggestion | None:
    if has_async_progress(spec) or spec.sink is None or tax < TAX_WORTH:
        return None
    less = ""
    if latency_ms is not None and latency_ms > logs_ms:
        then = words(latency_ms - logs_ms)
        less = f"; a row takes about {then} instead of {words(latency_ms)}"
    unsure = "Only Spark can tell whether the function keeps state."
    return Suggestion(
        "async_progress",
        "Async progress tracking",
        f"Batches no longer wait for the checkpoint's logs: each takes {words(logs_ms)} less, "
        f"{tax:.0%} of its time{less}.",
        "At least once: a crash replays up to one second of batches as one batch. It must be "
        "switched off the safe way.",
        as_json(with_async_progress(spec)),
        (unsure,) if isinstance(spec, PythonQuery) else (),
    )


def _real_time(spec: SqlQuery | PythonQuery, ground: Ground, now: Expected) -> Suggestion | None:
    changed = real_time_of(spec)
    if changed is None or now.latency_ms is None:
        return None
    return Suggestion(
        "real_time",
        "Real time",
        "Rows are processed while a batch runs: milliseconds instead of "
        f"{words(now.latency_ms)}. The exact latency cannot be derived from its batches.",
        "One core per source partition, held permanently, and the records of a batch replayed "
        "after a restart. Batches of 5 seconds, update mode, and no source limits.",
        as_json(changed),
        tuple(doubts(changed, ground)),
    )


def real_time_of(spec: SqlQuery | PythonQuery) -> SqlQuery | PythonQuery | None:
    """Return a definition changed to real-time mode; None if only its author can change it.

    A stateful definition needs a new checkpoint for real-time mode, and may change its meaning in
    update mode; async progress tracking must first be turned off safely.
    """
    if isinstance(spec, PythonQuery) or spec.sink is None or spec.sink.output_mode == "complete":
        return None
    if operators(spec).used & KEEPS_STATE or has_async_progress(spec):
        return None
    removed_options = {"maxoffsetspertrigger", "minoffsetspertrigger"}
    sources = tuple(
        source.model_copy(
            update={
                "options": {
                    k: v for k, v in source.options.items() if k.lower() not in removed_options
                }
            }
        )
        for source in spec.sources
    )
    sink = spec.sink.model_copy(update={"output_mode": "update"})
    return spec.model_copy(update={"sources": sources, "sink": sink, "trigger": RealTime()})


def _hourly(prediction: Expected) -> str:
    return f"{3_600_000 / prediction.period_ms:,.0f}" if prediction.period_ms else "unlimited"


def _band(prediction: Expected) -> str:
    low, high = words(prediction.low_ms or 0), words(prediction.high_ms or 0)
    return f"{low} to {high} within the error band"
