"""Advice comes from measured batches, says what it does not know, and suggests nothing refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.parsing import parse_query
from queries.domain.triggers.advice import BatchSeen, TriggerAdvice, advise, rate_of, real_time_of
from queries.domain.triggers.async_progress import has_async_progress
from queries.domain.triggers.batch_cost import LogFiles
from queries.domain.triggers.cores import Ground
from queries.domain.triggers.limits import Suitability, refusals
from tests.domain.triggers.test_limits import COUNTS, TEXTS, kafka
from tests.domain.validation.test_query_rules import KAFKA, TO_FILES, TO_KAFKA, python

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROOM = Ground(cores=8, partitions={"ticks": 2, "more": 2}, shuffle_partitions=2)


def seen(
    *,
    every_s: float,
    rate: float = 1000,
    fixed: float = 150,
    per_row: float = 0.1,
    logs: float = 10,
    count: int = 40,
    vary: float = 0.6,
) -> list[BatchSeen]:
    """Return batches at a rate that swings, so that fixed cost and cost per row can be told."""
    found = []
    for number in range(count):
        rows = round(rate * every_s * (1 + vary * ((number % 5) - 2) / 2))
        found.append(
            BatchSeen(
                at=AT + timedelta(seconds=every_s * number),
                rows=rows,
                trigger_ms=fixed + per_row * rows + (9000 if number == 0 else 0),
                logs_ms=logs,
                first=number == 0,
            )
        )
    return found


def every(interval: str, **changes: Any) -> dict[str, Any]:
    return kafka(trigger={"kind": "processing_time", "interval": interval}, **changes)


def advice(raw: dict[str, Any], batches: list[BatchSeen], ground: Ground = ROOM) -> TriggerAdvice:
    return advise(parse_query(raw), ground, batches)


def keys(found: TriggerAdvice) -> dict[str, Any]:
    return {one.key: one for one in found.suggestions}


def test_what_a_batch_costs_and_where_it_stands_are_told() -> None:
    found = advice(every("10 seconds"), seen(every_s=10))
    assert found.untold == ""
    assert found.cost is not None
    assert found.cost.line.fixed_ms == pytest.approx(150, rel=0.01)
    assert found.cost.line.per_row_ms == pytest.approx(0.1, rel=0.01)
    assert found.rate == pytest.approx(1000, rel=0.05)
    assert found.now is not None
    assert found.now.latency_ms == pytest.approx(5000 + 150 + 1000, rel=0.05)
    assert found.now in found.curve
    assert len(found.limits) == 7
    assert found.batches == 39  # the first of the run is none


def test_a_short_wait_is_suggested_with_its_price() -> None:
    raw = every("10 seconds")
    one = keys(advice(raw, seen(every_s=10)))["interval"]
    assert one.title == "A shorter interval: 500 milliseconds"
    assert "instead of 6.1" in one.brings
    assert "batches per hour become 7,200" in one.costs
    assert one.spec["trigger"] == {"kind": "processing_time", "interval": "500 milliseconds"}
    assert {**one.spec, "trigger": 0} == {
        **parse_query(raw).model_dump(mode="json", by_alias=True),
        "trigger": 0,
    }


def test_a_choice_stands_for_the_change_that_was_shown() -> None:
    """Its words may change with the batches; a definition saved since is another choice."""
    shown = keys(advice(every("10 seconds"), seen(every_s=10)))["interval"]
    again = keys(advice(every("10 seconds"), seen(every_s=10.2)))["interval"]
    assert shown.choice == again.choice
    assert shown.choice.startswith("interval-")
    other = every("10 seconds", description="saved since")
    since = keys(advice(other, seen(every_s=10)))["interval"]
    assert shown.choice != since.choice


def test_a_driver_that_is_never_at_rest_is_told_of_a_longer_interval() -> None:
    one = keys(advice(every("0 seconds"), seen(every_s=0.25, vary=0.9)))["interval"]
    assert one.title == "A longer interval: 500 milliseconds"
    assert "from 100% to" in one.brings
    assert "A row waits longer: from" in one.costs


def test_an_interval_that_is_right_is_left_alone() -> None:
    assert "interval" not in keys(advice(every("500 milliseconds"), seen(every_s=0.5)))
    shortest = seen(every_s=0.1, fixed=10, per_row=0.01)
    assert "interval" not in keys(advice(every("100 milliseconds"), shortest))


def test_room_that_only_the_band_doubts_is_room() -> None:
    wavering = [
        BatchSeen(one.at, one.rows, one.trigger_ms + (number * 37) % 60, 1, one.first)
        for number, one in enumerate(seen(every_s=0.4, fixed=120))
    ]
    found = advice(every("400 milliseconds"), wavering)
    assert found.now is not None
    assert found.now.busy is not None
    assert 0.4 < found.now.busy <= 0.5
    assert "interval" not in keys(found)


def test_batches_without_a_fixed_cost_are_unlimited() -> None:
    found = advice(every("0 seconds"), seen(every_s=1, fixed=0))
    assert "unlimited batches per hour become" in keys(found)["interval"].brings


def test_what_lies_within_the_error_is_not_promised() -> None:
    noisy = [
        BatchSeen(one.at, one.rows, 100 + (number * 7919) % 500, one.logs_ms, one.first)
        for number, one in enumerate(seen(every_s=1.2))
    ]
    found = advice(every("1200 milliseconds"), noisy)
    assert found.cost is not None
    assert "interval" not in keys(found)


def test_a_query_that_falls_behind_is_told_so() -> None:
    late = advice(every("100 milliseconds"), seen(every_s=0.2, rate=1000))
    assert "longer than the interval: 16" in late.overload
    assert "instead of 100 ms" in late.overload
    assert "A longer interval" in keys(late)["interval"].title
    lost = advice(every("1 second"), seen(every_s=1, rate=9900, per_row=0.2))
    assert "No interval keeps up" in lost.overload
    assert "interval" not in keys(lost)
    assert "real_time" not in keys(lost)


def test_async_progress_is_suggested_even_if_the_cost_of_rows_is_unknown() -> None:
    found = advice(every("1 second"), seen(every_s=1, logs=90, vary=0))
    assert found.untold
    assert list(keys(found)) == ["async_progress"]
    assert "takes 90 ms less" in keys(found)["async_progress"].brings
    assert keys(advice(every("1 second"), seen(every_s=1, logs=10, vary=0))) == {}


def test_the_log_entries_of_a_checkpoint_on_a_storage_are_told_with_its_own_figures() -> None:
    raw, files = parse_query(every("1 second")), LogFiles(on_s3=True, manager="", fenced=True)
    for vary in (0.6, 0):
        batches = seen(every_s=1, logs=90, vary=vary)
        assert "take 90 ms, 9% of the time" in advise(raw, ROOM, batches, files).log_cost
        assert advise(raw, ROOM, batches).log_cost == ""
    assert advise(raw, ROOM, [], files).log_cost == ""


def test_the_checkpoint_tax_is_the_share_of_the_logs() -> None:
    found = advice(every("1 second"), seen(every_s=1, logs=90))
    assert found.tax == pytest.approx(0.36, rel=0.02)
    one = keys(found)["async_progress"]
    assert "36% of its time; a row takes" in one.brings
    assert "a crash replays" in one.costs
    assert has_async_progress(parse_query(one.spec))
    slow = advice(every("1 second"), seen(every_s=1, logs=5000))
    assert "a row takes" not in keys(slow)["async_progress"].brings
    assert "async_progress" not in keys(advice(every("1 second"), seen(every_s=1, logs=20)))


@pytest.mark.parametrize(
    "raw",
    [
        every("1 second", sink=TO_FILES),
        every("1 second", text=COUNTS),
        every(
            "1 second",
            sink={
                **TO_KAFKA,
                "options": {**TO_KAFKA["options"], "asyncProgressTrackingEnabled": "true"},
            },
        ),
        python(trigger={"kind": "processing_time", "interval": "1 second"}),
    ],
)
def test_async_progress_is_suggested_only_where_it_is_not_and_may_be(raw: dict[str, Any]) -> None:
    assert "async_progress" not in keys(advice(raw, seen(every_s=1, logs=90)))


def test_a_python_function_with_a_sink_may_try_async_progress_with_a_doubt() -> None:
    raw = python(trigger={"kind": "processing_time", "interval": "1 second"}, sink=TO_KAFKA)
    found = keys(advice(raw, seen(every_s=1, logs=90)))
    assert "Only Spark can tell" in found["async_progress"].doubts[0]
    assert "real_time" not in found


def test_real_time_is_suggested_whole() -> None:
    limited = {**KAFKA, "options": {**KAFKA["options"], "maxOffsetsPerTrigger": "100"}}
    raw = every(
        "1 second", sources=[limited], tables=[], sink={**TO_KAFKA, "output_mode": "append"}
    )
    one = keys(advice(raw, seen(every_s=1)))["real_time"]
    changed = parse_query(one.spec)
    assert changed.sink is not None
    assert (changed.trigger.kind, changed.sink.output_mode) == ("real_time", "update")
    assert "maxOffsetsPerTrigger" not in one.spec["sources"][0]["options"]
    assert refusals(changed, ROOM) == []
    assert one.doubts == ()
    unknown = keys(advice(raw, seen(every_s=1), Ground(cores=8)))["real_time"]
    assert "the partitions of ticks are unknown" in unknown.doubts[0]


@pytest.mark.parametrize(
    ("raw", "ground"),
    [
        (every("1 second"), Ground(cores=3, partitions={"ticks": 2, "more": 2})),
        (every("1 second", text=COUNTS), ROOM),
        (every("1 second", text="SELECT key FROM ticks LIMIT 3"), ROOM),
        (every("1 second", sink=TO_FILES), ROOM),
        (every("1 second", sink={**TO_KAFKA, "output_mode": "complete"}), ROOM),
    ],
)
def test_real_time_is_not_suggested_where_it_cannot_be(raw: dict[str, Any], ground: Ground) -> None:
    assert "real_time" not in keys(advice(raw, seen(every_s=1), ground))


def test_one_with_async_progress_is_not_sent_to_real_time() -> None:
    options = {**TO_KAFKA["options"], "asyncProgressTrackingEnabled": "true"}
    assert real_time_of(parse_query(kafka(sink={**TO_KAFKA, "options": options}))) is None


@pytest.mark.parametrize(
    ("raw", "batches", "says"),
    [
        (every("1 second"), [], "0 batches with rows are known; at least 12"),
        (every("1 second"), seen(every_s=1, vary=0), "too similar"),
        (
            every("1 second"),
            [BatchSeen(AT, 100 * n, 10.0 * n, 1) for n in range(1, 40)],
            "too close together",
        ),
        (kafka(trigger={"kind": "once"}), seen(every_s=1), "ends on its own"),
        (kafka(trigger={"kind": "available_now"}), seen(every_s=1), "ends on its own"),
        (
            kafka(trigger={"kind": "continuous", "interval": "1 second"}),
            seen(every_s=1),
            "no batches",
        ),
        (
            kafka(trigger={"kind": "real_time", "interval": "5 seconds"}),
            seen(every_s=5),
            "has a fixed length",
        ),
    ],
)
def test_where_nothing_can_be_told_it_says_so(
    raw: dict[str, Any], batches: list[BatchSeen], says: str
) -> None:
    found = advice(raw, batches)
    assert says in found.untold
    assert (found.cost, found.now, found.curve, found.suggestions) == (None, None, (), ())
    assert len(found.limits) == 7


def test_the_rate_is_that_of_the_newest_run() -> None:
    old = seen(every_s=1, rate=9000, count=10)
    new = [
        BatchSeen(one.at + timedelta(hours=1), one.rows, one.trigger_ms, 1, one.first)
        for one in seen(every_s=1, rate=100, vary=0, count=10)
    ]
    assert rate_of(old + new) == pytest.approx(100)
    assert rate_of(new[1:]) == pytest.approx(100)
    assert rate_of(new[:1]) is None
    assert rate_of([BatchSeen(AT + timedelta(seconds=n), 0, 5, 1) for n in range(5)]) is None


@given(
    st.sampled_from([text for text, _, _ in TEXTS]),
    st.sampled_from(["0 seconds", "200 milliseconds", "1 second", "10 seconds", "5 minutes"]),
    st.sampled_from([TO_KAFKA, {**TO_KAFKA, "output_mode": "append"}, TO_FILES]),
    st.integers(1, 6),
    st.floats(10, 5000),
    st.floats(0, 500),
    st.floats(0.001, 0.5),
)
def test_nothing_is_suggested_that_would_be_refused(
    text: str,
    interval: str,
    sink: dict[str, Any],
    cores: int,
    rate: float,
    logs: float,
    per_row: float,
) -> None:
    raw = every(interval, text=text, sink=sink)
    ground = Ground(cores=cores, partitions={"ticks": 2, "more": 2}, shuffle_partitions=2)
    found = advice(raw, seen(every_s=2, rate=rate, logs=logs, per_row=per_row), ground)
    before = {each.message for each in refusals(parse_query(raw), ground)}
    for one in found.suggestions:
        after = refusals(parse_query(one.spec), ground)
        assert {each.message for each in after} <= before
        assert one.brings
        assert one.costs
        if one.key == "real_time" and not one.doubts:
            limit = next(each for each in advice(one.spec, []).limits if each.key == "real_time")
            assert limit.standing is not Suitability.REFUSED
