"""What is certainly wrong with a SQL text is said before Spark is started; nothing else is."""

from typing import Any

import pytest

from tests.domain.validation.test_query_rules import KAFKA, TO_KAFKA, found, said, sql

WINDOWS = "SELECT window(timestamp, '1 hour') w, count(*) c FROM ticks GROUP BY 1"
WATERMARK = {"column": "timestamp", "delay": "10 minutes"}
NAMES = {"name": "names", "format": "csv", "options": {"path": "/data/names"}}


def rate(text: str, mode: str = "append", **changes: Any) -> dict[str, Any]:
    sink = {"format": "noop", "output_mode": mode, **changes.pop("sink", {})}
    source = {"name": "ticks", "format": "rate", "watermark": changes.pop("watermark", None)}
    return sql(sources=[source], tables=[NAMES], sql=text, sink=sink, **changes)


@pytest.mark.parametrize(
    "raw",
    [
        rate("SELECT value FROM ticks"),
        rate("SELECT /*+ COALESCE(1) */ t.value FROM ticks AS t"),
        rate("WITH a AS (SELECT value FROM ticks) SELECT * FROM a"),
        rate("SELECT * FROM (SELECT value FROM Ticks) x"),
        rate(WINDOWS, "update"),
        rate(WINDOWS, "complete"),
        rate(WINDOWS, watermark=WATERMARK),
        rate("SELECT count(*) c FROM ticks WATERMARK timestamp DELAY OF INTERVAL 5 SECONDS"),
        rate("SELECT value FROM ticks WHERE value > (SELECT max(id) FROM names)"),
        rate("SELECT t.value FROM ticks t JOIN (SELECT max(id) m FROM names) n ON t.value = n.m"),
        rate("SELECT value, my_own_aggregate(value) FROM ticks", "complete"),
        rate("SELECT DISTINCT value FROM ticks", "complete"),
        rate("SELECT value, count(*) c FROM ticks GROUP BY value ORDER BY c", "complete"),
        rate("SELECT value FROM ticks UNION ALL SELECT value FROM ticks"),
        rate("SELECT * FROM ticks LATERAL VIEW explode(array(1, 2)) e AS x"),
        rate("SELECT value FROM ticks CROSS JOIN range(3)"),
        rate("SELECT value FROM ticks CROSS JOIN global_temp.other"),
        rate("SELECT value FROM ticks |> WHERE value > 1"),
        rate("SELEC value FRM ticks"),
        rate("SELECT count(*) FROM ticks ~ what is this"),
        rate("SELECT 'never closed FROM ticks"),
        rate("-- nothing but a comment"),
        rate("SELECT x FROM elsewhere", conf={"spark.sql.catalog.lake.warehouse": "/w"}),
    ],
)
def test_what_may_work_is_left_to_spark(raw: dict[str, Any]) -> None:
    assert found(raw) == []


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        (rate(""), "sql", "is empty"),
        (rate("  "), "sql", "is empty"),
        (rate("SELECT value FROM ticks; SELECT 1"), "sql", "several statements"),
        (rate("DROP TABLE ticks"), "sql", "is a DROP"),
        (rate("SELECT '${env:KEY}' FROM ticks"), "sql", "reads from the driver process"),
        (rate("SELECT value FROM ${system:a"), "sql", "reads from the driver process"),
        (rate("CREATE TABLE x AS SELECT * FROM ticks"), "sql", "is a CREATE"),
        (rate("INSERT INTO x SELECT * FROM ticks"), "sql", "is a INSERT"),
        (rate("SELECT value FROM tocks"), "sql", "Available: names, ticks."),
        (rate("SELECT id FROM names"), "sql", "does not read from a streaming source"),
        (rate(WINDOWS), "sink.output_mode", "without a watermark"),
        (rate("SELECT max(value) m FROM ticks"), "sink.output_mode", "without a watermark"),
        (
            rate("WITH a AS (SELECT value FROM ticks) SELECT value, count(*) FROM a GROUP BY 1"),
            "sink.output_mode",
            "without a watermark",
        ),
        (
            rate("SELECT * FROM (SELECT value, count(*) c FROM ticks GROUP BY value) x"),
            "sink.output_mode",
            "without a watermark",
        ),
        (
            rate("SELECT count(*) FROM (SELECT value FROM ticks UNION ALL SELECT 1 AS value) u"),
            "sink.output_mode",
            "without a watermark",
        ),
        (
            rate("SELECT n.id, count(*) FROM names n JOIN ticks t ON t.value = n.id GROUP BY 1"),
            "sink.output_mode",
            "without a watermark",
        ),
        (rate("SELECT value FROM ticks", "complete"), "sink.output_mode", "does not contain one"),
        (
            rate("SELECT value, sum(value) OVER (ORDER BY value) FROM ticks", "complete"),
            "sink.output_mode",
            "does not contain one",
        ),
        (rate("SELECT value FROM ticks ORDER BY value"), "sql", "cannot be sorted"),
        (
            rate(WINDOWS + " ORDER BY c", "update"),
            "sql",
            "a stream in update mode cannot be sorted",
        ),
        (
            rate(WINDOWS, "update", trigger={"kind": "continuous", "interval": "1 second"}),
            "trigger.kind",
            "the text aggregates",
        ),
        (
            rate(
                WINDOWS,
                "update",
                sink={"options": {"asyncProgressTrackingEnabled": "true"}},
            ),
            "sink.options.asyncProgressTrackingEnabled",
            "stateful",
        ),
    ],
)
def test_what_spark_would_surely_refuse_is_refused(
    raw: dict[str, Any], field: str, says: str
) -> None:
    problems = said(found(raw))
    assert field in problems, problems
    assert says in problems[field]


def test_a_query_without_a_sink_is_refused_for_that_alone() -> None:
    assert set(said(found({**rate(WINDOWS), "sink": None}))) == {"sink"}


def test_a_cte_that_names_itself_does_not_run_for_ever() -> None:
    text = "WITH a AS (SELECT count(*) c FROM a) SELECT c FROM a, ticks"
    assert found(rate(text)) == []


def test_kafka_goes_with_continuous_and_real_time() -> None:
    for trigger in (
        {"kind": "continuous", "interval": "1 second"},
        {"kind": "real_time", "interval": "5 seconds"},
    ):
        assert found(sql(sources=[KAFKA], sink=TO_KAFKA, trigger=trigger)) == []
