"""A definition is changed on a page: the difference first, and never over somebody else's."""

import json
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.definitions import Query
from queries.services.definitions import catalog
from tests.web.browserless import Page

SPEC = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate", "options": {"rowsPerSecond": "5"}}],
    "sql": "SELECT value FROM ticks",
    "sink": {"format": "noop"},
    "trigger": {"kind": "processing_time", "interval": "5 seconds"},
}


@pytest.fixture
def ticks(author: User, now: datetime) -> Query:
    return catalog.create_query(name="ticks", spec=SPEC, actor="aude", now=now)


@pytest.fixture
def form(client: Client, author: User, ticks: Query) -> Page:
    client.force_login(author)
    return Page(client, "/queries/ticks/edit/", form="definition")


def _numbers(query: Query) -> list[int]:
    return sorted(query.revisions.values_list("number", flat=True))


def test_the_difference_is_shown_before_anything_is_saved(form: Page, ticks: Query) -> None:
    shown = form.press("review", sql="SELECT value * 2 AS twice FROM ticks")
    assert "Saving creates revision 2" in shown.text
    assert "diff-removed" in shown.html
    assert "value * 2 AS twice" in shown.text
    assert _numbers(ticks) == [1]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("spark.sql.streaming.stateStore.rowChecksum.enabled", "requires a new checkpoint"),
        ("spark.sql.streaming.sessionWindow.stateFormatVersion", "changes how checkpoints are"),
        ("spark.sql.streaming.stateStore.checkpointFormatVersion", "changes how checkpoints are"),
    ],
)
def test_a_setting_that_changes_what_a_checkpoint_means_is_named(
    form: Page, key: str, said: str
) -> None:
    shown = form.press("review", conf=f"{key} = 2")
    assert said in shown.text
    assert f"conf.{key}" in shown.text
    assert "changes how checkpoints are" not in form.press("review", sql="SELECT 1").text


def test_what_was_shown_can_be_saved(form: Page, ticks: Query) -> None:
    shown = form.press("review", sql="SELECT value * 2 AS twice FROM ticks")
    after = shown.press("save")
    assert _numbers(ticks) == [1, 2]
    assert ticks.revisions.get(number=2).author == "aude"
    assert "Revision 2 of ticks was saved" in after.text


def test_what_was_typed_after_the_review_is_shown_before_it_is_saved(
    form: Page, ticks: Query
) -> None:
    shown = form.press("review", sql="SELECT value * 2 AS twice FROM ticks")
    again = shown.press("save", sql="SELECT value * 3 AS thrice FROM ticks")
    assert _numbers(ticks) == [1]
    assert "value * 3 AS thrice" in again.text
    again.press("save")
    assert "thrice" in ticks.revisions.get(number=2).spec["sql"]


def test_saving_without_a_review_shows_the_difference_first(form: Page, ticks: Query) -> None:
    shown = form.press("save", sql="SELECT value * 2 AS twice FROM ticks")
    assert "Saving creates revision 2" in shown.text
    assert _numbers(ticks) == [1]


def test_a_form_that_says_the_same_is_told_so(form: Page) -> None:
    assert "No changes" in form.press("review").text


def test_somebody_elses_save_is_shown_and_nothing_typed_is_lost(
    form: Page, ticks: Query, now: datetime
) -> None:
    shown = form.press("review", sql="SELECT value * 2 AS twice FROM ticks")
    theirs = {**SPEC, "trigger": {"kind": "processing_time", "interval": "9 seconds"}}
    catalog.revise_query(query=ticks, spec=theirs, expected_revision=1, actor="ann", now=now)

    stopped = shown.press("save")
    assert _numbers(ticks) == [1, 2]
    assert "ann saved revision 2 while you were editing" in stopped.text
    assert "9 seconds" in stopped.text
    assert stopped.fields["sql"] == "SELECT value * 2 AS twice FROM ticks"

    rebased = stopped.press("rebase", trigger_interval="9 seconds")
    assert "Saving creates revision 3" in rebased.text
    rebased.press("save")
    third = ticks.revisions.get(number=3).spec
    assert (third["sql"], third["trigger"]["interval"]) == (
        "SELECT value * 2 AS twice FROM ticks",
        "9 seconds",
    )


@pytest.mark.sql(
    "queries.selectors.definitions.definitions.pool_names",
    "queries.selectors.definitions.definitions.query_definition",
    "queries.selectors.definitions.definitions.shared_application_names",
)
def test_a_mistake_is_told_before_the_difference(form: Page, ticks: Query) -> None:
    after = form.press("review", sql="SELECT value FROM elsewhere")
    assert after.status == 422
    assert "elsewhere" in after.error_at("sql")
    assert "Saving creates revision" not in after.text


def test_an_earlier_revision_can_be_brought_back(client: Client, form: Page, ticks: Query) -> None:
    form.press("review", sql="SELECT value * 2 AS twice FROM ticks").press("save")
    back = Page(client, "/queries/ticks/edit/?from=1", form="definition")
    assert back.fields["sql"] == "SELECT value FROM ticks"
    back.press("review").press("save")
    assert _numbers(ticks) == [1, 2, 3]
    assert ticks.revisions.get(number=3).spec == ticks.revisions.get(number=1).spec


def test_it_can_be_edited_as_json(form: Page, ticks: Query) -> None:
    shown = form.press("to-json")
    body = json.loads(shown.fields["json"])
    body["spec"]["sql"] = "SELECT timestamp FROM ticks"
    shown.press("review", json=json.dumps(body)).press("save")
    assert ticks.revisions.get(number=2).spec["sql"] == "SELECT timestamp FROM ticks"


def test_deleting_asks_for_the_name_and_keeps_history(client: Client, form: Page) -> None:
    page = Page(client, "/queries/ticks/delete/")
    wrong = page.press(typed="tacks")
    assert "The name does not match" in wrong.text
    assert Query.objects.get(name="ticks").archived_at is None
    done = wrong.press(typed="ticks")
    assert Query.objects.get(name="ticks").archived_at is not None
    assert "ticks was deleted" in done.text


def test_a_running_query_is_not_deleted(client: Client, form: Page, ticks: Query) -> None:
    Query.objects.filter(pk=ticks.pk).update(desired="RUNNING", phase="RUNNING")
    page = Page(client, "/queries/ticks/delete/")
    assert "Stop it before you delete it" in page.text
    page.press(typed="ticks")
    assert Query.objects.get(name="ticks").archived_at is None


def test_what_only_a_preflight_can_tell_of_a_change_stands_beside_it(form: Page) -> None:
    shown = form.press("review", sql="SELECT value FROM ticks -- again")
    assert "Needs a preflight" not in shown.text
    changed = {"trigger_kind": "continuous", "trigger_interval": "1 second"}
    shown = form.press("review", sql="SELECT my_own(value) AS value FROM ticks", **changed)
    assert "Saving creates revision 2" in shown.text
    assert "Needs a preflight. " in shown.text
    assert "The effect of my_own is unknown." in shown.text
