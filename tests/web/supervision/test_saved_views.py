"""People keep their views of the list, and act on all that match, not on a page alone."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.access.accounts import SavedView
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.services import saved_views
from queries.views.supervision import actions
from tests.scenarios.stage import Stage
from tests.services.bulk import advance_many
from tests.web.browserless import Page


def _keep(client: Client, name: str, **asked: str) -> Any:
    return client.post("/saved-views/", {"view": name, **asked}, follow=True)


def test_a_view_is_kept_leads_back_and_is_forgotten(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.query("delays")
    client.force_login(viewer)
    _keep(client, " my  team ", label="team=data", by="application")
    page = Page(client, "/queries/")
    assert 'href="?label=team%3Ddata&amp;by=application">my team</a>' in page.html
    view = SavedView.objects.get()
    client.post(f"/saved-views/{view.pk}/forget/")
    assert "my team" not in Page(client, "/queries/").html


def test_one_of_the_same_name_is_replaced(client: Client, viewer: User, stage: Stage) -> None:
    stage.query("delays")
    client.force_login(viewer)
    _keep(client, "mine", q="delays")
    _keep(client, "mine", q="flights")
    assert [view.address for view in SavedView.objects.all()] == ["q=flights"]


def test_views_are_ones_own(client: Client, viewer: User, operator: User, stage: Stage) -> None:
    stage.query("delays")
    client.force_login(viewer)
    _keep(client, "mine", q="delays")
    client.force_login(operator)
    assert "mine" not in Page(client, "/queries/").html
    client.post(f"/saved-views/{SavedView.objects.get().pk}/forget/")
    assert SavedView.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "asked", "says"),
    [
        ("", {"q": "delays"}, "is not a valid name"),
        ("x" * 81, {"q": "delays"}, "is not a valid name"),
        ("mine", {}, "Set a filter"),
        ("mine", {"q": "x" * 2000}, "cannot be saved"),
    ],
)
def test_what_cannot_be_kept_says_why(
    client: Client, viewer: User, stage: Stage, name: str, asked: dict[str, str], says: str
) -> None:
    stage.query("delays")
    client.force_login(viewer)
    assert says in _keep(client, name, **asked).content.decode()
    assert not SavedView.objects.exists()


def test_there_is_an_end_to_views(
    client: Client, viewer: User, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_views, "MOST_VIEWS", 1)
    client.force_login(viewer)
    _keep(client, "one", q="a")
    _keep(client, "two", q="b")
    assert [view.name for view in SavedView.objects.all()] == ["one"]
    _keep(client, "one", q="c")
    assert SavedView.objects.get().address == "q=c"


def test_a_bulk_act_is_for_all_that_match_page_or_not(
    client: Client, operator: User, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queries.views.supervision.query_list.ROWS", 2)
    for number in range(5):
        stage.query(f"delays-{number}")
    stage.query("other")
    client.force_login(operator)
    page = Page(client, "/queries/?q=delays")
    assert "All 5 queries that match" in page.text
    shown = Page(client, "/bulk/queries/?verb=start&matching=1&q=delays")
    assert "Start 5 queries?" in shown.text
    assert "other" not in shown.text
    names = re.findall(r'name="name" value="([^"]+)"', shown.html)
    client.post("/bulk/queries/", {"verb": "start", "name": names})
    advance_many(Operation.objects.get().pk, now=timezone.now())
    wanted = Query.objects.filter(desired="RUNNING").values_list("name", flat=True)
    assert sorted(wanted) == [f"delays-{number}" for number in range(5)]


@pytest.mark.sql("queries.selectors.supervision.query_filters.queries")
def test_more_than_can_be_shown_are_named_not_dropped_silently(
    client: Client, operator: User, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "BULK_AT_MOST", 2)
    for number in range(5):
        stage.query(f"delays-{number}")
    client.force_login(operator)
    shown = Page(client, "/bulk/queries/?verb=start&matching=1&q=delays")
    assert "The first 2 of 5" in shown.text
    assert "Repeat the action for the other 3." in shown.text
    names = "&".join(f"name=delays-{number}" for number in range(5))
    assert "The first 2 of 5" in Page(client, f"/bulk/queries/?verb=start&{names}").text
