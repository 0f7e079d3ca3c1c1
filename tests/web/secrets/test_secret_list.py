"""Settings → Secrets: names, who names them, and whom they are bound to; for admins."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.grants import SecretBinding
from tests.scenarios.stage import Stage
from tests.services.secrets.binding import bind
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db

URL = "/settings/secrets/"
KAFKA = {
    "name": "in",
    "format": "kafka",
    "options": {
        "kafka.bootstrap.servers": "broker:9092",
        "subscribe": "in",
        "kafka.sasl.jaas.config": "file:jaas",
    },
}


@pytest.fixture(autouse=True)
def secrets(settings: Any, tmp_path: Path) -> None:
    settings.SECRETS_DIR = tmp_path
    settings.SECRET_ENV_ALLOWLIST = ["API_KEY"]
    (tmp_path / "jaas").write_text("the-value-of-it")
    (tmp_path / "not a name").write_text("the-value-of-it")


@pytest.fixture
def ada(client: Client, admin: User) -> Client:
    client.force_login(admin)
    return client


@pytest.mark.sql("queries.selectors.secrets.holder_names")
def test_names_are_listed_and_no_value(ada: Client) -> None:
    shown = Page(ada, URL).text
    assert "env:API_KEY" in shown
    assert "file:jaas" in shown
    assert "Not used by any definition." in shown
    assert "not a name" not in shown
    assert "the-value-of-it" not in ada.get(URL).content.decode()


def test_what_is_refused_is_told_where_it_is_named_and_mended_by_one_form(
    ada: Client, stage: Stage
) -> None:
    stage.query("delays", sources=[KAFKA])
    page = Page(ada, URL)
    assert "query delays" in page.text
    assert "It is not granted to application delays." in page.text
    link = page.html.split("Fill in the form")[0].rpartition('href="')[2].partition('"')[0]
    form = {
        "secret": "file:jaas",
        "holder_kind": "application",
        "holder": "delays",
        "hosts": "broker:9092",
    }
    for value in form.values():
        assert value in ada.get(link.replace("&amp;", "&")).content.decode()
    ada.post(URL, form)
    shown = Page(ada, URL).text
    assert "file:jaas is granted to application delays." in shown
    assert "is not granted" not in shown
    row = SecretBinding.objects.get()
    assert (row.hosts, row.given_by) == (["broker:9092"], "ada")


def test_a_binding_is_taken_away_by_a_button(ada: Client) -> None:
    row = bind("file:jaas", "orders")
    assert "anywhere" in Page(ada, URL).text
    ada.post(f"{URL}{row.pk}/unbind/")
    shown = Page(ada, URL).text
    assert "file:jaas is no longer granted to application orders." in shown
    assert "revoked" in shown
    assert ada.post(f"{URL}{row.pk}/unbind/").status_code == 404


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("secret", "hunter2", "The secret is not a valid secret reference."),
        ("hosts", "https://x", "“https://x” is not a valid host."),
        ("hosts", "", "It must list 1 to 100 hosts."),
        ("holder", "", "The name is missing."),
        ("holder", "No Name!", "is not a valid name"),
    ],
)
def test_what_cannot_be_bound_is_said_beside_its_field(
    ada: Client, field: str, value: str, said: str
) -> None:
    form = {"secret": "file:jaas", "holder_kind": "application", "holder": "orders", "hosts": "*"}
    answer = ada.post(URL, {**form, field: value})
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert not SecretBinding.objects.exists()


def test_nobody_but_an_admin_sees_it_or_binds(client: Client, author: User) -> None:
    row = bind("file:jaas", "orders")
    client.force_login(author)
    assert client.get(URL).status_code == 403
    assert client.post(URL, {}).status_code == 403
    assert client.post(f"{URL}{row.pk}/unbind/").status_code == 403
    assert "Secrets" not in client.get("/").content.decode()
