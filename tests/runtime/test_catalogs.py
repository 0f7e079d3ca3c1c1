"""Which answers of a REST catalog's server a driver uses."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.catalogs import ALLOWED_PROPERTIES, CatalogAuth, CatalogSpec, CatalogType
from queries.domain.definitions.allowed_paths import AllowedPaths
from queries.runtime.catalogs import CLASS, refusal, spark_conf

URI = "https://catalog.example.org/api"
ROOTS = AllowedPaths(("file:///data", "s3a://lake"), ("file:///data/own",))
LAKE = CatalogSpec(
    "lake",
    CatalogType.REST,
    URI,
    warehouse="flights",
    properties={"prefix": "team", "s3.endpoint": "https://s3.example.org"},
)
VENDED = CatalogSpec("lake", CatalogType.REST, URI, vended=True)

#: What a server can set, by which Iceberg's client loads a class, connects or sends credentials.
HOSTILE = {
    "io-impl": "org.example.Evil",
    "catalog-impl": "org.example.Evil",
    "metrics-reporter-impl": "org.example.Evil",
    "client.factory": "org.example.Evil",
    "client.credentials-provider": "org.example.Evil",
    "s3.client-factory-impl": "org.example.Evil",
    "s3.endpoint": "https://evil.example.org",
    "s3.signer": "S3V4RestSigner",
    "s3.signer.uri": "https://evil.example.org",
    "s3.signer.endpoint": "sign",
    "signer.uri": "https://evil.example.org",
    "s3.remote-signing-enabled": "true",
    "s3.access-key-id": "AKIA-of-another",
    "s3.session-token": "session-of-another",
    "oauth2-server-uri": "https://evil.example.org/tokens",
    "uri": "https://evil.example.org",
    "prefix": "another",
    "warehouse": "another",
    "credential": "id:of-another",
    "token": "of-another",
    "rest.auth.type": "org.example.Evil",
    "rest.sigv4-enabled": "true",
    "rest.client.tls.configurer-impl": "org.example.Evil",
    "rest.client.proxy.hostname": "evil.example.org",
    "header.Authorization": "Bearer of-another",
    "header.X-Iceberg-Access-Delegation": "vended-credentials",
    "client.refresh-credentials-endpoint": "https://evil.example.org/credentials",
    "scan-planning-mode": "server",
    "encryption.kms-impl": "org.example.Evil",
    "hadoop.fs.s3a.endpoint": "https://evil.example.org",
}


def config(**parts: Any) -> dict[str, Any]:
    return {"type": "ConfigResponse", "defaults": {}, "overrides": {}, **parts}


def table(**parts: Any) -> dict[str, Any]:
    return {
        "type": "LoadTableResponse",
        "config": {},
        "credentials": [],
        "properties": {},
        "location": "/data/lake/air/people",
        "folders": ["/data/lake/air/people/metadata"],
        **parts,
    }


def judged(answer: dict[str, Any], catalog: CatalogSpec = LAKE) -> str:
    return refusal(catalog, json.loads(json.dumps(answer)), ROOTS, lambda path: path)


def test_an_answer_that_only_repeats_what_was_declared_is_accepted() -> None:
    same = {"uri": f"{URI}/", "prefix": "team", "warehouse": "flights"}
    assert judged(config()) == ""
    assert judged(config(overrides={**same, "namespace-separator": "%1F"})) == ""
    assert judged(config(defaults={"prefix": "ours takes precedence"})) == ""
    assert judged(table(config={"s3.endpoint": "https://s3.example.org"})) == ""


@pytest.mark.guarantee("G-CATALOG-5")
@pytest.mark.parametrize("key", HOSTILE)
def test_a_key_that_the_admin_has_not_declared_is_refused_wherever_a_server_sets_it(
    key: str,
) -> None:
    sent = {key: HOSTILE[key]}
    bare = CatalogSpec("lake", CatalogType.REST, URI)
    answers = [config(overrides=sent), table(config=sent)]
    if key not in ("uri", "io-impl"):  # declared, so a default has no effect
        answers.append(config(defaults=sent))
    for answer in answers:
        said = judged(answer, bare)
        assert said.startswith(f"Catalog lake: the server sets {key} to "), said
        assert "of-another" not in said


@pytest.mark.guarantee("G-CATALOG-5")
@given(st.text(), st.text(min_size=1))
def test_only_declared_keys_and_a_servers_own_choices_are_ever_accepted(
    key: str, value: str
) -> None:
    said = judged(config(overrides={key: value}))
    assert said or key in ("uri", "prefix", "warehouse", "rest-page-size"), key


def test_a_key_that_an_admin_may_declare_is_named_with_its_value() -> None:
    said = judged(table(config={"client.region": "eu-central-1"}))
    assert "If 'eu-central-1' is right, ask an admin to declare it." in said
    assert "client.region" in ALLOWED_PROPERTIES[CatalogType.REST]
    assert "Headgate does not let a server set it." in judged(config(overrides={"token": "x"}))


@pytest.mark.guarantee("G-CATALOG-6")
def test_vended_credentials_are_refused_unless_the_catalog_allows_them() -> None:
    issued = {"s3.access-key-id": "AKIA-issued", "s3.secret-access-key": "issued-secret"}
    for answer in (table(config=issued), table(credentials=[issued]), table(credentials=[{}])):
        assert "Ask an admin to allow vended credentials" in judged(answer)
        assert "issued" not in judged(answer)
        assert judged(answer, VENDED) == ""
    evil = {**issued, "s3.endpoint": "https://evil.example.org"}
    for answer in (table(config=evil), table(credentials=[evil])):
        assert "sets s3.endpoint" in judged(answer, VENDED)


@pytest.mark.guarantee("G-CATALOG-6")
@pytest.mark.parametrize(
    "address",
    ["https://evil.example.org/x", "HTTP://evil", "@evil.example.org", ":80@evil", ".evil.org", ""],
)
def test_vended_credentials_are_renewed_only_at_the_catalog_itself(address: str) -> None:
    key = "client.refresh-credentials-endpoint"
    assert f"sets {key}" in judged(table(config={key: address}), VENDED)
    assert judged(table(config={key: "v1/team/namespaces/air/credentials"}), VENDED) == ""
    assert f"sets {key}" in judged(table(config={key: "v1/credentials"}))


@pytest.mark.guarantee("G-CATALOG-7")
@pytest.mark.parametrize(
    "parts",
    [
        {"location": "/etc"},
        {"location": "/data/own/secrets"},
        {"location": "/data/../etc"},
        {"location": "s3a://another/people"},
        {"location": ""},
        {"folders": ["/etc"]},
        {"folders": ["/data/lake/air/people/metadata", ""]},
        {"folders": ["http://evil.example.org/metadata"]},
        *(
            {"properties": {key: "/etc"}}
            for key in (
                "write.data.path",
                "write.metadata.path",
                "write.object-storage.path",
                "write.folder-storage.path",
            )
        ),
    ],
    ids=str,
)
def test_a_table_with_a_place_outside_the_allowed_paths_is_refused(parts: dict[str, Any]) -> None:
    said = judged(table(**parts))
    assert said.startswith("Catalog lake: the table's "), said
    assert judged(table()) == judged(table(folders=[])) == ""


@pytest.mark.guarantee("G-CATALOG-7")
def test_without_allowed_paths_no_table_is_opened() -> None:
    assert "is not known" in refusal(LAKE, table(), None, lambda path: path)


@pytest.mark.guarantee("G-CATALOG-5")
def test_a_tables_property_that_names_a_class_a_view_and_unknown_answers_are_refused() -> None:
    provider = {"write.location-provider.impl": "org.example.Evil"}
    assert "names a class, 'org.example.Evil'" in judged(table(properties=provider))
    assert "Use a table" in judged({"type": "LoadViewResponse"})
    assert "which Headgate does not accept" in judged({"type": "PlanTableScanResponse"})


@pytest.mark.guarantee("G-CATALOG-8")
def test_sparks_configuration_contains_no_address_and_no_secret(tmp_path: Path) -> None:
    catalog = CatalogSpec(
        "lake",
        CatalogType.REST,
        URI,
        properties={"cache-enabled": "false", "oauth2-server-uri": f"{URI}/tokens"},
        secret="env:LAKE_TOKEN",
        auth=CatalogAuth.TOKEN,
    )
    assert spark_conf((catalog,)) == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.catalog-impl": CLASS,
        "spark.sql.catalog.lake.cache-enabled": "false",
    }
