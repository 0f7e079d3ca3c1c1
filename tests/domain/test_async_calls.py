"""What is said of async operators, from the figures of their batches."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.async_calls import Bound, advise, failing, named, operators


def figures(**changed: Any) -> dict[str, Any]:
    """Return a batch's figures: one task, a second, 10,000 calls of 6.4 ms, all 64 in flight."""
    return {
        "calls": 10_000.0,
        "retries": 0.0,
        "errors": 0.0,
        "timeouts": 0.0,
        "dead_letters": 0.0,
        "busy_ms": 64_000.0,
        "wall_ms": 1000.0,
        "cpu_ms": 400.0,
        "allowed": 640_000.0,
        "held_by_limit": 9_000.0,
        "held_by_keys": 500.0,
        "held_by_source": 500.0,
        "held_by_pace": 0.0,
        "keys": 30_000_000.0,
        "tasks": 1.0,
        "opened": 0.0,
        "latency_ms": [6.0, 8.0, 9.0],
        "waited_ms": [0.0, 1.0, 2.0],
        "cap": 64,
        **changed,
    }


def progress(**changed: Any) -> dict[str, Any]:
    return {"observedMetrics": {"headgate_async:planes": figures(**changed)}}


def test_operators_are_named_without_the_prefix_and_others_observations_are_left_alone() -> None:
    observed = {"headgate_async:b": {}, "headgate_async:a": {}, "mine": {"rows": 1}}
    assert named({"observedMetrics": observed}) == ["a", "b"]
    assert named({}) == named(None) == []


def test_figures_are_added_up_over_batches_and_rates_are_of_tasks_side_by_side() -> None:
    (one,) = operators([progress(), progress(wall_ms=3000.0, busy_ms=64_000.0)])
    assert (one.name, one.batches, one.calls) == ("planes", 2, 20_000)
    assert one.latency_ms == pytest.approx(6.4)
    assert one.used == pytest.approx(32)
    assert one.rate == pytest.approx(5000)
    assert one.possible == pytest.approx(10_000)
    assert one.percentiles_ms == (6.0, 8.0, 9.0)
    (two,) = operators([progress(tasks=2.0, wall_ms=2000.0)])
    assert two.rate == pytest.approx(10_000)
    assert two.used == pytest.approx(32)


def test_batches_without_calls_say_nothing() -> None:
    silent = {"observedMetrics": {"headgate_async:planes": None}}
    assert operators([silent, progress(calls=0), {}]) == []
    (one,) = operators([progress(latency_ms=None, waited_ms=[1])])
    assert one.percentiles_ms == one.waited_ms == (0.0, 0.0, 0.0)


def test_only_recent_batches_make_the_figures_and_all_the_best_latency() -> None:
    slow = [progress(busy_ms=128_000.0)] * 10
    (one,) = operators([*slow, progress(busy_ms=20_000.0)])
    assert one.latency_ms == pytest.approx(12.8)
    assert one.best_latency_ms == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("changed", "bound", "number", "words"),
    [
        ({"cpu_ms": 900.0}, Bound.CPU, None, "90% of a core for 10,000 calls per second"),
        ({"held_by_pace": 9000.0}, Bound.PACE, None, "90% of the calls waited"),
        (
            {"held_by_limit": 0.0, "held_by_keys": 9000.0, "keys": 200_000.0},
            Bound.KEYS,
            20,
            "At most 20 calls",
        ),
        ({"held_by_limit": 0.0, "held_by_source": 9000.0}, Bound.SOURCE, None, "keep up"),
        ({}, Bound.LIMIT, 128, "allowing 128 calls in flight gives up to 20,000 calls per second"),
        ({"cap": 256}, Bound.LIMIT, None, "of at most 256"),
    ],
)
def test_what_bounds_an_operator_is_named_with_its_number(
    changed: dict[str, Any], bound: Bound, number: int | None, words: str
) -> None:
    advice = advise(operators([progress(**changed)])[0])
    assert (advice.bound, advice.number) == (bound, number)
    assert words in f"{advice.evidence} {advice.advice}"


def test_a_saturated_remote_is_told_by_the_latency_it_had_before() -> None:
    before = progress(busy_ms=20_000.0)  # 2 ms
    advice = advise(operators([*[progress()] * 10, before])[0])
    assert advice.bound is Bound.REMOTE
    assert advice.number == 20  # 10,000 calls a second x 2 ms
    assert "20 calls in flight per task give about 95 % of this" in advice.advice
    assert "6.4 ms; it took 2.0 ms" in advice.evidence


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"errors": 2000.0, "timeouts": 5.0}, "20% of the calls of 'planes' fail: 2,000 of 10,000"),
        ({"errors": 2000.0}, "retries have succeeded so far"),
        ({"errors": 2000.0, "dead_letters": 7.0}, "7 rows became dead letters"),
        ({"errors": 499.0}, ""),
        ({"errors": 10.0, "calls": 19.0}, ""),
    ],
)
def test_an_operator_whose_calls_fail_has_a_sentence(changed: dict[str, Any], words: str) -> None:
    notes = failing(progress(**changed))
    assert bool(notes) == bool(words)
    assert words in "".join(notes)


def test_nothing_is_said_where_nothing_came() -> None:
    assert failing(None) == failing({}) == []


numbers = st.floats(0, 1e9)


@given(
    st.fixed_dictionaries(
        dict.fromkeys(
            ("errors", "busy_ms", "wall_ms", "cpu_ms", "allowed", "keys", "tasks"), numbers
        )
        | {
            name: st.floats(0, 1e6)
            for name in ("held_by_limit", "held_by_keys", "held_by_source", "held_by_pace")
        }
        | {"calls": st.floats(1, 1e6), "cap": st.integers(0, 1000)}
    )
)
def test_whatever_the_figures_are_there_is_advice(drawn: dict[str, Any]) -> None:
    (one,) = operators([progress(**drawn)])
    advice = advise(one)
    assert advice.evidence
    assert advice.advice
    assert advice.number is None or advice.number >= 1
    assert one.possible >= 0
    failing(progress(**drawn))


def test_figures_say_when_their_newest_batch_began() -> None:
    newest, older = progress(), progress()
    newest["timestamp"] = "2026-03-02T12:00:05.000Z"
    older["timestamp"] = "2026-03-02T12:00:00.000Z"
    (one,) = operators([newest, older])
    assert one.until == datetime(2026, 3, 2, 12, 0, 5, tzinfo=UTC)
    for odd in ("soon", None, 7):
        (one,) = operators([{**newest, "timestamp": odd}])
        assert one.until is None
