"""Async progress tracking: what is allowed, what its gaps mean, what a crash would replay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.checkpoints.logs import beyond, missing_batch, records_between, resumed_after
from queries.domain.definitions.parsing import parse_query
from queries.domain.definitions.spec import PythonQuery, SqlQuery
from queries.domain.sparks import SINK_NAMES, Spark
from queries.domain.triggers.async_progress import (
    REAL_TIME_DEFAULT,
    Tracking,
    async_problems,
    evolution_problems,
    left_to_preflight,
    rows_in_flight,
    stateful_because,
    switched,
    tracking,
)

ON = "asyncProgressTrackingEnabled"
EVERY = "asyncProgressTrackingCheckpointIntervalMs"
ENABLED, INTERVAL = f"sink.options.{ON}", f"sink.options.{EVERY}"
RATE = {"name": "ticks", "format": "rate"}
KAFKA = {
    "name": "flights",
    "format": "kafka",
    "options": {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights"},
}


def spec(text: str = "SELECT * FROM ticks", **changes: Any) -> dict[str, Any]:
    sink = {"format": "noop", "options": {ON: "true"}}
    return {"kind": "sql", "sources": [RATE], "sql": text, "sink": sink, **changes}


def real_time(text: str = "SELECT value FROM flights", **changes: Any) -> dict[str, Any]:
    trigger = {"kind": "real_time", "interval": "5 seconds"}
    return spec(text, **{"sources": [KAFKA], "sink": sink(), "trigger": trigger, **changes})


def python(**changes: Any) -> dict[str, Any]:
    sink = {"format": "noop", "options": {ON: "true"}}
    return {"kind": "python", "function": "jobs:build", "sink": sink, **changes}


def read(raw: dict[str, Any]) -> SqlQuery | PythonQuery:
    return parse_query(raw)


def said(raw: dict[str, Any]) -> dict[str, str]:
    return {one.field: f"{one.message} {one.way_out}" for one in async_problems(read(raw))}


def sink(**options: str) -> dict[str, Any]:
    return {"format": "noop", "options": options}


# --- allowed or refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        spec(),
        spec(sink=None),
        spec(sink=sink()),
        spec(sink=sink(**{ON: "FALSE"})),
        spec(sink=sink(**{ON.upper(): "True", EVERY.lower(): "0"})),
        spec(sink=sink(**{ON: "true", EVERY: str(2**63 - 1)})),
        spec(sink={"format": "kafka", "options": {ON: "true"}}),
        spec(trigger={"kind": "processing_time", "interval": "1 second"}),
        # real-time mode's own default interval is 0
        spec(sources=[KAFKA], trigger={"kind": "real_time", "interval": "5 seconds"}),
        spec("SELECT a.value FROM ticks a JOIN names n ON a.value = n.value",
             tables=[{"name": "names", "format": "parquet"}]),
        spec("SELECT * FROM ticks UNION ALL SELECT * FROM ticks"),
        spec("SELECT * FROM ticks JOIN (SELECT DISTINCT value v FROM names LIMIT 5) ON value = v",
             tables=[{"name": "names", "format": "parquet"}]),
        spec("SELECT SELECT FROM"),  # Spark is to judge what cannot be read
        python(),
    ],
)  # fmt: skip
def test_what_spark_lets_through_is_allowed(raw: dict[str, Any]) -> None:
    assert said(raw) == {}


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        (spec(sink=sink(**{ON: "yes"})), ENABLED, "neither true nor false"),
        (spec(sink=sink(**{ON: "true", EVERY: "1 second"})), INTERVAL, "number of milliseconds"),
        (spec(sink=sink(**{ON: "true", EVERY: "-1"})), INTERVAL, "number of milliseconds"),
        (spec(sink=sink(**{ON: "true", EVERY: "٣"})), INTERVAL, "number of milliseconds"),
        (spec(sink=sink(**{EVERY: str(2**63)})), INTERVAL, "number of milliseconds"),
        (spec(sink={"format": "parquet", "options": {ON: "true"}}), ENABLED, "parquet sink"),
        (spec(trigger={"kind": "once"}), ENABLED, "once trigger"),
        (spec(trigger={"kind": "available_now"}), ENABLED, "available_now trigger"),
        (
            spec(trigger={"kind": "continuous", "interval": "1 second"}),
            ENABLED,
            "silently ignored by Spark",
        ),
        (
            spec(
                sources=[KAFKA],
                trigger={"kind": "real_time", "interval": "5 seconds"},
                sink=sink(**{ON: "true", EVERY: "1000"}),
            ),
            INTERVAL,
            "must be 0 in real-time mode",
        ),
        (spec("SELECT count(*) FROM ticks GROUP BY value"), ENABLED, "this one aggregates"),
        (spec("SELECT DISTINCT value FROM ticks"), ENABLED, "this one removes duplicates"),
        (
            spec("SELECT value FROM ticks UNION SELECT value FROM ticks"),
            ENABLED,
            "this one removes duplicates",
        ),
        (spec("SELECT value FROM ticks LIMIT 10"), ENABLED, "this one has a LIMIT"),
        (
            spec(
                "SELECT a.value FROM ticks a JOIN tocks b ON a.value = b.value",
                sources=[RATE, {**RATE, "name": "tocks"}],
            ),
            ENABLED,
            "this one joins two streams",
        ),
        (spec(conf={SINK_NAMES: "true"}), ENABLED, "sink evolution"),
        (python(trigger={"kind": "once"}), ENABLED, "once trigger"),
    ],
)
def test_what_spark_refuses_or_ignores_is_refused_with_the_reason(
    raw: dict[str, Any], field: str, says: str
) -> None:
    assert says in said(raw).get(field, ""), said(raw)


@pytest.mark.parametrize(
    ("raw", "conf", "refused"),
    [
        (spec(), {}, False),
        (spec(), {SINK_NAMES: "true"}, True),
        (spec(conf={SINK_NAMES: "false"}), {SINK_NAMES: "true"}, False),
        (spec(sink=sink()), {SINK_NAMES: "true"}, False),
        (spec(sink=None), {SINK_NAMES: "true"}, False),
        (real_time(), {SINK_NAMES: "true"}, True),
        (real_time(sink=sink(asyncProgressTrackingEnabled="false")), {SINK_NAMES: "true"}, False),
        (spec(), {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}, False),
    ],
)
def test_the_application_may_turn_sink_evolution_on_too(
    raw: dict[str, Any], conf: dict[str, str], refused: bool
) -> None:
    assert bool(evolution_problems(read(raw), conf)) is refused


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (spec(), ""),
        (spec(sink=sink()), ""),
        (spec("SELECT count(*), f(value) FROM ticks GROUP BY value"), ""),  # is refused anyway
        (
            spec("SELECT my_mean(value) FROM ticks"),
            "A preflight will show whether my_mean aggregates",
        ),
        (spec("SELECT SELECT FROM"), "A preflight will show whether the text is stateful"),
        (python(), "A preflight will show whether the function builds a stateful query"),
        (
            python(sink=None),
            "A preflight will show whether the function keeps state, and whether the function's "
            "own sink",
        ),
        (python(sink=sink()), ""),
    ],
)
def test_what_only_a_plan_can_tell_is_said(raw: dict[str, Any], says: str) -> None:
    found = left_to_preflight(read(raw))
    assert found.startswith(says) if says else found == ""


def test_a_text_that_cannot_be_read_is_not_called_stateful() -> None:
    found = read(spec("SELECT SELECT FROM"))
    assert isinstance(found, SqlQuery)
    assert stateful_because(found) == ""


# --- what a definition says of it ---------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (spec(), Tracking(1000)),
        (spec(sink=None), None),
        (spec(sink=sink(**{ON: "false"})), None),
        (spec(sink=sink(**{ON.lower(): "TRUE", EVERY: "250"})), Tracking(250)),
        (spec(sink=sink(**{ON: "true", EVERY: "soon"})), Tracking(1000)),
        (spec(trigger={"kind": "real_time"}), Tracking(0)),
        ({"kind": "python"}, None),
        (spec(trigger=None), Tracking(1000)),
        (real_time(), Tracking(0, by_default=True)),
        (real_time(sink=sink(**{ON: "false"})), None),
        (real_time(sources=7), Tracking(0, by_default=True)),  # it cannot be read any more
        (real_time(conf={REAL_TIME_DEFAULT: "false"}), None),
        (real_time("SELECT count(*) FROM flights"), None),
        (python(sink=None, trigger={"kind": "real_time"}), Tracking(0, by_default=True)),
    ],
)
def test_how_often_offsets_are_kept_is_read_from_a_definition(
    raw: dict[str, Any], found: Tracking | None
) -> None:
    assert tracking(raw) == found


def test_the_application_may_turn_the_default_of_real_time_off() -> None:
    assert tracking(real_time(), {REAL_TIME_DEFAULT: "false"}) is None
    assert tracking(real_time(conf={REAL_TIME_DEFAULT: "true"}), {REAL_TIME_DEFAULT: "false"})


@pytest.mark.parametrize("spark", ["4.1", "4.2"])
def test_before_4_3_real_time_does_not_track_asynchronously_by_default(spark: Spark) -> None:
    assert tracking(real_time(), None, spark) is None


def test_in_real_time_off_is_said_in_words() -> None:
    off = switched(switched(real_time(), 0), None)
    assert off["sink"]["options"] == {ON: "false"}
    assert tracking(off) is None


def test_switching_replaces_its_two_options_and_nothing_else() -> None:
    raw = spec(sink={"format": "kafka", "options": {ON.upper(): "true", "topic": "out"}})
    every = switched(raw, 0)
    assert every["sink"] == {"format": "kafka", "options": {"topic": "out", ON: "true", EVERY: "0"}}
    assert {**every, "sink": None} == {**raw, "sink": None}
    assert switched(every, None)["sink"]["options"] == {"topic": "out"}
    assert tracking(switched(raw, 500)) == Tracking(500)
    assert switched({"kind": "sql"}, None)["sink"] == {"options": {}}


# --- what lies on disk --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begun", "missing"),
    [
        ([], None),
        ([0], None),
        ([0, 1], None),
        ([59, 74, 86, 98, 112], 111),
        ([98, 111, 112], None),
        ([112], 111),
        ([1], 0),
    ],
)
def test_the_batch_before_the_newest_is_the_one_that_spark_asks_for(
    begun: list[int], missing: int | None
) -> None:
    assert missing_batch(begun) == missing


@pytest.mark.parametrize(
    ("begun", "committed", "in_gaps", "plain"),
    [
        ([], [], None, None),
        ([0], [], None, None),
        ([0], [0], 0, 0),
        ([98, 112], [98, 112], 112, 112),
        ([98, 112], [98], 98, 111),
        ([112], [98], None, 111),
        ([111, 112], [111], 111, 111),
    ],
)
def test_a_start_goes_on_after_the_last_batch_that_is_kept_and_committed(
    begun: list[int], committed: list[int], in_gaps: int | None, plain: int | None
) -> None:
    assert resumed_after(begun, committed) == in_gaps
    assert resumed_after(begun, committed, in_gaps=False) == plain


@given(st.sets(st.integers(0, 60), max_size=20), st.integers(0, 60))
def test_where_spark_misses_nothing_both_ways_go_on_from_the_same_batch(
    batches: set[int], newest: int
) -> None:
    begun = sorted(batch for batch in batches if batch <= newest)
    if missing_batch(begun) is None:
        assert resumed_after(begun, []) == resumed_after(begun, [], in_gaps=False)


# --- what lies between two offsets ----------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "records"),
    [
        (10, 25, 15),
        (25, 10, 0),
        (True, 25, None),
        (None, {"t": {"0": 5}}, None),
        ({"t": {"0": 5}}, None, None),
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 7}}, 4),
        ({"t": {"0": 5}}, {"t": {"0": 5}, "u": {"0": 3}}, 3),
        ({"t": {"0": 9}}, {"t": {"0": 5}}, 0),
        ({"t": 5}, {"t": {"0": 5}}, None),
        ({"logOffset": 3}, {"logOffset": 5}, None),
        ({"t": {"0": "x"}}, {"t": {"0": 5}}, None),
        ({"t": {"0": 5}}, {"t": {"0": "x"}}, None),
        ("a", "b", None),
    ],
)
def test_records_between_two_offsets_are_counted_where_they_can_be(
    start: Any, end: Any, records: int | None
) -> None:
    assert records_between(start, end) == records


@pytest.mark.parametrize(
    ("end", "start", "behind"),
    [
        (25, 10, True),
        (10, 10, False),
        ({"t": {"0": 5}}, {"t": {"0": 5}}, False),
        ({"t": {"0": 6}}, {"t": {"0": 5}}, True),
        ({"logOffset": 5}, {"logOffset": 3}, True),
        ({"logOffset": 3}, {"logOffset": 3}, False),
    ],
)
def test_an_offset_is_behind_another_in_any_partition(end: Any, start: Any, behind: bool) -> None:
    assert beyond(end, start) is behind


@pytest.mark.parametrize(
    ("begin", "end", "recent", "exact", "rows"),
    [
        ([10], [35], [], True, 25),  # its offsets are in the log
        ([{"t": {"0": 5}}, 1], [{"t": {"0": 9}}, 2], [], True, 5),
        (["a"], ["b"], [7], True, None),
        ([], [], [7], True, None),
        ([10], None, [7, 250, 3], False, 250),  # as the largest before it
        ([10], [100], [7, 250, 3], False, 90),  # no more than was read again
        ([10], [1000], [7, 250, 3], False, 250),
        (["a"], ["b"], [7, 250, 3], False, 250),
        ([10], [100], [], False, None),
    ],
)
def test_the_batch_in_flight_counts_with_what_it_may_have_written(
    begin: list[Any], end: list[Any] | None, recent: list[int], exact: bool, rows: int | None
) -> None:
    assert rows_in_flight(begin, end, recent, exact=exact) == rows
