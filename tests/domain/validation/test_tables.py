"""Delta and Iceberg tables in definitions: what is wrong is refused on save, with a way out."""

from pathlib import Path
from typing import Any

import pytest

from queries.domain.catalogs import CatalogSpec, CatalogType
from queries.domain.definitions import parsing
from queries.domain.definitions.declarations import read
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.manifests.sets import read_text, with_values
from queries.domain.validation.application_rules import ValidationContext, application_problems
from queries.domain.validation.formats import connector_way_out
from queries.domain.validation.query_rules import query_problems
from queries.domain.validation.tables import SPARKS

LAKE = {
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.warehouse": "/data/lake/",
}
RECIPES = Path(__file__).resolve().parents[3] / "connectors"


def recipe(name: str) -> Any:
    return read((RECIPES / name / "connector.toml").read_text())


def problems(
    spec: dict[str, Any], spark: str = "4.1", conf: dict[str, str] | None = None
) -> dict[str, str]:
    """Return field -> message and way out, in an application that has both connectors."""
    found = query_problems(
        parsing.parse_query({"kind": "sql", "sql": "SELECT * FROM flights", **spec}),
        application=parsing.parse_application(
            {"spark": spark, "connectors": ["delta", "iceberg"], "conf": conf or LAKE}
        ),
        pools=[],
        surroundings=ValidationContext(
            declared={name: recipe(name) for name, sparks in SPARKS.items() if spark in sparks}
        ),
    )
    return {one.field: f"{one.message} {one.way_out}" for one in found}


def source(name: str = "delta", **options: str) -> dict[str, Any]:
    place = {"delta": {"path": "/data/flights"}, "iceberg": {"table": "lake.air.flights"}}[name]
    return {
        "sources": [{"name": "flights", "format": name, "options": {**place, **options}}],
        "sink": {"format": "noop"},
    }


def sink(name: str = "delta", mode: str = "append", **options: str) -> dict[str, Any]:
    place = {"delta": {"path": "/data/out"}, "iceberg": {"table": "lake.air.delays"}}[name]
    return {
        "sources": [{"name": "flights", "format": "rate"}],
        "sink": {
            "format": name,
            "options": {**place, **options},
            "output_mode": mode,
            "partition_by": ["value"],
        },
    }


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_table_is_source_sink_and_table_of_a_query(name: str) -> None:
    spec = source(name)
    table = spec["sources"][0]
    assert problems({**spec, "tables": [{**table, "name": "static"}]}) == {}
    assert problems(sink(name)) == {}
    counts = {**sink(name, "complete"), "sql": "SELECT value, count(*) FROM flights GROUP BY value"}
    assert problems(counts) == {}


def test_the_recipes_are_for_the_sparks_that_the_formats_name() -> None:
    for name, sparks in SPARKS.items():
        assert sorted(recipe(name).versions) == sorted(sparks)


@pytest.mark.parametrize(
    ("name", "spark", "way_out"),
    [
        ("delta", "4.3", "Choose Spark 4.2, 4.1, 4.0 or 3.5."),
        ("iceberg", "4.3", "Choose Spark 4.1, 4.0 or 3.5."),
        ("iceberg", "4.2", "Choose Spark 4.1, 4.0 or 3.5."),
    ],
)
def test_a_format_without_a_release_for_the_spark_names_those_that_have_one(
    name: str, spark: str, way_out: str
) -> None:
    for spec, field in ((source(name), "sources.0.format"), (sink(name), "sink.format")):
        assert problems(spec, spark)[field] == f"has no release for Spark {spark}. {way_out}"
    application = parsing.parse_application({"spark": spark, "connectors": [name]})
    found = application_problems(
        application, surroundings=ValidationContext(sparks=frozenset({spark}))
    )
    assert [(one.message, one.way_out) for one in found] == [
        (f"has no release for Spark {spark}.", way_out)
    ]
    assert connector_way_out(name, frozenset(), application.spark) == (
        f"It has no release for Spark {spark}. {way_out}"
    )


def test_a_spark_with_a_release_offers_the_format_before_the_connector_is_installed() -> None:
    found = query_problems(
        parsing.parse_query({"kind": "sql", "sql": "SELECT * FROM flights", **source()}),
        application=ApplicationSpec(spark="4.2"),
        pools=[],
        surroundings=ValidationContext(),
    )
    assert [one.message for one in found] == [
        "needs the delta connector, which the application does not have."
    ]


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        (source(maxFilesPerTrigger="0"), "sources.0.options.maxFilesPerTrigger", "1 or more"),
        (source(maxBytesPerTrigger="much"), "sources.0.options.maxBytesPerTrigger", '"10g"'),
        (source(ignoreDeletes="maybe"), "sources.0.options.ignoreDeletes", "true or false"),
        (source(startingVersion="first"), "sources.0.options.startingVersion", '"latest"'),
        (source(startingTimestamp="noon"), "sources.0.options.startingTimestamp", "not a time"),
        (
            source(startingVersion="1", startingTimestamp="2026-01-01"),
            "sources.0.options.startingVersion",
            "cannot be combined with startingTimestamp",
        ),
        (source(ignoreDelete="true"), "sources.0.options.ignoreDelete", "mean ignoreDeletes?"),
        (
            source(colour="red"),
            "sources.0.options.colour",
            "is not a known option of a streaming delta source. Remove it.",
        ),
        (source(path="flights"), "sources.0.options.path", "absolute"),
        (sink(mergeSchema="1"), "sink.options.mergeSchema", "true or false"),
        (sink(compression="zip"), "sink.options.compression", "snappy"),
        (sink(txnAppId="me"), "sink.options.txnAppId", "is not a known option"),
        (sink(**{"fs.file.impl": "org.acme.Own"}), "sink.options.fs.file.impl", "a Hadoop or"),
        (sink(mode="update"), "sink.output_mode", "Use append or complete."),
        (sink("iceberg", "update"), "sink.output_mode", "foreachBatch and MERGE"),
        (
            source("iceberg", **{"streaming-max-files-per-micro-batch": "x"}),
            "sources.0.options.streaming-max-files-per-micro-batch",
            "1 or more",
        ),
        (
            source("iceberg", **{"stream-from-timestamp": "2026-01-01"}),
            "sources.0.options.stream-from-timestamp",
            "milliseconds since 1970",
        ),
        (sink("iceberg", **{"write-format": "xml"}), "sink.options.write-format", "parquet, avro"),
        (sink("iceberg", path="/data/x"), "sink.options.path", "not a known option"),
        (source("iceberg", table=""), "sources.0.options.table", '"catalog.database.table"'),
        (source("iceberg", table="air.flights"), "sources.0.options.table", "is not the name"),
        (source("iceberg", table="lake.`../x`.y"), "sources.0.options.table", "is not the name"),
        (
            source("iceberg", table="pond.air.flights"),
            "sources.0.options.table",
            "the catalog pond, which is not declared",
        ),
        (
            {**source(), "sql": "SELECT * FROM flights JOIN pond.air.places USING (id)"},
            "sql",
            "the catalog pond, which is not declared. Write pond in the application's catalogs",
        ),
        (
            {**source(), "sources": [{**source()["sources"][0], "schema": "id INT"}]},
            "sources.0.schema",
            "delta has a fixed schema",
        ),
        (
            {**source("iceberg"), "sink": sink("iceberg", table="lake.air.flights")["sink"]},
            "sink.options.table",
            "source flights reads",
        ),
    ],
)  # fmt: skip
def test_what_a_table_would_not_accept_is_refused_with_a_way_out(
    spec: dict[str, Any], field: str, said: str
) -> None:
    assert said in problems(spec)[field]


def test_a_static_table_takes_a_version_and_no_option_of_streams() -> None:
    table = {"name": "static", "format": "delta"}
    spec = {**source(), "tables": [{**table, "options": {"path": "/d", "versionAsOf": "3"}}]}
    assert problems(spec) == {}
    spec["tables"] = [{**table, "options": {"path": "/d", "ignoreDeletes": "true"}}]
    assert "option of a static delta table" in problems(spec)["tables.0.options.ignoreDeletes"]


def test_more_that_is_written_to_an_iceberg_snapshot_and_secrets_are_taken() -> None:
    assert problems(sink("iceberg", **{"snapshot-property.owner": "air", "branch": "env:X"})) == {
        "sink.options.branch": problems(sink("iceberg", branch="env:X"))["sink.options.branch"]
    }


def test_a_catalog_that_is_not_a_hadoop_catalog_is_refused() -> None:
    conf = {**LAKE, "spark.sql.catalog.lake.type": "jdbc"}
    said = problems(source("iceberg"), conf=conf)["sources.0.options.table"]
    assert "is not a Hadoop catalog with a warehouse" in said


LAKE_SERVICE = CatalogSpec("air", CatalogType.REST, "https://catalog.example.org", vended=True)


def test_a_catalog_that_an_admin_declared_needs_the_connectors_that_read_it() -> None:
    context = ValidationContext(catalogs={"air": LAKE_SERVICE})
    form = parsing.parse_application({"spark": "4.1", "catalogs": ["air"]})
    found = application_problems(form, surroundings=context)
    said = [one.message for one in found if one.field == "connectors"]
    assert said == [
        "must include iceberg, which air requires.",
        "must include s3, which air requires.",
    ]


def test_a_table_of_a_catalog_that_an_admin_declared_is_accepted() -> None:
    found = query_problems(
        parsing.parse_query(
            {"kind": "sql", "sql": "SELECT * FROM flights", **source("iceberg", table="air.a.b")}
        ),
        application=parsing.parse_application(
            {"spark": "4.1", "connectors": ["iceberg"], "catalogs": ["air"]}
        ),
        pools=[],
        surroundings=ValidationContext(
            declared={"iceberg": recipe("iceberg")}, catalogs={"air": LAKE_SERVICE}
        ),
    )
    assert found == []


def test_catalogs_of_the_application_and_of_connectors_can_be_named_in_sql() -> None:
    joined = "SELECT * FROM flights JOIN lake.air.places USING (id)"
    assert problems({**source(), "sql": joined}) == {}
    of_spark = "SELECT * FROM flights JOIN spark_catalog.delta.`/data/places` USING (id)"
    assert problems({**source(), "sql": of_spark}) == {}


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_the_manifests_of_the_demos_flights_are_accepted(name: str) -> None:
    text = (RECIPES.parent / "examples" / "flights" / f"{name}.yaml").read_text()
    application, *queries = (with_values(one, {"demo": "/demo"}) for one in read_text(text))
    conf = application["spec"].get("conf")
    assert len(queries) == 2
    for query in queries:
        assert problems(query["spec"], application["spec"]["spark"], conf) == {}
