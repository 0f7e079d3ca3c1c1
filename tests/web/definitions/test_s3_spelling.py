"""A form accepts EMR's `s3://`, and says that it stores `s3a://`."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from queries.models.applications import Application
from queries.models.definitions import Query
from tests.web.browserless import Page

NOTE = "is stored with s3a:// instead of s3://, which only EMR knows."


@pytest.fixture
def signed_in(client: Client, author: User, settings: Settings, tmp_path: Path) -> Client:
    settings.ALLOWED_PATHS = ["/", "s3a://lake"]
    settings.CONNECTORS_DIR = tmp_path
    installed = tmp_path / "s3"
    installed.mkdir()
    (installed / "hadoop-aws.jar").touch()
    client.force_login(author)
    return client


def test_an_application_and_its_query_are_saved_with_a_note(signed_in: Client) -> None:
    form = Page(signed_in, "/new/application/", form="definition")
    after = form.press(
        "create", name="lake", connectors="s3", conf="spark.sql.warehouse.dir = s3://lake/w"
    )
    assert f"spec.conf.spark.sql.warehouse.dir {NOTE}" in after.text
    conf = Application.objects.get().revisions.get().spec["conf"]
    assert conf == {"spark.sql.warehouse.dir": "s3a://lake/w"}
    form = Page(signed_in, "/new/query/?application=lake", form="definition")
    after = form.press(
        "create",
        name="delays",
        sources__0__name="flights",
        sources__0__format="json",
        sources__0__options="path = s3://lake/in",
        sources__0__ddl_schema="carrier STRING",
        sql="SELECT * FROM flights",
        sink_format="noop",
    )
    assert f"spec.sources.0.options.path {NOTE}" in after.text
    query = Query.objects.get()
    assert query.revisions.get().spec["sources"][0]["options"] == {"path": "s3a://lake/in"}
    # The same path in the old spelling is not a difference.
    form = Page(signed_in, "/queries/delays/edit/", form="definition")
    shown = form.press("review", sources__0__options="path = s3://lake/in")
    assert "Saving creates revision" not in shown.text
    shown = form.press("review", sources__0__options="path = s3://lake/other")
    after = shown.press("save")
    assert f"spec.sources.0.options.path {NOTE}" in after.text
    assert query.revisions.count() == 2
    form = Page(signed_in, "/applications/lake/edit/", form="definition")
    shown = form.press("review", conf="spark.sql.warehouse.dir = s3://lake/v")
    assert f"spec.conf.spark.sql.warehouse.dir {NOTE}" in shown.press("save").text
