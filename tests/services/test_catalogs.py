"""Admins declare catalogs; applications of allowed teams use them by name."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from queries.domain.catalogs import CatalogSpec
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import Conflict, Invalid, Missing
from queries.domain.tables.places import source_tables
from queries.models.access.accounts import Team
from queries.models.access.audit import AuditEntry
from queries.models.applications import Application
from queries.models.catalogs import Catalog
from queries.models.grants import SecretBinding
from queries.roles import AuthorRights
from queries.selectors.supervision.applications import drift
from queries.selectors.tables import conf_of
from queries.services.access.teams import create_team, delete_team
from queries.services.catalogs import change_catalog, declare_catalog, delete_catalog
from queries.services.definitions import catalog as definitions
from queries.services.definitions.rights import give_application
from queries.services.secrets import application_refusal
from queries.services.supervision.assignments import driver_spec
from tests.scenarios.stage import Stage
from tests.services.secrets.binding import bind

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LAKE = {"name": "lake", "type": "rest", "address": "https://catalog.example.org/api"}
USES = {"spark": "4.1", "connectors": ["iceberg"], "catalogs": ["lake"]}
READS = {
    "kind": "sql",
    "sources": [{"name": "f", "format": "iceberg", "options": {"table": "lake.air.flights"}}],
    "sql": "SELECT * FROM f JOIN lake.air.airports USING (code)",
    "sink": {"format": "noop"},
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Settings) -> None:
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"
    settings.CONNECTORS_DIR = tmp_path / "connectors"
    settings.SPARKS_DIR = tmp_path / "sparks"
    settings.SECRET_ENV_ALLOWLIST = ("LAKE_KEY", "OTHER")
    for name in ("iceberg", "s3"):
        (settings.CONNECTORS_DIR / "4.1" / name).mkdir(parents=True)
        (settings.CONNECTORS_DIR / "4.1" / name / "one.jar").touch()
    (settings.SPARKS_DIR / "4.1" / "pyspark").mkdir(parents=True)


def declare(**changes: Any) -> Catalog:
    return declare_catalog({**LAKE, **changes}, actor="ada", now=NOW)


def application(name: str = "flights", team: Team | None = None, **spec: Any) -> Application:
    return definitions.create_application(
        name=name, team=team, spec={**USES, **spec}, actor="ana", now=NOW, rights=AuthorRights.ALL
    )


def sentences(error: pytest.ExceptionInfo[Invalid]) -> dict[str, str]:
    return {problem.field: problem.sentence() for problem in error.value.problems}


def test_a_catalog_is_declared_changed_and_deleted_with_an_audit_entry_each() -> None:
    row = declare()
    assert declare().pk == row.pk  # an identical one is not declared again
    form = {"type": "rest", "address": "https://new.example.org"}
    change_catalog(row, form, actor="ada", now=NOW + timedelta(minutes=1))
    row.refresh_from_db()
    assert row.address == "https://new.example.org"
    assert row.changed_at == NOW + timedelta(minutes=1)
    delete_catalog(row, actor="ada", now=NOW)
    assert not Catalog.objects.exists()
    entries = AuditEntry.objects.filter(kind="catalog", subject="lake").order_by("pk")
    assert [entry.details["did"] for entry in entries] == ["declared", "changed", "deleted"]


def test_another_catalog_of_the_same_name_is_rejected() -> None:
    declare()
    with pytest.raises(Invalid) as error:
        declare(address="https://other.example.org")
    assert "is the name of another catalog" in sentences(error)["name"]


@pytest.mark.guarantee("G-CATALOG-3")
def test_a_secret_must_be_granted_to_the_catalog_for_its_address() -> None:
    with pytest.raises(Invalid) as error:
        declare(secret="env:LAKE_KEY")
    assert "Ask an admin to grant env:LAKE_KEY to catalog lake" in sentences(error)["secret"]
    assert "catalog.example.org" in sentences(error)["secret"]
    bind("env:LAKE_KEY", "lake", "elsewhere.example.org", kind="catalog")
    with pytest.raises(Invalid):
        declare(secret="env:LAKE_KEY")
    bind("env:LAKE_KEY", "lake", "*.example.org", kind="catalog")
    declare(secret="env:LAKE_KEY")
    with pytest.raises(Invalid) as error:  # its OAuth2 server gets it, too
        change_catalog(
            Catalog.objects.get(),
            {
                "type": "rest",
                "address": LAKE["address"],
                "secret": "env:LAKE_KEY",
                "properties": {"oauth2-server-uri": "https://idp.other.org/token"},
            },
            actor="ada",
            now=NOW,
        )
    assert "idp.other.org" in sentences(error)["secret"]


def test_a_deleted_catalogs_grants_are_not_inherited() -> None:
    bind("env:LAKE_KEY", "lake", kind="catalog")
    delete_catalog(declare(), actor="ada", now=NOW)
    assert not SecretBinding.objects.filter(taken_at=None).exists()


def test_an_unknown_team_is_rejected() -> None:
    with pytest.raises(Invalid) as error:
        declare(teams=["nobody"])
    assert "is not an existing team" in sentences(error)["teams"]


def test_a_table_of_a_declared_catalog_can_be_read_and_joined() -> None:
    declare()
    application()
    query = definitions.create_query(
        name="delays", application="flights", spec=READS, actor="ana", now=NOW
    )
    assert query.name == "delays"


def test_without_the_catalogs_name_its_tables_are_rejected_with_the_way_out() -> None:
    declare()
    application(catalogs=[])
    with pytest.raises(Invalid) as error:
        definitions.create_query(
            name="delays", application="flights", spec=READS, actor="ana", now=NOW
        )
    assert "Write lake in the application's catalogs" in sentences(error)["sources.0.options.table"]


def test_an_unknown_catalog_is_rejected_with_those_that_can_be_used() -> None:
    declare(name="pond")
    with pytest.raises(Invalid) as error:
        application()
    assert "Choose pond, or ask an administrator" in sentences(error)["catalogs.0"]


def test_a_catalog_requires_the_connectors_that_read_it() -> None:
    declare(vended=True)
    with pytest.raises(Invalid) as error:
        application(connectors=[])
    assert {one.message for one in error.value.problems} == {
        "must include iceberg, which lake requires.",
        "must include s3, which lake requires.",
    }


@pytest.mark.guarantee("G-CATALOG-2")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog"),
        ("spark.sql.catalog.lake.type", "hadoop"),
        ("spark.sql.catalog.lake.warehouse", "s3a://bucket/other"),
        ("spark.sql.catalog.lake.hadoop.fs.s3a.endpoint", "other.example.org"),
        ("spark.sql.catalog.lake.cache-enabled", "false"),
    ],
)
def test_no_definition_changes_a_declared_catalog(key: str, value: str) -> None:
    declare()
    with pytest.raises(Invalid) as error:
        application(conf={key: value})
    assert any("belongs to a catalog that an admin" in one.message for one in error.value.problems)
    application()
    with pytest.raises(Invalid) as error:
        definitions.create_query(
            name="delays",
            application="flights",
            spec={**READS, "conf": {key: value}},
            actor="ana",
            now=NOW,
        )
    assert any("belongs to a catalog that an admin" in one.message for one in error.value.problems)


@pytest.mark.guarantee("G-CATALOG-4")
def test_only_applications_of_its_teams_can_use_a_catalog() -> None:
    data, web = (create_team(name=name, actor="ada", now=NOW) for name in ("data", "web"))
    declare(teams=["data"])
    application(team=data)
    for team, whom in ((web, "team web"), (None, "applications without a team")):
        with pytest.raises(Invalid) as error:
            application("other", team=team)
        assert f"is not available to {whom}" in sentences(error)["catalogs.0"]


def test_a_catalog_that_is_deleted_in_the_meantime_is_not_declared_again_by_a_change() -> None:
    row = declare()
    delete_catalog(Catalog.objects.get(pk=row.pk), actor="ada", now=NOW)
    with pytest.raises(Missing, match="Catalog lake does not exist"):
        change_catalog(row, {"type": "rest", "address": "https://b.example"}, actor="ada", now=NOW)
    assert not Catalog.objects.exists()


def test_a_deleted_applications_storage_jvm_is_still_started_to_remove_its_snapshots() -> None:
    declare()
    row = application()
    row.archived_at = NOW
    row.save()
    spec = ApplicationSpec.model_validate(row.revisions.get().spec)
    assert application_refusal(spec, row) == ""


def test_a_team_with_a_catalog_of_its_own_is_not_deleted() -> None:
    team = create_team(name="data", actor="ada", now=NOW)
    declare(teams=["data"])
    with pytest.raises(Conflict, match="Catalog lake is available to this team only"):
        delete_team(team, actor="ada", now=NOW)


def test_a_catalog_in_use_is_not_deleted() -> None:
    row = declare()
    application()
    with pytest.raises(Conflict, match="Catalog lake is used by application flights"):
        delete_catalog(row, actor="ada", now=NOW)


def _launched(**spec: Any) -> Stage:
    stage = Stage()
    stage.application("orders", **{"catalogs": ["lake"], **spec})
    stage.query("delays", "orders")
    stage.start("delays")
    return stage


def test_a_driver_gets_its_catalogs_and_the_name_of_their_secret() -> None:
    bind("env:LAKE_KEY", "lake", kind="catalog")
    declare(secret="env:LAKE_KEY", properties={"prefix": "prod"})
    declare(name="pond")
    stage = _launched()
    given = driver_spec(stage.driver("orders"))
    assert given.catalogs == (
        CatalogSpec(
            name="lake",
            type="rest",  # type: ignore[arg-type]
            address="https://catalog.example.org/api",
            properties={"prefix": "prod"},
            secret="env:LAKE_KEY",
        ),
    )
    assert given.env_allowlist == ("LAKE_KEY",)
    assert not any(key.startswith("spark.sql.catalog.lake") for key in given.conf)


@pytest.mark.guarantee("G-CATALOG-4")
@pytest.mark.parametrize("case", ["missing", "team", "secret"])
def test_an_application_that_cannot_use_its_catalog_any_more_is_not_launched(case: str) -> None:
    expected = "is not a declared catalog"
    if case == "team":
        create_team(name="data", actor="ada", now=NOW)
        declare(teams=["data"])
        expected = "is not available to applications without a team"
    elif case == "secret":
        binding = bind("env:LAKE_KEY", "lake", kind="catalog")
        declare(secret="env:LAKE_KEY")
        SecretBinding.objects.filter(pk=binding.pk).update(taken_at=NOW)
        expected = "is not granted to catalog lake"
    stage = _launched()
    assert not stage.launcher.living()
    assert expected in str(stage.row("delays").application.restart_block_reason)


@pytest.mark.guarantee("G-CATALOG-1")
@pytest.mark.parametrize(
    "conf",
    [
        {"spark.sql.catalog.lake.cache-enabled": "false"},
        {"spark.sql.catalog.pond.type": "rest"},
        {"spark.sql.catalog.pond": "org.apache.iceberg.spark.SparkCatalog"},
    ],
)
@pytest.mark.parametrize("where", ["application", "query"])
def test_a_definition_of_before_that_declares_a_service_is_not_started(
    where: str, conf: dict[str, str]
) -> None:
    declare()
    stage = Stage()
    stage.application("orders", catalogs=["lake"], conf=conf if where == "application" else {})
    stage.query("delays", "orders", conf=conf if where == "query" else {})
    stage.start("delays")
    if where == "application":
        assert not stage.launcher.living()
    else:
        assert stage.launcher.assignment("orders").queries[0].refused


def test_a_changed_catalog_needs_a_restart_of_the_driver() -> None:
    row = declare()
    stage = _launched()
    driver = stage.driver("orders")
    Catalog.objects.update(changed_at=driver.created_at)
    newest = driver.application_revision
    assert drift(driver, newest=newest, pools=[]) == ()
    later = driver.created_at + timedelta(minutes=1)
    form = {"type": "rest", "address": "https://new.example.org"}
    change_catalog(row, form, actor="ada", now=later)
    assert drift(driver, newest=newest, pools=[]) == ("a catalog",)


def test_the_lag_of_a_catalogs_table_is_unknown_with_its_reason() -> None:
    declare()
    conf = conf_of(application())
    (table,) = source_tables(READS, conf)
    assert table is not None
    assert table.problem == "The table is in the catalog service lake, which only Spark reads."


def test_a_team_that_gets_an_application_may_not_have_its_catalog() -> None:
    data, web = (create_team(name=name, actor="ada", now=NOW) for name in ("data", "web"))
    declare(teams=["data"])
    row = application(team=data)
    give_application(application=row, team=web, actor="ada", now=NOW)
    with pytest.raises(Invalid) as error:
        definitions.revise_application(
            application=row,
            spec={**USES, "memory": "2g"},
            actor="ana",
            now=NOW,
            rights=AuthorRights.ALL,
        )
    assert "is not available to team web" in sentences(error)["catalogs.0"]
