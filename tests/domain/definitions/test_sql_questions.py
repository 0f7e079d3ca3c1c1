"""What a definition alone says of columns, and what Spark is asked about a text."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from queries.domain.definitions.spec import Source, SqlQuery, Table
from queries.domain.definitions.sql_verdict import (
    SqlVerdict,
    columns_of,
    folder_of,
    is_certain,
    question_about,
    read_question,
    read_verdict,
)


def _source(**more: Any) -> Source:
    return Source.model_validate({"name": "ticks", "format": "rate", **more})


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ({"format": "rate"}, "timestamp TIMESTAMP, value BIGINT"),
        ({"format": "socket"}, "value STRING"),
        (
            {"format": "socket", "options": {"includeTimestamp": "true"}},
            "value STRING, timestamp TIMESTAMP",
        ),
        ({"format": "json", "schema": "id BIGINT"}, "id BIGINT"),
        ({"format": "json"}, None),
        ({"format": "delta", "schema": "id BIGINT"}, None),
    ],
)
def test_columns_are_those_that_the_format_or_the_schema_gives(
    given: dict[str, Any], columns: str | None
) -> None:
    assert columns_of(_source(**given)) == columns


def test_headers_are_a_column_where_kafka_is_asked_for_them() -> None:
    asked = columns_of(_source(format="kafka", options={"includeHeaders": "true"}))
    assert asked is not None
    assert "headers ARRAY" in asked
    assert "headers" not in str(columns_of(_source(format="kafka")))


def _query(sql: str = "SELECT * FROM ticks", **more: Any) -> SqlQuery:
    return SqlQuery.model_validate(
        {"sources": [_source().model_dump(by_alias=True)], "sql": sql} | more
    )


def test_a_question_holds_views_watermarks_and_plain_settings() -> None:
    source = {"name": "ticks", "format": "rate", "watermark": {"column": "ts", "delay": "1 hour"}}
    table = {"name": "codes", "format": "csv", "schema": "code INT", "options": {"path": "/codes"}}
    found = question_about(
        _query(
            "SELECT _metadata.file_path FROM ticks, codes",
            sources=[source],
            tables=[table],
            sink={"format": "noop", "output_mode": "update"},
            conf={"spark.sql.ansi.enabled": "false", "spark.sql.x": "env:SECRET"},
        ),
        conf={"spark.executor.memory": "1g", "spark.sql.caseSensitive": "true"},
        partitioned={},
    )
    assert found.unknown == ""
    ticks, codes = found.views
    assert (ticks.streaming, ticks.watermark) == (True, ("ts", "1 hour"))
    assert not codes.streaming
    assert codes.columns.startswith("code INT, _metadata STRUCT")
    assert found.conf == {"spark.sql.caseSensitive": "true", "spark.sql.ansi.enabled": "false"}
    assert found.output_mode == "update"


@pytest.mark.parametrize(
    ("more", "partitioned", "why"),
    [
        ({"sources": [{"name": "ticks", "format": "delta"}]}, {}, "the columns of ticks"),
        (
            {
                "sources": [
                    {"name": "a", "format": "delta"},
                    {"name": "b", "format": "iceberg"},
                    {"name": "c", "format": "json", "schema": "x INT", "options": {"path": "/in"}},
                ],
                "conf": {"spark.sql.catalog.lake": "x"},
            },
            {"/in": "day=1 is there"},
            "the columns of a",  # the first reason is told
        ),
        (
            {
                "sources": [
                    {"name": "c", "format": "json", "schema": "x INT", "options": {"path": "/in"}}
                ]
            },
            {"/in": "day=1 is there"},
            "c has partition folders: day=1 is there",
        ),
        ({"conf": {"spark.sql.catalog.lake": "x"}}, {}, "catalogs are configured"),
    ],
)
def test_where_only_spark_can_find_out_names_are_not_judged(
    more: dict[str, Any], partitioned: dict[str, str], why: str
) -> None:
    found = question_about(_query(**more), conf={}, partitioned=partitioned)
    assert why in found.unknown
    assert found.views == ()


def test_only_files_have_partition_folders() -> None:
    assert folder_of(_source()) is None
    assert folder_of(Table(name="t", format="csv", options={"Path": "/in"})) == "/in"
    assert folder_of(Table(name="t", format="csv")) == ""


def test_only_names_and_numbers_are_certain() -> None:
    assert is_certain("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column…")
    assert is_certain("[MISSING_GROUP_BY] The query…")
    assert not is_certain("[TABLE_OR_VIEW_NOT_FOUND] The table…")
    assert not is_certain("[UNRESOLVED_ROUTINE] Cannot resolve…")


ANALYZED = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
}


@pytest.mark.guarantee("G-PARSE-3")
def test_settings_of_execution_reach_no_analyzer_and_change_no_verdict() -> None:
    more = {
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.streaming.stateStore.providerClass": "com.acme.Store",
        "spark.sql.warehouse.dir": "/data",
        "spark.sql.adaptive.customCostEvaluatorClass": "com.acme.Costs",
        "spark.sql.planChangeLog.level": "ERROR",
    }
    found = question_about(_query(conf={**ANALYZED, **more}), conf={}, partitioned={})
    assert (found.conf, found.unknown) == (ANALYZED, "")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.udt.allowCreatingUDTFromString", "true"),
        ("spark.sql.udt.allowedDynamicUDTClasses", "com.acme.Type"),
        ("spark.sql.extendedExplainProviders", "com.acme.Explain"),
        ("spark.sql.tomorrow", "true"),
        ("spark.sql.legacy.ours", "com.acme.Class"),
        ("spark.sql.session.timeZone", "/etc/localtime"),
        ("spark.sql.caseSensitive", "http://elsewhere.example"),
    ],
)
def test_a_setting_that_may_matter_and_is_withheld_leaves_names_unjudged(
    key: str, value: str
) -> None:
    """Judging without it could reject a text that the query's own Spark accepts."""
    found = question_about(_query(conf={**ANALYZED, key: value}), conf={}, partitioned={})
    assert key not in found.conf
    assert key in found.unknown
    assert found.views == ()


@pytest.mark.guarantee("G-PARSE-3")
def test_a_question_from_redis_brings_no_further_setting() -> None:
    found = question_about(
        _query(
            sources=[{"name": "t", "format": "rate", "watermark": {"column": "a", "delay": "1 s"}}]
        ),
        conf=ANALYZED,
        partitioned={},
    )
    sent = json.loads(json.dumps(asdict(found)))
    assert read_question(sent) == found
    sent["conf"]["spark.sql.udt.allowCreatingUDTFromString"] = "true"
    assert read_question(sent).conf == ANALYZED


@pytest.mark.parametrize(
    "more",
    [
        {"ok": "yes"},
        {"message": ["a"]},
        {"line": "1"},
        {"state": "x"},
        {"reads": "x"},
        {"reads": {"relations": [["verdict"]]}},
        {"reads": {"relations": "verdict", "unknown": []}},
        {"another": 1},
    ],
)
def test_what_is_no_verdict_is_refused(more: dict[str, Any]) -> None:
    """The process that answers has read an author's text."""
    right = asdict(SqlVerdict(ok=False, message="[X] no", line=1, column=2))
    assert read_verdict(right) == SqlVerdict(ok=False, message="[X] no", line=1, column=2)
    with pytest.raises(ValueError, match=r"verdict|relations of a text"):
        read_verdict(right | more)
