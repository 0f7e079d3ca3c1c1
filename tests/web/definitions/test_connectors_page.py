"""Which connectors stand ready is a page, and an application is given them by ticking a box."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from headgate_server.downloads import write_sums
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.services.definitions import catalog
from tests.web.browserless import Page

KAFKA = "kafka.bootstrap.servers = 127.0.0.1:9092"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings: Any) -> Path:
    settings.CONNECTORS_DIR = tmp_path
    return tmp_path


@pytest.fixture
def kafka(folder: Path) -> None:
    (folder / "kafka").mkdir()
    (folder / "kafka" / "spark-sql-kafka-0-10_2.13-4.2.0.jar").write_bytes(b"x" * 4200)
    (folder / "kafka" / "ours.jar").write_bytes(b"x" * 12)


@pytest.fixture
def signed_in(client: Client, author: User) -> Client:
    client.force_login(author)
    return client


def _application(now: datetime, *connectors: str) -> Application:
    return catalog.create_application(
        name="flights", spec={"connectors": connectors}, actor="aude", now=now
    )


def test_without_any_the_page_says_what_gets_one(signed_in: Client) -> None:
    page = Page(signed_in, "/connectors/")
    assert "No connectors installed" in page.text
    assert "`" not in page.text
    for command in ("make kafka", "make connector ARGS=avro", "make connector ARGS=s3"):
        assert f"Install it with <code>{command}</code>." in page.html
    assert "S3 and compatible object stores (s3a://) for checkpoints and files" in page.text


def test_what_is_installed_is_not_offered_again(signed_in: Client, kafka: None) -> None:
    page = Page(signed_in, "/connectors/")
    assert "make kafka" not in page.text
    assert "make connector ARGS=s3" in page.text
    assert 'make connector ARGS="kafka --spark 4.2"' in page.text


def test_what_is_missing_is_shown_with_its_command_and_no_button(
    client: Client, admin: User, tmp_path: Path, settings: Any
) -> None:
    settings.SPARKS_DIR = tmp_path / "none"
    client.force_login(admin)
    page = Page(client, "/connectors/")
    assert "Spark 4.2 is not installed on this host" in page.text
    assert "Install it first with <code>make spark ARGS=4.2</code>." in page.html
    assert 'make connector ARGS="add NAME GROUP:ARTIFACT:VERSION"' in page.text
    system = Page(client, "/settings/system/").html
    assert "Install it with <code>make spark ARGS=4.2</code>." in system
    for path in ("/connectors/install/", "/settings/system/sparks/4.2/install/"):
        assert path not in page.html
        assert client.post(path, {"name": "avro", "spark": "4.2"}).status_code == 404


def test_a_changed_file_is_shown_and_an_unused_connector_is_removed(
    client: Client, admin: User, folder: Path
) -> None:
    client.force_login(admin)
    avro = folder / "avro"
    avro.mkdir()
    (avro / "avro-1.0.jar").write_text("jar")
    write_sums(avro)
    assert "checksums match" in client.get("/connectors/").content.decode()
    (avro / "avro-1.0.jar").write_text("another")
    changed = client.get("/connectors/").content.decode()
    assert "File avro-1.0.jar differs from what was downloaded." in changed
    removed = client.post("/connectors/4.3/avro/remove/", follow=True).content.decode()
    assert "Removed connector avro for Spark 4.3." in removed
    assert not avro.exists()


def test_the_page_system_shows_the_versions_of_spark_and_removes_an_unused_one(
    client: Client, admin: User, tmp_path: Path, settings: Any, now: datetime
) -> None:
    settings.SPARKS_DIR = tmp_path / "sparks"
    for version in ("4.1", "4.2"):
        (tmp_path / "sparks" / version / "pyspark" / "jars").mkdir(parents=True)
        (tmp_path / "sparks" / version / f"pyspark-{version}.7.dist-info").mkdir()
    catalog.create_application(name="older", spec={"spark": "4.1"}, actor="aude", now=now)
    client.force_login(admin)
    page = Page(client, "/settings/system/")
    assert "4.2.7" in page.text
    assert "older" in page.text
    assert "/sparks/4.1/remove/" not in page.html  # it is used
    removed = client.post("/settings/system/sparks/4.2/remove/", follow=True)
    assert "Removed Spark 4.2." in removed.content.decode()


def test_a_ready_one_shows_its_jars_and_who_names_it(
    signed_in: Client, kafka: None, now: datetime
) -> None:
    _application(now, "kafka")
    page = Page(signed_in, "/connectors/")
    assert "Ready" in page.text
    assert "spark-sql-kafka-0-10_2.13" in page.text
    assert "4.2.0" in page.text
    assert "4.2 kB" in page.text
    assert "ours" in page.text  # a jar without a version in its name
    assert "flights" in page.text


@pytest.mark.sql("queries.selectors.definitions.sparks.spark_users")
def test_one_that_was_taken_away_is_named_as_missing_with_the_way_out(
    signed_in: Client, kafka: None, folder: Path, now: datetime
) -> None:
    _application(now, "kafka")
    for jar in (folder / "kafka").glob("*.jar"):
        jar.unlink()
    page = Page(signed_in, "/connectors/")
    assert "Missing" in page.text
    assert "Install it with <code>make kafka</code>." in page.html


def test_an_application_is_given_one_by_its_box(
    signed_in: Client, kafka: None, now: datetime
) -> None:
    application = _application(now)
    form = Page(signed_in, "/applications/flights/edit/?connector=kafka", form="definition")
    assert form.fields["connectors"] == "kafka"  # ticked by the link
    form.press("review").press("save")
    assert application.revisions.order_by("-number")[0].spec["connectors"] == ["kafka"]


def test_a_named_one_that_is_not_there_keeps_its_box(
    signed_in: Client, kafka: None, folder: Path, now: datetime
) -> None:
    _application(now, "kafka")
    for jar in (folder / "kafka").glob("*.jar"):
        jar.unlink()
    form = Page(signed_in, "/applications/flights/edit/", form="definition")
    assert form.fields["connectors"] == "kafka"
    after = form.press("review")
    assert after.status == 422
    assert "is not an installed connector" in after.text


def test_a_kafka_source_without_it_is_refused_and_mended_by_one_click(
    signed_in: Client, kafka: None
) -> None:
    form = Page(signed_in, "/new/query/", form="definition")
    after = form.press(
        "create",
        name="copy",
        sources__0__name="flights",
        sources__0__format="kafka",
        sources__0__options=f"{KAFKA}\nsubscribe = flights",
        sql="SELECT value FROM flights",
        sink_format="noop",
    )
    assert after.status == 422
    assert "needs the kafka connector" in after.error_at("sources-0-format")
    assert "Add connector kafka to its driver" in after.text

    given = after.press("connect-kafka")
    given.press("create")

    made = Query.objects.get(name="copy").application
    assert made.revisions.get().spec["connectors"] == ["kafka"]


def test_a_shared_application_that_lacks_it_is_one_link_away(
    signed_in: Client, kafka: None, now: datetime
) -> None:
    _application(now)
    form = Page(signed_in, "/new/query/?application=flights", form="definition")
    after = form.press(
        "create",
        name="copy",
        sources__0__name="flights",
        sources__0__format="kafka",
        sources__0__options=f"{KAFKA}\nsubscribe = flights",
        sql="SELECT value FROM flights",
        sink_format="noop",
    )
    assert "Add connector kafka to application flights" in after.text
    assert "/applications/flights/edit/?connector=kafka" in after.html


def test_a_table_that_the_spark_has_no_release_for_names_those_that_have_and_offers_no_connector(
    signed_in: Client,
) -> None:
    form = Page(signed_in, "/new/query/", form="definition")
    after = form.press(
        "create",
        name="copy",
        sources__0__name="flights",
        sources__0__format="rate",
        sql="SELECT value FROM flights",
        sink_format="delta",
        sink_options="path = /data/copy",
    )
    assert after.status == 422
    assert "has no release for Spark 4.3. Choose Spark 4.2, 4.1, 4.0 or 3.5." in after.text
    assert "Add connector" not in after.text
