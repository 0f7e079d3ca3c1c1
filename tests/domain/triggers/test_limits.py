"""Each way to be triggered says to a query: allowed, refused with the reason, or try it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.parsing import parse_query
from queries.domain.triggers.async_progress import has_async_progress
from queries.domain.triggers.cores import Ground
from queries.domain.triggers.limits import (
    Suitability,
    TriggerFit,
    doubts,
    limits,
    refusals,
    with_async_progress,
)
from tests.domain.validation.test_query_rules import (
    KAFKA,
    RATE,
    TO_FILES,
    TO_KAFKA,
    found,
    python,
    said,
    sql,
)

CONTINUOUS = {"kind": "continuous", "interval": "1 second"}
REAL_TIME = {"kind": "real_time", "interval": "5 seconds"}
ENOUGH = Ground(cores=4, partitions={"ticks": 2, "more": 2}, shuffle_partitions=2)
ALL = {
    "processing_time",
    "as_fast_as_possible",
    "available_now",
    "once",
    "async_progress",
    "continuous",
    "real_time",
}
COUNTS = "SELECT key, count(*) AS value FROM ticks GROUP BY key"


def kafka(text: str = "SELECT key, value FROM ticks", **changes: Any) -> dict[str, Any]:
    return sql(
        **{
            "sources": [KAFKA, {**KAFKA, "name": "more"}],
            "tables": [
                {"name": "names", "format": "csv", "options": {"path": "/n"}, "schema": "k INT"}
            ],
            "sink": TO_KAFKA,
            "sql": text,
            **changes,
        }
    )


def told(raw: dict[str, Any], ground: Ground = ENOUGH) -> dict[str, TriggerFit]:
    return {limit.key: limit for limit in limits(parse_query(raw), ground)}


def test_a_map_like_kafka_query_may_be_triggered_in_all_seven_ways() -> None:
    found = told(kafka())
    assert set(found) == ALL
    assert {each.standing for each in found.values()} == {Suitability.ALLOWED}
    assert [each.key for each in found.values() if each.chosen] == ["as_fast_as_possible"]


#: Tried with Spark 4.3 on a broker: whether each text runs, continuous and in real time.
#: tests/kafka/test_trigger_limits_hold.py tries them again.
TEXTS = [
    ("SELECT key, upper(CAST(value AS STRING)) AS value FROM ticks", True, True),
    ("SELECT key, value FROM (SELECT * FROM ticks) x", True, True),
    ("SELECT key, (SELECT max(k) FROM names) AS value FROM ticks", True, True),
    ("WITH c AS (SELECT key, value FROM ticks) SELECT * FROM c", False, True),
    (COUNTS, False, None),
    ("SELECT DISTINCT key, value FROM ticks", False, None),
    ("SELECT key, value FROM ticks LIMIT 5", False, False),
    ("SELECT ticks.key, more.value FROM ticks JOIN more ON ticks.key = more.key", False, False),
    ("SELECT key, k AS value FROM ticks JOIN names ON key = k", False, None),
    ("SELECT key, value FROM ticks WHERE key IN (SELECT k FROM names)", False, None),
    ("SELECT key, value FROM ticks UNION ALL SELECT key, value FROM more", False, True),
    ("SELECT key, value FROM ticks UNION ALL SELECT value, key FROM ticks", False, False),
    ("SELECT key, value FROM ticks UNION ALL SELECT DISTINCT key, value FROM more", False, None),
    ("SELECT key, CAST(now() AS STRING) AS value FROM ticks", False, True),
    ("SELECT key, explode(array(key, value)) AS value FROM ticks", False, True),
    ("SELECT key, value FROM ticks DISTRIBUTE BY key", False, True),
    ("SELECT /*+ REPARTITION(2) */ key, value FROM ticks", False, True),
    ("SELECT key, mine(value) AS value FROM ticks", None, None),
    (
        "SELECT key, value FROM ticks WATERMARK timestamp DELAY OF INTERVAL 5 SECONDS",
        None,
        None,
    ),
    (
        "SELECT CAST(window(timestamp, '1 s').start AS STRING) AS value, count(*) AS n FROM ticks "
        "GROUP BY window(timestamp, '1 s')",
        False,
        None,
    ),
]
_STANDINGS = {True: Suitability.ALLOWED, False: Suitability.REFUSED, None: Suitability.PREFLIGHT}


@pytest.mark.parametrize(("text", "continuous", "real_time"), TEXTS)
def test_what_a_text_asks_for_decides(
    text: str, continuous: bool | None, real_time: bool | None
) -> None:
    ground = Ground(cores=6, partitions=ENOUGH.partitions, shuffle_partitions=2)
    found = told(kafka(text), ground)
    assert found["continuous"].standing is _STANDINGS[continuous], found["continuous"]
    assert found["real_time"].standing is _STANDINGS[real_time], found["real_time"]


@pytest.mark.parametrize(
    ("raw", "key", "standing", "says"),
    [
        (kafka(COUNTS), "continuous", Suitability.REFUSED, "the text aggregates"),
        (kafka(COUNTS), "async_progress", Suitability.REFUSED, "stateful"),
        (
            kafka(sink=TO_FILES),
            "real_time",
            Suitability.REFUSED,
            "A parquet sink cannot be written",
        ),
        (kafka(sink=TO_FILES), "async_progress", Suitability.REFUSED, "parquet sink"),
        (
            kafka(sink={**TO_KAFKA, "output_mode": "append"}),
            "real_time",
            Suitability.REFUSED,
            "Output mode append is not supported in real-time mode",
        ),
        (
            kafka(
                sources=[{**KAFKA, "options": {**KAFKA["options"], "maxOffsetsPerTrigger": "5"}}]
            ),
            "real_time",
            Suitability.REFUSED,
            "maxOffsetsPerTrigger = 5 is not supported in real-time mode",
        ),
        (sql(), "real_time", Suitability.REFUSED, "A rate source cannot be read"),
        (
            kafka(trigger=CONTINUOUS),
            "continuous",
            Suitability.REFUSED,
            "needs one core per source partition",
        ),
        (python(), "continuous", Suitability.PREFLIGHT, "built by a Python function"),
        (
            python(),
            "real_time",
            Suitability.PREFLIGHT,
            "the number of partitions that its function reads",
        ),
        (python(), "async_progress", Suitability.PREFLIGHT, "A preflight will show"),
        (python(), "processing_time", Suitability.ALLOWED, ""),
        (
            kafka("SELECT key, value FROM ticks UNION ALL SELECT DISTINCT key, value FROM more"),
            "real_time",
            Suitability.PREFLIGHT,
            "State before a union",
        ),
        (
            kafka("SELECT key, k AS value FROM ticks JOIN names ON key = k"),
            "real_time",
            Suitability.PREFLIGHT,
            "small enough",
        ),
        (
            kafka("SELECT mine(key) FROM ticks"),
            "continuous",
            Suitability.PREFLIGHT,
            "The effect of mine",
        ),
        (
            kafka("SELECT ~~ FROM"),
            "real_time",
            Suitability.PREFLIGHT,
            "Only Spark can parse its SQL",
        ),
    ],
)
def test_the_reason_is_said_in_plain_words(
    raw: dict[str, Any], key: str, standing: Suitability, says: str
) -> None:
    ground = Ground(
        cores=2 if says.startswith("needs") else 6,
        partitions=ENOUGH.partitions,
        shuffle_partitions=2,
    )
    limit = told(raw, ground)[key]
    assert limit.standing is standing, limit
    assert says in " ".join(limit.reasons)


def test_what_is_wrong_whichever_way_it_is_triggered_is_no_trigger_s_fault() -> None:
    lost = kafka("SELECT key FROM nowhere", sink={**TO_KAFKA, "output_mode": "append"})
    assert told(lost)["once"].standing is Suitability.ALLOWED
    assert "nowhere" in said(found(lost))["sql"]


@pytest.mark.parametrize(
    ("raw", "chosen"),
    [
        (kafka(trigger={"kind": "processing_time", "interval": "3 seconds"}), "processing_time"),
        (kafka(trigger={"kind": "processing_time", "interval": "0 seconds"}), None),
        (kafka(trigger=REAL_TIME), "real_time"),
        (kafka(trigger=CONTINUOUS), "continuous"),
        (kafka(trigger={"kind": "once"}), "once"),
        (
            kafka(
                sink={
                    **TO_KAFKA,
                    "options": {**TO_KAFKA["options"], "ASYNCprogressTRACKINGenabled": "TRUE"},
                }
            ),
            "async_progress",
        ),
    ],
)
def test_the_way_that_the_definition_has_is_marked(raw: dict[str, Any], chosen: str | None) -> None:
    marked = [key for key, limit in told(raw).items() if limit.chosen]
    assert marked == [chosen or "as_fast_as_possible"]


def test_async_progress_is_turned_on_once_and_only_where_there_is_a_sink() -> None:
    spec = parse_query(kafka())
    once = with_async_progress(spec)
    assert has_async_progress(once)
    assert not has_async_progress(spec)
    assert with_async_progress(once) == once
    assert with_async_progress(parse_query(python())) == parse_query(python())
    assert not has_async_progress(parse_query(python()))


@given(
    st.sampled_from([text for text, _, _ in TEXTS]),
    st.sampled_from([CONTINUOUS, REAL_TIME]),
    st.integers(1, 8),
    st.integers(1, 8),
)
def test_what_is_called_allowed_is_never_refused_when_saved(
    text: str, trigger: dict[str, Any], cores: int, partitions: int
) -> None:
    ground = Ground(cores=cores, partitions={"ticks": partitions, "more": 1}, shuffle_partitions=2)
    limit = told(kafka(text), ground)[trigger["kind"]]
    chosen = parse_query(kafka(text, trigger=trigger))
    assert (limit.standing is Suitability.REFUSED) is bool(refusals(chosen, ground))
    if limit.standing is Suitability.ALLOWED:
        assert doubts(chosen, ground) == []


def test_a_watermark_is_refused_under_continuous_even_where_the_text_cannot_be_read() -> None:
    marked = {**KAFKA, "watermark": {"column": "timestamp", "delay": "1 second"}}
    raw = kafka("SELECT ~~ FROM", sources=[marked], trigger=CONTINUOUS)
    assert "has a watermark" in said(found(raw))["trigger.kind"]


def test_rate_queries_may_run_continuously() -> None:
    raw = sql(sources=[{**RATE, "options": {"numPartitions": 2}}], trigger=CONTINUOUS)
    assert told(raw, Ground(cores=2))["continuous"].standing is Suitability.ALLOWED
