"""Which table a definition names, and where its log is."""

from typing import Any

import pytest

from queries.domain.tables.places import (
    Changes,
    DeltaStart,
    TablePlace,
    described_table,
    sink_table,
    source_tables,
)

CATALOG = {"spark.sql.catalog.ice.type": "hadoop", "spark.sql.catalog.ice.warehouse": "s3a://lake/"}


def reading(*sources: Any) -> dict[str, Any]:
    return {"sources": list(sources)}


def test_a_delta_table_is_named_by_its_path() -> None:
    spec = reading(
        {"format": "delta", "options": {"Path": "/data/flights/"}},
        {"format": "kafka", "options": {}},
    )
    assert source_tables(spec, {}) == [
        TablePlace(
            "delta",
            "/data/flights/",
            "file:///data/flights",
            changes=Changes.FAIL,
            start=DeltaStart(),
        ),
        None,
    ]


@pytest.mark.parametrize(
    ("options", "changes", "start"),
    [
        ({"skipChangeCommits": "TRUE", "ignoreDeletes": "true"}, Changes.SKIP, DeltaStart()),
        ({"skipchangecommits": "false"}, Changes.FAIL, DeltaStart()),
        ({"ignoreChanges": True}, Changes.READ, DeltaStart()),
        ({"ignoreFileDeletion": "true"}, Changes.READ, DeltaStart()),
        ({"ignoreDeletes": "true", "startingVersion": "7"}, Changes.PASS_DELETES, DeltaStart(7)),
        ({"readChangeFeed": "true", "skipChangeCommits": "true"}, Changes.UNKNOWN, DeltaStart()),
        ({"startingVersion": "latest"}, Changes.FAIL, DeltaStart(unknown=True)),
        ({"startingTimestamp": "2026-11-01"}, Changes.FAIL, DeltaStart(unknown=True)),
    ],
)
def test_a_delta_sources_options_say_where_it_begins_and_what_it_does_with_changes(
    options: dict[str, Any], changes: Changes, start: DeltaStart
) -> None:
    (found,) = source_tables(reading({"format": "delta", "options": {"path": "/t", **options}}), {})
    assert found is not None
    assert (found.changes, found.start) == (changes, start)


def test_the_options_of_code_are_unknown() -> None:
    found = described_table("DeltaSource[/data/flights]")
    assert found is not None
    assert (found.changes, found.start) == (Changes.UNKNOWN, DeltaStart(unknown=True))


def test_a_path_that_is_not_absolute_is_named() -> None:
    (found,) = source_tables(reading({"format": "delta", "options": {"path": "flights"}}), {})
    assert found is not None
    assert (found.location, found.problem) == (
        "",
        "The table's path 'flights' is not absolute.",
    )


@pytest.mark.parametrize("where", ["options", "table"])
def test_an_iceberg_table_is_below_the_warehouse_of_its_catalog(where: str) -> None:
    part: dict[str, Any] = {"format": "iceberg"}
    if where == "options":
        part["options"] = {"table": "ice.db.flights"}
    else:
        part["table"] = "ice.db.flights"
    found = TablePlace("iceberg", "ice.db.flights", "s3a://lake/db/flights")
    assert source_tables(reading(part), CATALOG) == [found]
    assert sink_table({"sink": part, "conf": None}, CATALOG) == found


def test_the_querys_configuration_goes_before_its_applications() -> None:
    spec = reading({"format": "iceberg", "options": {"path": "ice.db.t"}})
    spec["conf"] = {"spark.sql.catalog.ice.warehouse": "/lake"}
    (found,) = source_tables(spec, CATALOG)
    assert found is not None
    assert found.location == "file:///lake/db/t"


def test_an_iceberg_table_may_be_named_by_a_path() -> None:
    spec = reading({"format": "iceberg", "options": {"path": "/lake/db/t"}})
    assert source_tables(spec, {}) == [TablePlace("iceberg", "/lake/db/t", "file:///lake/db/t")]


@pytest.mark.parametrize(
    ("name", "conf", "said"),
    [
        ("flights", CATALOG, "'flights' is not the name of a catalog's table."),
        ("ice..t", CATALOG, "'ice..t' is not the name of a catalog's table."),
        (
            "ice.db.t",
            {"spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog"},
            "The table is in the catalog service ice, which only Spark reads.",
        ),
        (
            "ice.db.t",
            {"spark.sql.catalog.ice.type": "rest"},
            "Only tables of a Hadoop catalog with a warehouse can be read without Spark; "
            "spark.sql.catalog.ice.type is rest.",
        ),
        (
            "ice.db.t",
            {},
            "Only tables of a Hadoop catalog with a warehouse can be read without Spark; "
            "spark.sql.catalog.ice.type is not set.",
        ),
    ],
)
def test_why_a_table_cannot_be_found_is_said(name: str, conf: dict[str, str], said: str) -> None:
    part = {"format": "iceberg", "options": {"path": name}}
    assert sink_table({"sink": part}, conf) == TablePlace("iceberg", name, problem=said)


def test_a_branch_is_not_followed() -> None:
    part = {"format": "iceberg", "options": {"table": "ice.db.t", "branch": "audit"}}
    found = sink_table({"sink": part}, CATALOG)
    assert found is not None
    assert found.problem == "The query uses the table's branch audit; Headgate reads only main."
    part = {"format": "iceberg", "options": {"table": "ice.db.t", "branch": "main"}}
    found = sink_table({"sink": part}, CATALOG)
    assert found is not None
    assert found.location == "s3a://lake/db/t"


@pytest.mark.parametrize("spec", [{}, {"sources": None, "sink": None}, {"sink": {"format": "x"}}])
def test_definitions_without_tables_have_none(spec: dict[str, Any]) -> None:
    assert source_tables(spec, {}) == []
    assert sink_table(spec, {}) is None


@pytest.mark.parametrize(
    ("description", "location"),
    [
        ("DeltaSource[file:/data/tab]", "file:///data/tab"),
        ("DeltaSink[s3a://lake/tab]", "s3a://lake/tab"),
        ("org.apache.iceberg.spark.source.SparkMicroBatchStream@7d1ae9f6", None),
        ("FileStreamSource[file:/data/tab]", None),
        (None, None),
    ],
)
def test_deltas_source_and_sink_name_their_table_in_the_progress(
    description: Any, location: str | None
) -> None:
    found = described_table(description)
    assert (found.location if found else None) == location
