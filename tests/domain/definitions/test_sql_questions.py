"""What a definition alone says of columns, and what Spark is asked about a text."""

from typing import Any

import pytest

from queries.domain.definitions.spec import Source, SqlQuery, Table
from queries.domain.definitions.sql_verdict import columns_of, folder_of, is_certain, question_about


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
