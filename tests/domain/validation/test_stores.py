"""What a store needs is named on save: a connector that opens it, or names that Spark wants."""

from typing import Any

import pytest

from queries.domain.definitions.parsing import parse_query
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.validation.application_rules import ValidationContext, application_problems
from queries.domain.validation.formats import connector_of
from queries.domain.validation.query_rules import query_problems

RECIPES = frozenset({"s3", "azure", "gcs", "kafka"})
SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
SINKS = "spark.sql.streaming.queryEvolution.enableSinkEvolution"
SQL: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "f", "format": "rate"}],
    "sql": "SELECT value FROM f",
    "sink": {"format": "parquet", "options": {"path": "/data/out"}},
}
PYTHON: dict[str, Any] = {"kind": "python", "function": "jobs:build"}


def _problems(
    spec: dict[str, Any],
    connectors: tuple[str, ...] = (),
    conf: dict[str, str] | None = None,
    master: str = "local[4]",
) -> dict[str, str]:
    found = query_problems(
        parse_query(spec),
        application=ApplicationSpec(
            connectors=connectors, conf=conf or {}, python_path=("/code",), master=master
        ),
        pools=(),
        surroundings=ValidationContext(recipes=RECIPES),
    )
    return {one.field: f"{one.message} {one.way_out}" for one in found}


@pytest.mark.parametrize(
    ("place", "connector"),
    [
        ("s3a://bucket/out", "s3"),
        ("S3A://bucket/out", "s3"),
        ("abfss://box@acme.dfs.core.windows.net/out", "azure"),
        ("gs://bucket/out", "gcs"),
    ],
)
def test_a_place_in_a_store_without_its_connector_is_refused_with_the_name(
    place: str, connector: str
) -> None:
    spec = {**SQL, "sink": {"format": "parquet", "options": {"path": place}}}
    said = _problems(spec)["sink.options.path"]
    assert said == (
        f"needs the {connector} connector, which the application does not have. "
        f'Add "{connector}" to the application\'s connectors.'
    )
    assert _problems(spec, (connector,)) == {}
    assert "sink.options.path" in _problems(spec, ("kafka",))
    # Any jar may be in it: Headgate's recipes say nothing about a connector of one's own.
    assert _problems(spec, ("ours",)) == {}


def test_sources_tables_and_configuration_are_looked_at_too() -> None:
    files = {"format": "text", "options": {"path": "s3a://in/x"}}
    spec = {**SQL, "sources": [{"name": "f", **files}], "tables": [{"name": "t", **files}]}
    assert _problems(spec).keys() == {"sources.0.options.path", "tables.0.options.path"}
    conf = {"spark.eventLog.dir": "s3a://logs/x"}
    found = application_problems(
        ApplicationSpec(conf=conf), surroundings=ValidationContext(recipes=RECIPES)
    )
    assert [one.field for one in found] == ["conf.spark.eventLog.dir"]


_ON_YARN = "names no file system; on YARN, it would be in the cluster's default one. "


@pytest.mark.guarantee("G-YARN-1")
def test_a_place_without_a_file_system_is_refused_on_yarn_with_the_one_to_write() -> None:
    files = {"format": "text", "options": {"path": "/data/in/*.txt"}}
    spec = {
        **SQL,
        "sources": [{"name": "f", **files}],
        "tables": [{"name": "t", **files}],
        "sql": "SELECT value FROM f JOIN json.`/data/names` AS n USING (value)",
        "trigger": {"kind": "available_now"},
        "schedule": {"files": "/data/in"},
        "conf": {"spark.sql.catalog.lake.warehouse": "/lake"},
    }
    said = {field: text for field, text in _problems(spec, master="yarn").items() if "YARN" in text}
    assert said.keys() == {
        "sources.0.options.path",
        "tables.0.options.path",
        "sql",
        "sink.options.path",
        "schedule.files",
        "conf.spark.sql.catalog.lake.warehouse",
    }
    assert said["sink.options.path"] == (
        f"{_ON_YARN}Write hdfs://NAMESERVICE/data/out, with the cluster's own name: fs.defaultFS "
        "in core-site.xml in HADOOP_CONF_DIR. A folder of this host is file:///data/out."
    )
    assert not any("YARN" in text for text in _problems(spec, master="spark://host:7077").values())


@pytest.mark.parametrize("place", ["hdfs://nn/out", "file:///data/out", "file:/data/out"])
def test_a_place_with_its_file_system_is_the_same_on_yarn(place: str) -> None:
    spec = {**SQL, "sink": {"format": "parquet", "options": {"path": place}}}
    assert "sink.options.path" not in _problems(spec, master="yarn")


def test_a_file_that_hadoop_does_not_open_is_the_hosts_own_on_yarn() -> None:
    options = {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "t",
        "kafka.ssl.truststore.location": "/data/ca.pem",
    }
    spec = {**SQL, "sources": [{"name": "f", "format": "kafka", "options": options}]}
    assert not any("truststore" in field for field in _problems(spec, ("kafka",), master="yarn"))


def test_a_warehouse_of_an_application_on_yarn_names_its_file_system() -> None:
    conf = {"spark.sql.warehouse.dir": "/lake", "spark.eventLog.dir": "/logs"}
    found = application_problems(
        ApplicationSpec(conf=conf, master="yarn"), surroundings=ValidationContext(recipes=RECIPES)
    )
    assert [one.field for one in found] == ["conf.spark.sql.warehouse.dir"]


@pytest.mark.parametrize("place", ["/data/s3a", "file:///x", "hdfs://one/x", "s3a", ""])
def test_other_places_need_none(place: str) -> None:
    assert connector_of(place) == ""


@pytest.mark.parametrize("where", ["query", "application"])
@pytest.mark.parametrize(("key", "what"), [(SOURCES, "sources"), (SINKS, "sink")])
def test_a_setting_that_wants_names_is_refused_where_headgate_has_none(
    key: str, what: str, where: str
) -> None:
    conf = {key: "true"}
    spec = {**SQL, "conf": conf} if where == "query" else SQL
    found = _problems(spec, conf=conf if where == "application" else None)
    assert found.keys() == {f"conf.{key}"}
    assert (
        f"changes what a checkpoint contains, and requires names that this query's {what}"
        in (found[f"conf.{key}"])
    )
    assert _problems({**SQL, "conf": {key: "false"}}) == {}


def test_a_function_can_name_its_own() -> None:
    assert _problems({**PYTHON, "conf": {SOURCES: "true", SINKS: "true"}}) == {}
    given = {**PYTHON, "sink": SQL["sink"], "conf": {SOURCES: "true", SINKS: "true"}}
    assert _problems(given).keys() == {f"conf.{SINKS}"}
