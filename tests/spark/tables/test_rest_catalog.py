"""Iceberg tables in REST catalogs: written, read, and what a hostile server may do.

The tests of a catalog share one driver.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queries.domain.catalogs import CatalogAuth, CatalogSpec, CatalogType
from queries.domain.tables.places import ICEBERG
from queries.domain.validation.tables import SPARKS
from tests import pieces
from tests.spark.driver_under_test import write_rows
from tests.spark.tables.lake import Lake, lake, of_files, rows_of, sql
from tests.spark.tables.rest_catalog import (
    HostileCatalog,
    RealCatalog,
    hostile_catalog,
    snapshot,
)
from tests.storage.stores import S3Store

pytestmark = pytest.mark.spark

#: The version under test, or else the newest with a release of Iceberg.
SPARK = one if (one := pieces.spark_version()) in SPARKS[ICEBERG] else SPARKS[ICEBERG][0]
ROWS: list[dict[str, Any]] = [{"id": 1, "name": "ada"}, {"id": 2, "name": "bob"}]


def declared(uri: str, name: str = "lake", **more: Any) -> CatalogSpec:
    return CatalogSpec(name, CatalogType.REST, uri, **more)


def table(name: str, **options: str) -> dict[str, Any]:
    return {"format": "iceberg", "options": {"table": name, **options}}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, RealCatalog]]:
    if missing := pieces.missing_rest_catalog():
        pytest.skip(missing)
    home: Path = tmp_path_factory.mktemp("rest")
    catalog = RealCatalog(tmp_path_factory.mktemp("catalog"), home / "data" / "lake")
    catalog.start()
    try:
        with lake(home, "iceberg", SPARK, {}, catalogs=(declared(catalog.uri),)) as one:
            yield one, catalog
    finally:
        catalog.kill()


@pytest.mark.promise
def test_rows_go_from_files_to_a_table_of_a_rest_catalog_and_through_a_stream_and_a_join(
    real: tuple[Lake, RealCatalog],
) -> None:
    one, _ = real
    write_rows(one.data / "in", "1.json", ROWS)
    first = one.start(sql(of_files(one.data / "in"), table("lake.air.people")))
    one.completed(first)
    files = {"format": "json", "options": {"path": str(one.data / "out")}}
    text = (
        "SELECT read.id, static.name, direct.id + 1 AS next FROM read "
        "JOIN static USING (id) JOIN lake.air.people AS direct USING (id)"
    )
    stream = table("lake.air.people", **{"streaming-max-files-per-micro-batch": "1"})
    tables = [{"name": "static", **table("lake.air.people")}]
    second = one.start(sql(stream, files, text, tables=tables))
    one.completed(second)
    assert rows_of(one.data / "out") == [{**row, "next": row["id"] + 1} for row in ROWS]


def test_two_queries_that_write_one_table_of_a_rest_catalog_lose_no_row(
    real: tuple[Lake, RealCatalog],
) -> None:
    one, _ = real
    runs = []
    for first in (0, 100):
        folder = one.data / f"shared-{first}"
        for number in range(first, first + 6):
            write_rows(folder, f"{number}.json", [{"id": number, "name": "one"}])
        files = of_files(folder)
        files["options"]["maxFilesPerTrigger"] = "1"
        runs.append(one.start(sql(files, table("lake.air.shared"))))
    for run in runs:
        if "already exists" in (failed := one.failed(run)):  # both create the table
            failed = one.failed(one.again(run))
        assert failed == ""
    out = one.data / "shared-out"
    files = {"format": "json", "options": {"path": str(out)}}
    one.completed(one.start(sql(table("lake.air.shared"), files)))
    assert [row["id"] for row in rows_of(out)] == [*range(6), *range(100, 106)]


def test_a_killed_driver_and_a_killed_catalog_lose_no_row_and_repeat_none(tmp_path: Path) -> None:
    if missing := pieces.missing_rest_catalog():
        pytest.skip(missing)
    catalog = RealCatalog(tmp_path, tmp_path / "home" / "data" / "lake")
    catalog.start()
    catalogs = (declared(catalog.uri),)
    home = tmp_path / "home"
    for number in range(12):
        write_rows(home / "data" / "in", f"{number}.json", [{"id": number, "name": "one"}])
    files = of_files(home / "data" / "in")
    files["options"]["maxFilesPerTrigger"] = "1"
    spec = sql(files, table("lake.air.counted"))
    try:
        with lake(home, "iceberg", SPARK, {}, catalogs=catalogs) as one:
            one.batches(one.start(spec), 3)
            one.driver.kill_python()
            one.driver.wait_exit()
        with lake(home, "iceberg", SPARK, {}, catalogs=catalogs, epoch=2) as one:
            run = one.start(spec)
            one.batches(run, 6)
            catalog.kill()
            has_failed = bool(one.failed(run))  # a fast query may have ended before
            catalog.start()
            if has_failed:
                one.completed(one.again(run))
            out = home / "data" / "out"
            sink = {"format": "json", "options": {"path": str(out)}}
            one.completed(one.start(sql(table("lake.air.counted"), sink)))
        assert [row["id"] for row in rows_of(out)] == list(range(12))
    finally:
        catalog.kill()


# --- a hostile server ------------------------------------------------------------------

SECRET = "an-id:the-clients-secret"
TOKEN = "the-bearer-token"
NOOP = {"format": "noop"}


@pytest.fixture(scope="module")
def driver_of_hostile(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Lake, HostileCatalog]]:
    home = tmp_path_factory.mktemp("hostile")
    secrets = home / "secrets"
    secrets.mkdir()
    (secrets / "credential").write_text(SECRET)
    (secrets / "token").write_text(TOKEN)
    with hostile_catalog() as server:
        catalogs = (
            declared(server.uri, "evil", secret="file:credential"),
            declared(server.uri, "bearer", secret="file:token", auth=CatalogAuth.TOKEN),
        )
        with lake(home, "iceberg", SPARK, {}, catalogs=catalogs, secrets_dir=str(secrets)) as one:
            server.location = str(one.data / "people")
            yield one, server


@pytest.fixture
def hostile(driver_of_hostile: tuple[Lake, HostileCatalog]) -> tuple[Lake, HostileCatalog]:
    driver_of_hostile[1].reset()
    return driver_of_hostile


def reads(name: str = "evil", text: str = "") -> dict[str, Any]:
    return sql(table(f"{name}.air.people"), NOOP, text)


@pytest.mark.guarantee("G-CATALOG-5")
def test_no_key_of_a_server_takes_effect(hostile: tuple[Lake, HostileCatalog]) -> None:
    one, server = hostile
    one.completed(one.start(reads()))  # without any, the table is read
    keys = {
        "io-impl": "org.example.Evil",
        "metrics-reporter-impl": "org.example.Evil",
        "client.credentials-provider": "org.example.Evil",
        "s3.endpoint": "http://127.0.0.1:9",
        "s3.remote-signing-enabled": "true",
        "oauth2-server-uri": "http://127.0.0.1:9",
        "uri": "http://127.0.0.1:9",
        "rest.auth.type": "org.example.Evil",
    }
    for number, (key, value) in enumerate(keys.items()):
        first, second = {"overrides": {key: value}}, {"config": {key: value}}
        server.config, server.load = (first, {}) if number % 2 else ({}, second)
        said = one.failed(one.start(reads()))
        assert f"Catalog evil: the server sets {key} to" in said, said


@pytest.mark.guarantee("G-CATALOG-7")
def test_no_file_outside_the_allowed_paths_is_opened_for_a_server(
    hostile: tuple[Lake, HostileCatalog],
) -> None:
    one, server = hostile
    outside = str(one.data.parent / "elsewhere")
    list_at = f"{outside}/snap-7.avro"
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"metadata-location": f"{outside}/v1.json"}, {}),
        ({}, {"location": outside}),
        ({}, {"properties": {"write.data.path": outside}}),
        ({}, snapshot(**{"manifest-list": list_at})),
    ]
    named = "SELECT read.id FROM read JOIN evil.air.people AS other USING (id)"
    write_rows(one.data / "numbers", "1.json", ROWS)
    in_sql = sql(of_files(one.data / "numbers"), NOOP, named)
    into = sql(of_files(one.data / "numbers"), table("evil.air.people"))
    for (server.load, server.table), spec in zip(
        cases, (reads(), in_sql, into, reads()), strict=True
    ):
        said = one.failed(one.start(spec))
        assert outside in said, said
        assert "outside the allowed paths" in said
    listed = snapshot(**{"manifests": [f"{outside}/m.avro"], "sequence-number": 0})
    server.load, server.table = {}, {**listed, "format-version": 1}  # which has manifest files only
    said = one.failed(one.start(reads()))
    assert "the table's metadata is not known" in said, said


@pytest.mark.guarantee("G-CATALOG-7")
def test_a_sink_does_not_write_where_the_server_creates_its_table(
    hostile: tuple[Lake, HostileCatalog],
) -> None:
    one, server = hostile
    outside = one.data.parent / "chosen"
    server.missing, server.table = True, {"location": str(outside)}
    write_rows(one.data / "created", "1.json", ROWS)
    said = one.failed(one.start(sql(of_files(one.data / "created"), table("evil.air.fresh"))))
    assert "Catalog evil: the table's location" in said, said
    assert not outside.exists()


@pytest.mark.guarantee("G-CATALOG-7")
def test_a_table_that_moves_while_a_query_runs_ends_the_query(
    hostile: tuple[Lake, HostileCatalog],
) -> None:
    one, server = hostile
    trigger = {"kind": "processing_time", "interval": "200 milliseconds"}
    run = one.start({**reads(), "trigger": trigger})
    one.running(run)
    server.table = {"location": "/etc"}
    assert "the table's location /etc is outside the allowed paths" in one.failed(run)


@pytest.mark.guarantee("G-CATALOG-5")
def test_a_view_of_a_server_is_not_read(hostile: tuple[Lake, HostileCatalog]) -> None:
    one, server = hostile
    server.view, server.missing = True, True
    server.config = {"overrides": {"view-endpoints-supported": "true"}}
    write_rows(one.data / "viewed", "1.json", ROWS)
    text = "SELECT read.id FROM read JOIN evil.air.people AS other USING (id)"
    said = one.failed(one.start(sql(of_files(one.data / "viewed"), NOOP, text)))
    assert "Catalog evil: the name is that of a view" in said, said


@pytest.mark.guarantee("G-CATALOG-6")
def test_credentials_of_a_server_are_neither_requested_nor_used_unless_declared(
    hostile: tuple[Lake, HostileCatalog],
) -> None:
    one, server = hostile
    issued = {"s3.access-key-id": "AKIA-issued", "s3.secret-access-key": "issued-by-server"}
    for server.load in (
        {"config": issued},
        {"storage-credentials": [{"prefix": "s3", "config": issued}]},
    ):
        said = one.failed(one.start(reads()))
        assert "Ask an admin to allow vended credentials" in said, said
        assert "issued" not in said
    assert not any("X-Iceberg-Access-Delegation" in seen[2] for seen in server.requests)


@pytest.mark.s3
@pytest.mark.guarantee("G-CATALOG-6")
def test_vended_credentials_open_the_storage_of_a_table(tmp_path: Path, s3: S3Store) -> None:
    write_rows(tmp_path / "home" / "data" / "in", "1.json", ROWS)
    properties = {
        "s3.endpoint": s3.endpoint,
        "s3.path-style-access": "true",
        "client.region": "us-east-1",
    }
    with hostile_catalog() as server:
        server.missing, server.location = True, f"s3://{s3.bucket}/vended"
        issued = {"s3.access-key-id": s3.access_key, "s3.secret-access-key": s3.secret_key}
        server.load = {"config": issued}
        catalog = declared(server.uri, "vended", vended=True, properties=properties)
        with lake(
            tmp_path / "home", "iceberg", SPARK, {}, bucket=f"s3://{s3.bucket}", catalogs=(catalog,)
        ) as one:
            sink = table("vended.air.people")
            said = one.failed(
                one.start(sql(of_files(one.data / "in"), sink, "SELECT id FROM read"))
            )
        assert list((s3.folder / "vended" / "data").glob("*.parquet")), said  # before it commits
        assert all(seen[2].get("X-Iceberg-Access-Delegation") for seen in server.requests)


@pytest.mark.guarantee("G-CATALOG-8")
def test_the_secret_goes_to_the_catalog_and_nowhere_else(
    hostile: tuple[Lake, HostileCatalog],
) -> None:
    one, server = hostile
    one.completed(one.start(reads()))
    forms = [body for _, path, _, body in server.requests if path.endswith("/oauth/tokens")]
    assert any("the-clients-secret" in form for form in forms)
    assert server.requests[-1][2]["Authorization"] == "Bearer issued-token"
    server.requests.clear()
    one.completed(one.start(reads("bearer")))
    assert {seen[2]["Authorization"] for seen in server.requests} == {f"Bearer {TOKEN}"}

    out = one.data / "revealed"
    keys = ("evil.credential", "bearer.token", "evil.uri")
    text = ", ".join(f"'<${{spark.sql.catalog.{key}}}>' AS c{n}" for n, key in enumerate(keys))
    write_rows(one.data / "one-row", "1.json", ROWS[:1])
    files = {"format": "json", "options": {"path": str(out)}}
    one.completed(
        one.start(sql(of_files(one.data / "one-row"), files, f"SELECT id, {text} FROM read"))
    )
    [row] = rows_of(out)
    assert {row["c0"], row["c1"], row["c2"]} <= {"<>", "<*********(redacted)>"}
    for file in one.driver.directory.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert b"the-clients-secret" not in content, file
            assert TOKEN.encode() not in content, file


@pytest.mark.guarantee("G-CATALOG-8")
def test_a_sessions_configuration_does_not_lead_a_catalog_elsewhere(
    hostile: tuple[Lake, HostileCatalog],
) -> None:
    one, server = hostile
    with hostile_catalog() as other:
        conf = {"spark.sql.catalog.evil.uri": other.uri}
        failed = one.failed(one.start({**reads(), "conf": conf}))
        assert other.requests == []
        assert failed == ""
    assert server.requests
