"""A connector says in connector.toml what it brings; definitions may use that like Spark's own."""

from typing import Any

import pytest

from queries.domain.definitions import parsing
from queries.domain.definitions.declarations import Declared, NotDeclared, conf_of, formats_of, read
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.validation.application_rules import ValidationContext
from queries.domain.validation.query_rules import query_problems

PULSAR = read(
    """
    about = "Apache Pulsar"
    sources = ["pulsar"]
    sinks = ["pulsar"]
    tables = ["pulsar"]
    tested_with = ["4.2", "4.3.0"]
    [options]
    pulsar = ["topic", "startingOffsets"]
    """
)
TABLES = read(
    """
    extensions = ["org.example.Extension", "org.example.Other"]
    catalogs = {lake = "org.example.Catalog"}
    conf = {"spark.lake.tasks" = "2"}
    sinks = ["lake"]
    """
)


def _problems(spec: dict[str, Any], *connectors: str) -> list[str]:
    known = {"pulsar": PULSAR, "lake": TABLES}
    found = query_problems(
        parsing.parse_query(spec),
        application=ApplicationSpec(connectors=connectors),
        pools=[],
        surroundings=ValidationContext(declared=known),
    )
    return [f"{one.field} {one.message} {one.way_out}" for one in found]


def _query(source: str = "pulsar", sink: str = "noop", **options: str) -> dict[str, Any]:
    return {
        "kind": "sql",
        "sources": [{"name": "events", "format": source, "options": options}],
        "tables": [{"name": "places", "format": "pulsar"}],
        "sql": "SELECT * FROM events JOIN places USING (id)",
        "sink": {"format": sink},
    }


def test_a_format_of_a_connector_that_the_application_has_is_taken() -> None:
    assert _problems(_query(topic="a"), "pulsar") == []


def test_a_format_of_another_connector_names_it() -> None:
    (source, table) = _problems(_query())
    assert "sources.0.format needs the pulsar connector" in source
    assert 'Add "pulsar"' in source
    assert table.startswith("tables.0.format needs the pulsar connector")


def test_a_format_that_no_connector_brings_is_refused_with_all_that_there_are() -> None:
    (said,) = _problems(_query(sink="pulser"), "pulsar")
    assert "sink.format is not a supported format here" in said
    assert "lake" in said
    assert "pulsar" in said


def test_a_misspelt_option_of_a_declared_format_is_told() -> None:
    (said,) = _problems(_query(startingOfsets="earliest"), "pulsar")
    assert "Did you mean startingOffsets?" in said
    assert _problems(_query(somethingElse="x"), "pulsar") == []


def test_a_sink_of_a_connector_may_be_partitioned() -> None:
    spec = _query(sink="lake")
    spec["sink"]["partition_by"] = ["day"]
    assert _problems(spec, "pulsar", "lake") == []
    spec["sink"] = {"format": "noop", "partition_by": ["day"]}
    assert "sink.partition_by has no effect" in _problems(spec, "pulsar")[0]


def test_extensions_catalogs_and_defaults_become_configuration() -> None:
    assert conf_of([PULSAR]) == {}
    assert conf_of([PULSAR, TABLES, TABLES]) == {
        "spark.sql.extensions": "org.example.Extension,org.example.Other",
        "spark.sql.catalog.lake": "org.example.Catalog",
        "spark.lake.tasks": "2",
    }
    both = formats_of({"b": PULSAR, "a": PULSAR, "c": TABLES}, "sinks")
    assert both == {"pulsar": "a", "lake": "c"}


@pytest.mark.parametrize(
    ("spark", "tested"),
    [("4.3.0", True), ("4.2.7", True), ("4.3.1", False), ("4.30.0", False), ("4.2", True)],
)
def test_a_version_of_spark_was_tested_or_not(spark: str, tested: bool) -> None:
    assert PULSAR.tested(spark) is tested
    assert not Declared().tested(spark)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sources = [", "is not TOML"),
        ("sources = 'kafka'", "sources"),
        ("format = ['kafka']", "format"),
        ("[options]\nkafka = 'topic'", "options.kafka"),
    ],
)
def test_a_malformed_file_says_where(text: str, said: str) -> None:
    with pytest.raises(NotDeclared, match=said):
        read(text)
