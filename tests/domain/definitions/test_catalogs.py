"""A definition declares catalogs that are folders, and none that Spark would connect to."""

import pytest

from queries.domain.definitions.configuration import (
    application_conf_problems,
    query_conf_problems,
    reach_problems,
)
from queries.domain.definitions.declarations import untyped
from queries.domain.definitions.parsing import parse_query
from queries.domain.definitions.sql_text import sql_problems
from queries.domain.validation.tables import table_problems

LAKE = "spark.sql.catalog.lake"
CLASS = "org.apache.iceberg.spark.SparkCatalog"


@pytest.mark.guarantee("G-CATALOG-1")
@pytest.mark.parametrize(
    ("end", "value"),
    [
        ("type", "rest"),
        ("type", "hive"),
        ("type", "jdbc"),
        ("type", "glue"),
        ("TYPE", "nessie"),
        ("type", ""),
        ("type", " hadoop"),
        ("type", "file:type"),
        ("uri", "https://attacker.example.org"),
        ("uri", "jdbc:postgresql://db.example.org/d?socketFactory=org.example.Factory"),
        ("Uri", "thrift://attacker.example.org"),
        ("catalog-impl", "org.apache.iceberg.rest.RESTCatalog"),
        ("Catalog-Impl", "lowercase.rest"),
    ],
)
def test_a_catalog_that_is_a_service_is_refused(end: str, value: str) -> None:
    for found in (query_conf_problems, application_conf_problems, reach_problems):
        problems = found({f"{LAKE}.{end}": value})
        assert [one.field for one in problems] == [f"conf.{LAKE}.{end}"]
        (problem,) = problems
        assert problem.message.startswith("would connect to a catalog service.")
        assert f"Set {LAKE}.type=hadoop" in problem.way_out
        assert "ask an administrator to declare the catalog" in problem.way_out


@pytest.mark.guarantee("G-CATALOG-1")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        # Spark takes a catalog's name as a regular expression: this one has type "rest".
        ("spark.sql.catalog.[^x]+", CLASS),
        ("spark.sql.catalog.[^x]+.type", "hadoop"),
        ("spark.sql.catalog.foo.bar.type", "rest"),
        ("spark.sql.catalog.foo.bar.uri", "https://attacker.example.org"),
        ("spark.sql.catalog..uri", "https://attacker.example.org"),
        ("spark.sql.catalog.la ke", CLASS),
        (LAKE, f" {CLASS}"),
        (LAKE, "org.apache.iceberg.rest.RESTCatalog"),
        (LAKE, "lowercase.catalog"),
        (LAKE, "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"),
        ("spark.sql.catalog.spark_catalog", "org.apache.hadoop.hive.SomeCatalog"),
        ("spark.sql.catalog.spark_catalog.type", "hive"),
        (f"{LAKE}.url", "jdbc:postgresql://db.example.org/d"),
        (f"{LAKE}.io-impl", "org.apache.iceberg.aws.s3.S3FileIO"),
        (f"{LAKE}.io-impl", "lowercase.io"),
        (f"{LAKE}.s3.endpoint", "https://attacker.example.org"),
        (f"{LAKE}.S3.signer.uri", "https://attacker.example.org"),
        (f"{LAKE}.oauth2-server-uri", "https://attacker.example.org"),
        (f"{LAKE}.rest.auth.type", "oauth2"),
        (f"{LAKE}.credential", "env:KEY"),
        (f"{LAKE}.token", "env:KEY"),
        (f"{LAKE}.header.X-Iceberg-Access-Delegation", "vended-credentials"),
        (f"{LAKE}.metrics-reporter-impl", "lowercase.reporter"),
        (f"{LAKE}.lock-impl", "lowercase.lock"),
        (f"{LAKE}.glue.endpoint", "https://attacker.example.org"),
        (f"{LAKE}.jdbc.user", "u"),
        (f"{LAKE}.hadoop.hive.metastore.uris", "thrift://attacker.example.org:9083"),
        (f"{LAKE}.table-default.write.location-provider.impl", "org.example.Provider"),
        (f"{LAKE}.table-override.write.location-provider.impl", "lowercase.provider"),
        ("spark.hadoop.hive.metastore.uris", "thrift://attacker.example.org:9083"),
        ("spark.hadoop.Hive.Metastore.uris", "thrift://attacker.example.org:9083"),
        ("spark.hadoop.metastore.thrift.uris", "thrift://attacker.example.org:9083"),
        ("spark.hadoop.javax.jdo.option.ConnectionURL", "jdbc:postgresql://db/d"),
        ("spark.hadoop.datanucleus.connectionPoolingType", "x"),
        ("spark.hadoop.iceberg.catalog.lake.uri", "https://attacker.example.org"),
        ("spark.hadoop.iceberg.catalog", "lake"),
    ],
)
def test_no_spelling_of_a_catalogs_address_or_class_passes(key: str, value: str) -> None:
    assert application_conf_problems({key: value})
    assert reach_problems({key: value})  # also in a definition that was saved before


@pytest.mark.guarantee("G-CATALOG-1")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hive.metastore.uris", "thrift://attacker.example.org:9083"),
        ("spark.hive.metastore.uris", "thrift://attacker.example.org:9083"),
        ("spark.sql.hive.metastore.version", "3.1"),
        ("spark.sql.hive.metastore.sharedPrefixes", "org.example"),
        ("spark.sql.catalogImplementation", "hive"),
        (
            "spark.databricks.delta.properties.defaults.coordinatedCommits.commitCoordinatorConf",
            '{"dynamoDBEndpoint": "https://attacker.example.org"}',
        ),
    ],
)
def test_no_other_setting_names_a_catalog_service(key: str, value: str) -> None:
    assert application_conf_problems({key: value})


@pytest.mark.guarantee("G-CATALOG-1")
@pytest.mark.parametrize("kind", ["sources", "tables", "sinks"])
@pytest.mark.parametrize(
    "option", ["uri", "URI", "warehouse", "catalog", "catalog-impl", "type", "io-impl", "path"]
)
def test_no_option_of_a_reader_or_writer_names_a_catalog(kind: str, option: str) -> None:
    options = {"table": "lake.air.flights", option: "https://attacker.example.org"}
    problems = table_problems("part.options", "iceberg", kind, options)
    assert [one.field for one in problems] == [f"part.options.{option}"]


@pytest.mark.guarantee("G-CATALOG-1")
@pytest.mark.parametrize(
    "sql",
    [
        "SET `spark.sql.catalog.lake.type` = rest",
        "USE CATALOG lake",
        "CREATE TABLE t (a INT) USING iceberg TBLPROPERTIES ('uri' = 'https://a.example.org')",
        "ALTER TABLE t SET TBLPROPERTIES ('io-impl' = 'org.example.IO')",
    ],
)
def test_no_sql_declares_a_catalog(sql: str) -> None:
    form = parse_query(
        {
            "kind": "sql",
            "sources": [{"name": "ticks", "format": "rate"}],
            "sql": sql,
            "sink": {"format": "noop"},
        }
    )
    assert sql_problems(form)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (LAKE, CLASS),
        ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
        (f"{LAKE}.type", "hadoop"),
        (f"{LAKE}.type", "Hadoop"),
        (f"{LAKE}.warehouse", "s3a://bucket/lake"),
        (f"{LAKE}.cache-enabled", "false"),
        (f"{LAKE}.default-namespace", "air"),
        (f"{LAKE}.table-default.write.format.default", "orc"),
        (f"{LAKE}.hadoop.fs.azure.account.auth.type", "OAuth"),
        ("spark.sql.defaultCatalog", "lake"),
    ],
)
def test_a_catalog_that_is_a_folder_is_not(key: str, value: str) -> None:
    assert query_conf_problems({key: value}) == []


@pytest.mark.parametrize(
    ("conf", "around", "fields"),
    [
        ({LAKE: CLASS}, {}, [f"conf.{LAKE}"]),
        ({LAKE: CLASS, f"{LAKE}.type": "hadoop"}, {}, []),
        ({LAKE: CLASS}, {f"{LAKE}.Type": "hadoop"}, []),
        # The catalog's name does not ignore case: these are the properties of another one.
        ({LAKE: CLASS}, {"spark.sql.catalog.Lake.type": "hadoop"}, [f"conf.{LAKE}"]),
        ({LAKE: CLASS}, {"spark.sql.catalog.pond.type": "hadoop"}, [f"conf.{LAKE}"]),
        ({LAKE: "org.apache.iceberg.spark.SparkSessionCatalog"}, {}, [f"conf.{LAKE}"]),
        ({LAKE: "org.apache.spark.sql.delta.catalog.DeltaCatalog"}, {}, []),
        ({"spark.sql.some.key": CLASS}, {}, []),
        ({}, {LAKE: CLASS}, []),  # reported where it is declared
    ],
)
def test_an_iceberg_catalog_without_a_type_is_a_hive_metastore(
    conf: dict[str, str], around: dict[str, str], fields: list[str]
) -> None:
    found = untyped(conf, {**around, **conf})
    assert [one.field for one in found] == fields
    assert all("has no type: it would connect" in one.message for one in found)
