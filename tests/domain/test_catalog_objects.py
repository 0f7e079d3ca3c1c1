"""A catalog that an admin declares: what it may contain, and the configuration made from it."""

import json
from dataclasses import asdict, replace

import pytest

from queries.domain.catalogs import CatalogSpec, CatalogType, catalog_conf, problems
from queries.domain.protocol import read
from queries.domain.secrets import catalog, of_url, uses_of_catalog

REST = CatalogSpec("lake", CatalogType.REST, "https://catalog.example.org/api", "s3a://b/lake")


def test_a_rest_catalog_becomes_configuration_without_its_secret() -> None:
    spec = replace(REST, secret="env:LAKE", properties={"prefix": "prod"})
    assert catalog_conf(spec) == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "spark.sql.catalog.lake.prefix": "prod",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": "https://catalog.example.org/api",
        "spark.sql.catalog.lake.warehouse": "s3a://b/lake",
    }


def test_without_a_warehouse_the_server_chooses_it() -> None:
    assert "spark.sql.catalog.lake.warehouse" not in catalog_conf(replace(REST, warehouse=""))


def test_a_secret_is_sent_to_the_catalog_and_to_its_oauth2_server() -> None:
    assert uses_of_catalog(REST) == []
    server = {"oauth2-server-uri": "https://login.example.org/token"}
    (use,) = uses_of_catalog(replace(REST, secret="env:LAKE", properties=server))
    assert use.places == (of_url(REST.address), of_url(server["oauth2-server-uri"]))
    assert catalog("lake").name == "lake"


@pytest.mark.parametrize("spec", [REST, replace(REST, properties={"prefix": "a"}, vended=True)])
def test_a_catalog_is_unchanged_by_its_way_through_json(spec: CatalogSpec) -> None:
    assert read(CatalogSpec, json.loads(json.dumps(asdict(spec)))) == spec


def test_vended_credentials_are_requested_only_if_the_admin_allows_them() -> None:
    header = "spark.sql.catalog.lake.header.X-Iceberg-Access-Delegation"
    assert header not in catalog_conf(REST)
    conf = catalog_conf(replace(REST, vended=True))
    assert conf[header] == "vended-credentials"
    assert conf["spark.sql.catalog.lake.io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"


@pytest.mark.parametrize("spec", [REST, replace(REST, secret="file:key", vended=True)])
def test_these_catalogs_are_valid(spec: CatalogSpec) -> None:
    assert problems(spec) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (replace(REST, name="la.ke"), "name"),
        (replace(REST, name="[^x]+"), "name"),
        (replace(REST, name="Spark_Catalog"), "name"),
        (replace(REST, address=""), "address"),
        (replace(REST, address="https://user:pw@catalog.example.org"), "address"),
        (replace(REST, address="https://catalog.example.org?x=1"), "address"),
        (replace(REST, address="jdbc:postgresql://h/d?socketFactory=x.Y"), "address"),
        (replace(REST, address="env:ADDRESS"), "address"),
        (replace(REST, address="thrift://metastore:9083"), "address"),
        (replace(REST, warehouse="s3a://b/${env:X}"), "warehouse"),
        (replace(REST, secret="hunter2"), "secret"),
    ],
)
def test_a_wrong_value_is_rejected_by_field(spec: CatalogSpec, field: str) -> None:
    found = problems(spec)
    assert [one.field for one in found] == [field]
    assert found[0].way_out


@pytest.mark.guarantee("G-CATALOG-2")
@pytest.mark.parametrize(
    "key",
    [
        "io-impl",
        "catalog-impl",
        "IO-IMPL",
        "type",
        "uri",
        "token",
        "credential",
        "client.credentials-provider",
        "client.factory",
        "rest.auth.type",
        "metrics-reporter-impl",
        "lock-impl",
        "s3.access-key-id",
        "s3.signer.uri",
        "header.Authorization",
        "hadoop.fs.s3a.impl",
        "table-override.write.location-provider.impl",
    ],
)
def test_a_property_that_names_a_class_a_secret_or_an_address_is_rejected(key: str) -> None:
    found = problems(replace(REST, properties={key: "hunter2"}))
    assert [one.field for one in found] == [f"properties.{key}"]
    assert "hunter2" not in found[0].sentence() + found[0].value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("s3.endpoint", "env:ENDPOINT"),
        ("oauth2-server-uri", "https://a:b@idp.example.org/token"),
        ("scope", "env:SECRET"),
        ("cache-enabled", "maybe"),
        ("s3.path-style-access", "true\n"),
    ],
)
def test_a_property_has_a_rule_for_its_value(key: str, value: str) -> None:
    assert [one.field for one in problems(replace(REST, properties={key: value}))] == [
        f"properties.{key}"
    ]
