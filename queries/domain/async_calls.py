"""Describe the async operators of a query by the figures in its progress events.

`headgate_async` puts sums over a batch's tasks into an observation with the operator's name.
This module adds them up over batches, compares them with what the latency would allow (Little's
law: calls in flight = calls per second x latency), and names the bound and the number that would
move it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: How `headgate_async` names its observations, before the operator's own name.
PREFIX = "headgate_async:"

#: Batches that "now" means.
RECENT = 10
#: A share above this is what holds the calls back.
MOST = 0.5
#: The share of a core from which a Python worker's CPU is the bound.
CPU_FULL = 0.85
#: A latency this many times the best one measured means calls that wait at the remote.
SATURATED = 2.0
#: Share of failed calls from which the head of a query's page mentions them.
FAILING = 0.05
#: With fewer calls a share means nothing.
FEW = 20


class Bound(StrEnum):
    """What holds the calls back."""

    CPU = "this side's CPU"
    PACE = "the limit on calls per second"
    KEYS = "distinct keys"
    REMOTE = "the saturated remote"
    LIMIT = "the limit on calls in flight"
    SOURCE = "the input rows"


@dataclass(frozen=True, slots=True)
class Operator:
    """One async operator over its recent batches. Times are in milliseconds."""

    name: str
    batches: int
    calls: int
    retries: int
    errors: int
    timeouts: int
    dead_letters: int
    latency_ms: float  # mean
    percentiles_ms: tuple[float, float, float]  # p50, p95, p99 of the newest batch with calls
    waited_ms: tuple[float, float, float]  # for a key: the same
    allowed: float  # calls in flight in a task, mean
    used: float  # the same, really in flight
    cap: int
    cpu: float  # share of a core, of a task's Python worker
    keys: float  # distinct keys that a task held, mean
    held: Mapping[Bound, float]  # share of the calls, by what held back the next one
    tasks: float  # in a batch
    rate: float  # calls a second while they were made, all tasks of a batch side by side
    best_latency_ms: float  # the least mean latency of a batch, over all that were given

    @property
    def failed(self) -> float:
        """Return the share of the calls that failed."""
        return self.errors / self.calls

    @property
    def possible(self) -> float:
        """Return the calls a second that the latency allows with all allowed calls in flight."""
        return self.tasks * self.allowed * 1000.0 / max(self.latency_ms, 1e-3)


@dataclass(frozen=True, slots=True)
class Advice:
    """What bounds an operator, the evidence, and what would change it."""

    bound: Bound
    evidence: str
    advice: str
    number: int | None  # the one to set, where there is one


def named(progress: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the async operators in a progress event."""
    observed = (progress or {}).get("observedMetrics") or {}
    return sorted(name.removeprefix(PREFIX) for name in observed if name.startswith(PREFIX))


def operators(progresses: Sequence[Mapping[str, Any]]) -> list[Operator]:
    """Return the operators of progress events, newest first, by name.

    Figures are of the newest `RECENT` batches in which an operator made calls; the best latency is
    of all that are given. An operator that made none is left out.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for progress in progresses:
        observed = progress.get("observedMetrics") or {}
        for name, figures in observed.items():
            if name.startswith(PREFIX) and figures and (figures.get("calls") or 0) > 0:
                found.setdefault(name.removeprefix(PREFIX), []).append(figures)
    return [_operator(name, found[name]) for name in sorted(found)]


def _operator(name: str, batches: Sequence[Mapping[str, Any]]) -> Operator:
    recent, newest = batches[:RECENT], batches[0]
    calls, wall = _sum(recent, "calls"), max(_sum(recent, "wall_ms"), 1e-3)
    tasks = max(1.0, _sum(recent, "tasks") / len(recent))
    held = {
        Bound.LIMIT: "held_by_limit",
        Bound.KEYS: "held_by_keys",
        Bound.SOURCE: "held_by_source",
        Bound.PACE: "held_by_pace",
    }
    return Operator(
        name=name,
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
        held={bound: _sum(recent, field) / calls for bound, field in held.items()},
        tasks=tasks,
        rate=tasks * calls * 1000.0 / wall,
        best_latency_ms=min(_sum([one], "busy_ms") / _sum([one], "calls") for one in batches),
    )


def _sum(batches: Iterable[Mapping[str, Any]], field: str) -> float:
    return sum(float(one.get(field) or 0.0) for one in batches)


def _three(values: Any) -> tuple[float, float, float]:
    """Return three percentiles; zeros where a batch has none."""
    if not isinstance(values, Sequence) or len(values) != 3:
        return (0.0, 0.0, 0.0)
    return (float(values[0]), float(values[1]), float(values[2]))


def advise(one: Operator) -> Advice:
    """Say what bounds an operator and what would change it."""
    if one.cpu >= CPU_FULL:
        return Advice(
            Bound.CPU,
            f"A task's Python worker takes {one.cpu:.0%} of a core for "
            f"{one.rate / one.tasks:,.0f} calls per second.",
            "More calls in flight do not help. More tasks on more cores do, as do fewer columns "
            "and less work per row in the function.",
            None,
        )
    if one.held[Bound.PACE] > MOST:
        return Advice(
            Bound.PACE,
            f"{one.held[Bound.PACE]:.0%} of the calls waited for it.",
            "This is the limit calls_per_second; raise it if the remote can take more.",
            None,
        )
    if one.held[Bound.KEYS] > MOST:
        return Advice(
            Bound.KEYS,
            f"A task held {one.keys:.0f} distinct keys with a call or a row each, and the rows of "
            "one key are processed one after the other.",
            f"No more than {one.keys:.0f} calls can be in flight, whatever the limit is. A finer "
            "key or a larger hold allows more calls in parallel.",
            max(1, round(one.keys)),
        )
    if one.held[Bound.LIMIT] > MOST:
        return _limited(one)
    return Advice(
        Bound.SOURCE,
        f"{one.used:.1f} of {one.allowed:.0f} allowed calls were in flight: most calls ended when "
        "no more rows were available.",
        "The calls keep up with the rows. There is nothing to tune.",
        None,
    )


def _limited(one: Operator) -> Advice:
    """Distinguish a limit that could be higher from a saturated remote."""
    times = one.latency_ms / max(one.best_latency_ms, 1e-3)
    knee = max(1, math.ceil(one.rate / one.tasks * one.best_latency_ms / 1000.0))
    if times >= SATURATED and knee < one.allowed:
        return Advice(
            Bound.REMOTE,
            f"A call takes {one.latency_ms:.1f} ms; it took {one.best_latency_ms:.1f} ms when "
            "fewer were in flight.",
            f"{knee} calls in flight per task give about 95 % of this; beyond that, calls only "
            f"wait, {times:.1f} times as long at {one.allowed:.0f}.",
            knee,
        )
    if one.allowed >= one.cap:
        more = max(1, one.cap * 2)
        return Advice(
            Bound.LIMIT,
            f"All {one.allowed:.0f} allowed calls are in flight and more rows are waiting.",
            f"As long as a call takes {one.latency_ms:.1f} ms, {more} in flight give up to "
            f"{one.rate * 2:,.0f} calls per second.",
            more,
        )
    return Advice(
        Bound.LIMIT,
        f"{one.allowed:.0f} calls are allowed, of at most {one.cap}: the limiter found no gain in "
        "more.",
        "It keeps trying one step up or down from time to time. No action is needed.",
        None,
    )


def failing(progress: Mapping[str, Any] | None) -> list[str]:
    """Return a sentence for each operator whose calls fail in the newest batch."""
    notes = []
    for one in operators([progress] if progress else []):
        if one.calls >= FEW and one.failed >= FAILING:
            after = "retries have succeeded so far"
            if one.dead_letters:
                after = f"{one.dead_letters:,} rows were given up as dead letters"
            notes.append(
                f"{one.failed:.0%} of the calls of {one.name!r} fail: {one.errors:,} of "
                f"{one.calls:,} in the newest batch, {one.timeouts:,} timed out; {after}."
            )
    return notes
