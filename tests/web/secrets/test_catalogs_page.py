"""Settings → Catalogs: an admin declares, changes and deletes catalogs."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.catalogs import Catalog
from tests.scenarios.stage import Stage
from tests.services.secrets.binding import bind
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db

URL = "/settings/catalogs/"
LAKE = {
    "change": "",
    "name": "lake",
    "type": "rest",
    "address": "https://catalog.example.org",
    "properties": "prefix = prod\n\nscope = a=b",
    "auth": "token",
}


def test_a_catalog_is_declared_changed_and_deleted(client: Client, admin: User) -> None:
    client.force_login(admin)
    assert "No catalogs. Applications" in Page(client, URL).text
    client.post(URL, LAKE)
    row = Catalog.objects.get()
    assert row.properties == {"prefix": "prod", "scope": "a=b"}
    assert "Catalog lake is saved." in Page(client, URL).text
    form = client.get(f"{URL}?change=lake").content.decode()
    assert 'value="https://catalog.example.org"' in form
    assert "Change lake" in form
    changed = {**LAKE, "change": "lake", "address": "https://new.example.org", "vended": "on"}
    client.post(URL, changed)
    row.refresh_from_db()
    assert (row.address, row.vended) == ("https://new.example.org", True)
    client.post(f"{URL}lake/delete/")
    assert "Catalog lake is deleted." in Page(client, URL).text


def test_a_second_catalog_does_not_replace_the_first(client: Client, admin: User) -> None:
    client.force_login(admin)
    client.post(URL, LAKE)
    answer = client.post(URL, {**LAKE, "address": "https://other.example.org"})
    assert answer.status_code == 422
    assert "is the name of another catalog." in answer.content.decode()
    assert Catalog.objects.get().address == "https://catalog.example.org"


def test_a_problem_is_shown_at_its_field_without_the_value_of_a_secret(
    client: Client, admin: User
) -> None:
    client.force_login(admin)
    answer = client.post(URL, {**LAKE, "properties": "token = hunter2", "address": "jdbc:x"})
    assert answer.status_code == 422
    text = answer.content.decode()
    assert 'id="properties-error"' in text
    assert "properties.token" in text
    assert 'id="address-error"' in text


def test_a_catalog_in_use_is_kept(client: Client, admin: User) -> None:
    client.force_login(admin)
    client.post(URL, LAKE)
    Stage().application("orders", catalogs=["lake"])
    client.post(f"{URL}lake/delete/", headers={"Referer": f"http://testserver{URL}"})
    assert "Catalog lake is used by application orders" in Page(client, URL).text
    assert Catalog.objects.exists()


def test_the_page_of_secrets_links_to_the_catalog_that_uses_one(
    client: Client, admin: User
) -> None:
    client.force_login(admin)
    bind("file:lake", "lake", "catalog.example.org", kind="catalog")
    client.post(URL, {**LAKE, "secret": "file:lake"})
    assert "catalog lake" in Page(client, "/settings/secrets/").text
