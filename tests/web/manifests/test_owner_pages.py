"""The page of an object says whose it is, and what was edited since its file was applied."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.manifests.sets import parse_set
from queries.models.alerts import AlertRule, Channel
from queries.models.definitions import Query
from queries.services.alerts.setup import save_rule
from queries.services.definitions.catalog import create_query, revise_query
from queries.services.definitions.rights import relabel
from queries.services.manifests.applying import apply_set
from tests.api.manifests.conftest import application, body, query

pytestmark = pytest.mark.django_db


@pytest.fixture
def _applied(author: User) -> None:
    """Apply an application and a query as Aude."""
    source: Any = {"repository": "git@example.org:data/queries", "commit": "c" * 40}
    sent = body(application("flights"), query("delays", application="flights"), source=source)
    apply_set(parse_set(sent), user=author, actor="aude", via="rest", now=timezone.now())


def page(client: Client, viewer: User, address: str) -> str:
    """Return a page as Vera sees it."""
    client.force_login(viewer)
    return client.get(address).content.decode()


@pytest.mark.usefixtures("_applied")
def test_a_page_says_whose_an_object_is(client: Client, viewer: User) -> None:
    for address in ("/queries/delays/definition/", "/applications/flights/"):
        text = page(client, viewer, address)
        assert "git@example.org:data/queries at cccccccccccc" in text
        assert "unchanged" in text
        assert "Edited since" not in text


@pytest.mark.usefixtures("_applied")
def test_an_edit_is_shown_with_how_to_settle_it(client: Client, viewer: User) -> None:
    row = Query.objects.get(name="delays")
    spec = row.revisions.get().spec | {"description": "by hand"}
    now = timezone.now()
    revise_query(query=row, spec=spec, expected_revision=1, actor="aude", now=now)
    relabel(row.application, {"tier": "1"}, actor="aude", now=now)
    text = page(client, viewer, "/queries/delays/definition/")
    assert "Edited since" in text
    assert "spec.description" in text
    assert "export query delays" in text
    assert "metadata.labels.tier" in page(client, viewer, "/applications/flights/")


def test_what_no_file_owns_says_nothing(client: Client, viewer: User) -> None:
    spec = query("alone")["spec"]
    create_query(name="alone", spec=spec, actor="aude", now=timezone.now())
    assert "Managed by a file" not in page(client, viewer, "/queries/alone/definition/")


@pytest.mark.usefixtures("_applied")
@pytest.mark.parametrize(
    ("place", "release"),
    [
        ("/queries/delays/definition/", "/queries/delays/release/"),
        ("/applications/flights/", "/applications/flights/release/"),
    ],
)
def test_an_author_releases_an_object_from_its_owner(
    client: Client, author: User, viewer: User, place: str, release: str
) -> None:
    assert release not in page(client, viewer, place)
    assert release in page(client, author, place)
    assert "no longer controls it" in page(client, author, release)
    answer = client.post(release, follow=True)
    assert "no longer has an owner" in answer.content.decode()
    assert "Managed by a file" not in page(client, author, place)


def test_a_rules_page_says_whose_it_is_and_an_admin_releases_it(
    client: Client, admin: User
) -> None:
    now = timezone.now()
    Channel.objects.create(name="ops", kind="mail", settings={}, created_at=now)
    head = {"apiVersion": "headgate/v1", "kind": "AlertRule", "metadata": {"name": "nights"}}
    sent = body({**head, "spec": {"channels": ["ops"], "remind_every_hours": 2}})
    apply_set(parse_set(sent), user=admin, actor="root", via="rest", now=now)
    assert "unchanged" in page(client, admin, "/alerts/rules/nights/")
    rule = AlertRule.objects.get()
    save_rule({"name": "nights", "channels": ["ops"]}, rule=rule, actor="root", now=now)
    text = page(client, admin, "/alerts/rules/nights/")
    assert "Edited since" in text
    assert "spec.remind_every_hours" in text
    assert "/alerts/rules/nights/release/" in text
    client.post("/alerts/rules/nights/release/")
    assert "Managed by a file" not in page(client, admin, "/alerts/rules/nights/")
