"""A definition declares catalogs that are folders, and none that Spark would connect to."""

import pytest

from queries.domain.definitions.configuration import application_conf_problems, query_conf_problems
from queries.domain.definitions.declarations import untyped

LAKE = "spark.sql.catalog.lake"
CLASS = "org.apache.iceberg.spark.SparkCatalog"


@pytest.mark.guarantee("G-CONFIG-5")
@pytest.mark.parametrize(
    ("end", "value"),
    [
        ("type", "rest"),
        ("type", "hive"),
        ("type", "jdbc"),
        ("type", "glue"),
        ("TYPE", "nessie"),
        ("type", ""),
        ("type", "file:type"),
        ("uri", "https://attacker.example.org"),
        ("Uri", "thrift://attacker.example.org"),
        ("catalog-impl", "org.apache.iceberg.rest.RESTCatalog"),
    ],
)
def test_a_catalog_that_is_a_service_is_refused(end: str, value: str) -> None:
    for found in (query_conf_problems, application_conf_problems):
        problems = found({f"{LAKE}.{end}": value})
        assert [one.field for one in problems] == [f"conf.{LAKE}.{end}"]
        (problem,) = problems
        assert problem.message.startswith("would connect to a catalog service.")
        assert f"Set {LAKE}.type=hadoop" in problem.way_out


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{LAKE}.type", "hadoop"),
        (f"{LAKE}.type", "Hadoop"),
        (f"{LAKE}.warehouse", "s3a://bucket/lake"),
        (f"{LAKE}.cache-enabled", "false"),
        (f"{LAKE}.hadoop.fs.azure.account.auth.type", "OAuth"),
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
