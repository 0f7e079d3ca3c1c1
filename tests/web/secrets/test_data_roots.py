"""Settings → Allowed paths: what an upgrade proposes is given by a button only."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.grants import GivenRoot
from tests.scenarios.stage import Stage
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db

URL = "/settings/allowed-paths/"


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    settings.ALLOWED_PATHS = [str(tmp_path / "data")]
    settings.OWN_FOLDERS = [tmp_path / "own"]
    settings.CHECKPOINTS_DIR = tmp_path / "own/checkpoints"
    return tmp_path


@pytest.fixture
def ada(client: Client, admin: User) -> Client:
    client.force_login(admin)
    return client


@pytest.mark.guarantee("G-PATH-9")
def test_places_in_use_outside_of_the_roots_are_proposed_and_given_by_a_button(
    ada: Client, stage: Stage, home: Path
) -> None:
    stage.query("delays", sink={"format": "json", "options": {"path": f"{home}/old/out"}})
    stage.query("theft", sink={"format": "json", "options": {"path": f"{home}/own/key"}})
    stage.row("delays").checkpoints.update(location=f"file://{home}/data/c")
    stage.row("theft").checkpoints.update(location=f"file://{home}/data/d")
    page = Page(ada, URL)
    assert "Outside the allowed paths" in page.text
    assert f"query delays: sink.options.path {home}/old/out" in page.text
    assert "none: it belongs to Headgate" in page.text
    assert page.text.count("Allow /") == 1
    assert not GivenRoot.objects.exists()
    ada.post(URL, {"application": "delays", "path": f"{home}/old"})
    shown = Page(ada, URL).text
    assert f"delays can use {home}/old." in shown
    assert "query delays" not in shown
    row = GivenRoot.objects.get()
    ada.post(f"{URL}{row.pk}/take/")
    assert "query delays" in Page(ada, URL).text


def test_what_cannot_be_given_is_said_beside_its_field(ada: Client, home: Path) -> None:
    answer = ada.post(URL, {"application": "a", "path": f"{home}/own/drivers"})
    assert answer.status_code == 422
    assert "belongs to Headgate itself." in answer.content.decode()
    answer = ada.post(URL, {"application": "", "path": "data"})
    assert "The application is missing." in answer.content.decode()
    assert "is not absolute" in answer.content.decode()


def test_nobody_but_an_admin_sees_it_or_gives(client: Client, author: User) -> None:
    client.force_login(author)
    assert client.get(URL).status_code == 403
    assert client.post(URL, {"application": "a", "path": "/data"}).status_code == 403
    assert not GivenRoot.objects.exists()
