"""Describe a query's async operators from the figures in its progress events.

`headgate_async` publishes sums over a batch's tasks in an observation that has the operator's name.
This module adds them up over batches, compares them with what the latency allows (Little's law:
calls in flight = calls per second x latency), and identifies the bottleneck and the setting that
would remove it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from queries.domain.readings import counted

#: Prefix of `headgate_async`'s observation names, before the operator's own name.
PREFIX = "headgate_async:"

#: Number of batches that "now" covers.
RECENT = 10
#: A cause with more than this share of the calls is the bottleneck.
MOST = 0.5
#: Share of a core at which a Python worker's CPU is the bottleneck.
CPU_FULL = 0.85
#: If latency exceeds the best measured value by this factor, calls queue at the remote service.
SATURATED = 2.0
#: Share of failed calls above which the query's page header mentions them.
FAILING = 0.05
#: With fewer calls than this, the shares are not meaningful.
FEW = 20


class Bound(StrEnum):
    """What limits the call rate."""

    CPU = "this side's CPU"
    PACE = "the limit on calls per second"
    KEYS = "distinct keys"
    REMOTE = "the saturated remote"
    LIMIT = "the limit on calls in flight"
    SOURCE = "the input rows"


@dataclass(frozen=True, slots=True)
class AsyncOperator:
    """One async operator over its recent batches. Times are in milliseconds."""

    name: str
    until: datetime | None  # start of the newest of its batches; None: not given
    batches: int
    calls: int
    retries: int
    errors: int
    timeouts: int
    dead_letters: int
    latency_ms: float  # mean
    percentiles_ms: tuple[float, float, float]  # p50, p95, p99 of the newest batch with calls
    waited_ms: tuple[float, float, float]  # waiting for a key: the same percentiles
    allowed: float  # mean number of calls allowed in flight per task
    used: float  # mean number of calls actually in flight per task
    cap: int
    cpu: float  # share of a core used by a task's Python worker
    keys: float  # distinct keys held by a task, mean
    delay_shares: Mapping[Bound, float]  # share of the calls, by what delayed the next one
    tasks: float  # per batch
    rate: float  # calls per second while calls are made, over all parallel tasks of a batch
    best_latency_ms: float  # lowest mean latency of any given batch

    @property
    def failed(self) -> float:
        """Return the share of the calls that failed."""
        return self.errors / self.calls

    @property
    def possible(self) -> float:
        """Return the possible calls per second at this latency with all allowed calls in flight."""
        return self.tasks * self.allowed * 1000.0 / max(self.latency_ms, 1e-3)


@dataclass(frozen=True, slots=True)
class OperatorAdvice:
    """An operator's bottleneck, the evidence for it, and the setting that would raise the limit."""

    bound: Bound
    evidence: str
    advice: str
    number: int | None  # the value to set, if there is one


def named(progress: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the async operators in a progress event."""
    observed = (progress or {}).get("observedMetrics") or {}
    return sorted(name.removeprefix(PREFIX) for name in observed if name.startswith(PREFIX))


def operators(progresses: Sequence[Mapping[str, Any]]) -> list[AsyncOperator]:
    """Return the operators found in progress events (newest first), by name.

    The figures cover the newest `RECENT` batches in which an operator made calls; the best latency
    covers all the batches passed in. Operators that made no calls are left out.
    """
    batches: dict[str, list[Mapping[str, Any]]] = {}
    for progress in progresses:
        observed = progress.get("observedMetrics") or {}
        for name, figures in observed.items():
            if name.startswith(PREFIX) and figures and (figures.get("calls") or 0) > 0:
                at = {"at": progress.get("timestamp")}
                batches.setdefault(name.removeprefix(PREFIX), []).append({**figures, **at})
    return [_operator(name, batches[name]) for name in sorted(batches)]


def _operator(name: str, batches: Sequence[Mapping[str, Any]]) -> AsyncOperator:
    recent, newest = batches[:RECENT], batches[0]
    calls, wall = _sum(recent, "calls"), max(_sum(recent, "wall_ms"), 1e-3)
    tasks = max(1.0, _sum(recent, "tasks") / len(recent))
    delays = {
        Bound.LIMIT: "held_by_limit",
        Bound.KEYS: "held_by_keys",
        Bound.SOURCE: "held_by_source",
        Bound.PACE: "held_by_pace",
    }
    return AsyncOperator(
        name=name,
        until=_moment(newest["at"]),
        batches=len(recent),
        calls=int(calls),
        retries=int(_sum(recent, "retries")),
        errors=int(_sum(recent, "errors")),
        timeouts=int(_sum(recent, "timeouts")),
        dead_letters=int(_sum(recent, "dead_letters")),
        latency_ms=_sum(recent, "busy_ms") / calls,
        percentiles_ms=_three(newest.get("latency_ms")),
        waited_ms=_three(newest.get("waited_ms")),
        allowed=_sum(recent, "allowed") / calls,
        used=_sum(recent, "busy_ms") / wall,
        cap=int(newest.get("cap") or 0),
        cpu=_sum(recent, "cpu_ms") / wall,
        keys=_sum(recent, "keys") / calls,
        delay_shares={bound: _sum(recent, field) / calls for bound, field in delays.items()},
        tasks=tasks,
        rate=tasks * calls * 1000.0 / wall,
        best_latency_ms=min(_sum([batch], "busy_ms") / _sum([batch], "calls") for batch in batches),
    )


def _moment(text: Any) -> datetime | None:
    """Return a time in Spark's format; None for anything else."""
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def _sum(batches: Iterable[Mapping[str, Any]], field: str) -> float:
    return sum(float(batch.get(field) or 0.0) for batch in batches)


def _three(values: Any) -> tuple[float, float, float]:
    """Return the three percentiles; zeros if a batch has none."""
    if not isinstance(values, Sequence) or len(values) != 3:
        return (0.0, 0.0, 0.0)
    return (float(values[0]), float(values[1]), float(values[2]))


def advise(operator: AsyncOperator) -> OperatorAdvice:
    """Return an operator's bottleneck and the setting that would raise the limit."""
    if operator.cpu >= CPU_FULL:
        return OperatorAdvice(
            Bound.CPU,
            f"A task's Python worker takes {operator.cpu:.0%} of a core for "
            f"{operator.rate / operator.tasks:,.0f} calls per second.",
            "More calls in flight would not help. Use more tasks on more cores, fewer columns, or "
            "less work per row in the function.",
            None,
        )
    if operator.delay_shares[Bound.PACE] > MOST:
        return OperatorAdvice(
            Bound.PACE,
            f"{operator.delay_shares[Bound.PACE]:.0%} of the calls waited for this limit.",
            "The limit is calls_per_second; raise it if the remote service can handle more.",
            None,
        )
    if operator.delay_shares[Bound.KEYS] > MOST:
        return OperatorAdvice(
            Bound.KEYS,
            f"A task held {counted(round(operator.keys), 'distinct key')} with a call or a row "
            "each, and rows of one key are processed one at a time.",
            f"At most {counted(round(operator.keys), 'call')} can be in flight, regardless of the "
            "limit. A finer key or a larger hold allows more calls in parallel.",
            max(1, round(operator.keys)),
        )
    if operator.delay_shares[Bound.LIMIT] > MOST:
        return _limited(operator)
    return OperatorAdvice(
        Bound.SOURCE,
        f"{operator.used:.1f} of {counted(round(operator.allowed), 'allowed call')} were in "
        "flight; most calls ended when no more rows were available.",
        "The calls keep up with the input. No tuning is needed.",
        None,
    )


def _limited(operator: AsyncOperator) -> OperatorAdvice:
    """Distinguish a limit that could be raised from a saturated remote service."""
    times = operator.latency_ms / max(operator.best_latency_ms, 1e-3)
    knee = max(1, math.ceil(operator.rate / operator.tasks * operator.best_latency_ms / 1000.0))
    if times >= SATURATED and knee < operator.allowed:
        return OperatorAdvice(
            Bound.REMOTE,
            f"A call takes {operator.latency_ms:.1f} ms; it took {operator.best_latency_ms:.1f} "
            "ms when fewer were in flight.",
            f"{counted(knee, 'call')} in flight per task {'gives' if knee == 1 else 'give'} about "
            "95 % of this throughput. With more, "
            f"calls only wait longer: {times:.1f} times as long at {operator.allowed:.0f}.",
            knee,
        )
    if operator.allowed >= operator.cap:
        more = max(1, operator.cap * 2)
        return OperatorAdvice(
            Bound.LIMIT,
            "All allowed calls are in flight and more rows are waiting: "
            f"{operator.allowed:.0f} per task.",
            f"As long as a call takes {operator.latency_ms:.1f} ms, allowing {more} calls in "
            f"flight gives up to {operator.rate * 2:,.0f} calls per second.",
            more,
        )
    return OperatorAdvice(
        Bound.LIMIT,
        f"{operator.allowed:.0f} of at most {operator.cap} calls are allowed: the limiter found "
        "no gain with more.",
        "The limiter tries one step up or down from time to time. No action is needed.",
        None,
    )


def failing(progress: Mapping[str, Any] | None) -> list[str]:
    """Return a sentence for each operator whose calls fail in the newest batch."""
    notes = []
    for operator in operators([progress] if progress else []):
        if operator.calls >= FEW and operator.failed >= FAILING:
            after = "retries have succeeded so far"
            if operator.dead_letters:
                rows = "row became a dead letter,rows became dead letters"
                after = counted(operator.dead_letters, rows)
            notes.append(
                f"{operator.failed:.0%} of the calls of {operator.name!r} fail: "
                f"{operator.errors:,} of "
                f"{operator.calls:,} in the newest batch, of which {operator.timeouts:,} timed "
                f"out; {after}."
            )
    return notes
