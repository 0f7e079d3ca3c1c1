"""From the address in a message to the healed query in three clicks, none of them blind."""

import re
from dataclasses import replace
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.protocol import RunError
from queries.domain.states import Desired, Phase
from queries.domain.system import SystemHealth
from queries.models.alerts import Incident
from queries.models.history import Failure
from queries.services.alerts import incidents as service
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, NO_SUCH_SOURCE, Stage
from tests.web.browserless import Page


@pytest.fixture
def aude(client: Client, author: User, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(service, "system_health", lambda now: SystemHealth(now, ()))
    client.force_login(author)
    return client


def _fails(stage: Stage, error: RunError, *, batch: int | None = None, times: int = 1) -> str:
    """Have delays fail for good; return the address that a message about it holds."""
    for _ in range(times):
        stage.fail("delays", error, batch=batch)
        if stage.phase("delays") == Phase.BACKOFF:
            stage.pause("delays")
            stage.ready("delays")
    service.watch_incidents(now=stage.now)
    incident = Incident.objects.filter(query__name="delays").order_by("-pk").first()
    assert incident is not None
    return f"/alerts/{incident.uuid}/"


def _runs(stage: Stage) -> None:
    """Let supervision work until delays has committed a batch."""
    stage.now = timezone.now()  # the page asked now, and the stage's clock is its own
    stage.look()
    stage.launcher.leave("delays")
    stage.wait(10)
    stage.ready("delays")
    stage.commit("delays")


def _offered(page: Page) -> dict[str, str]:
    """Return the acts that a page offers: words -> address."""
    (listed,) = re.findall(r'<ul class="ways">(.*?)</ul>', page.html, re.DOTALL) or [""]
    found = re.findall(r'<a class="btn[^"]*" href="([^"]+)"[^>]*>([^<]+)…</a>', listed)
    return {words: unescape(address) for address, words in found}


def test_a_division_by_zero_is_edited_and_runs(aude: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    mail = _fails(stage, DIVIDE, batch=7, times=3)
    assert stage.phase("delays") == Phase.ON_HOLD

    incident = Page(aude, mail)  # the first click
    acts = _offered(incident)
    assert list(acts) == ["Edit and restart", "Rewind to batch 6", "Start now", "Stop retrying"]
    form = Page(aude, acts["Edit and restart"], form="definition")  # the second
    after = form.press("apply", sql="SELECT value / nullif(value, 0) AS x FROM flights")
    assert "Revision 2 of delays was saved, and the query is starting on it." in after.text
    _runs(stage)
    assert stage.phase("delays") == Phase.RUNNING
    assert stage.run("delays").revision.number == 2
    assert _offered(Page(aude, mail)) == {}  # nothing is left to do


def test_a_bad_revision_is_gone_back_from(aude: Client, stage: Stage) -> None:
    first = stage.query("delays").revisions.get().spec
    stage.up("delays")
    stage.commit("delays")
    stage.revise("delays", sql="SELECT nothing FROM flights")
    stage.restart("delays")
    stage.launcher.leave("delays")
    stage.wait(2)
    stage.ready("delays")
    mail = _fails(stage, NO_SUCH_SOURCE)
    assert stage.phase("delays") == Phase.FAILED

    acts = _offered(Page(aude, mail))
    assert list(acts)[:2] == ["Edit and restart", "Back to revision 1"]
    shown = Page(aude, acts["Back to revision 1"], form="definition")
    assert "Saving creates revision 3" in shown.text
    after = shown.press("apply")
    assert "Revision 3 of delays was saved, and the query is starting on it." in after.text
    assert stage.row("delays").revisions.get(number=3).spec["sql"] == first["sql"]
    _runs(stage)
    assert stage.run("delays").revision.number == 3


def test_a_service_that_is_away_is_tried_at_once_or_no_more(aude: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", BROKEN_PIPE, batch=7)
    stage.ready("delays")
    stage.fail("delays", BROKEN_PIPE, batch=7)
    assert stage.phase("delays") == Phase.BACKOFF
    page = Page(aude, f"/failures/{Failure.objects.latest('pk').pk}/")
    acts = _offered(page)
    assert list(acts) == ["Start now", "Stop retrying"]
    Page(aude, acts["Start now"], form="confirm").press()
    assert stage.phase("delays") in (Phase.BACKOFF, Phase.PENDING, Phase.STARTING)
    aude.post(acts["Stop retrying"].split("?")[0], {"mode": "now"})
    assert stage.row("delays").desired == Desired.STOPPED


def test_a_viewer_is_offered_nothing_and_an_operator_what_operators_may(
    client: Client, viewer: User, operator: User, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    for _ in range(3):
        stage.fail("delays", DIVIDE, batch=7)
        stage.pause("delays") if stage.phase("delays") == Phase.BACKOFF else None
        stage.ready("delays") if stage.phase("delays") == Phase.STARTING else None
    address = f"/failures/{Failure.objects.latest('pk').pk}/"
    client.force_login(viewer)
    assert _offered(Page(client, address)) == {}
    client.force_login(operator)
    assert list(_offered(Page(client, address))) == ["Start now", "Stop retrying"]


def test_what_only_a_preflight_can_tell_is_shown_before_a_restart(
    aude: Client, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    monkeypatch.setattr(
        "queries.views.definitions.query_edit.preflight_doubts",
        lambda query, spec: ["Whether the state fits is known after a preflight."],
    )
    form = Page(aude, "/queries/delays/edit/", form="definition")
    shown = form.press("apply", sql="SELECT 1 AS one FROM flights")
    assert "Whether the state fits" in shown.text
    assert stage.row("delays").revisions.count() == 1
    assert "Revision 2 of delays was saved" in shown.press("apply").text


def test_a_restart_that_nobody_changed_anything_for_saves_nothing(
    aude: Client, stage: Stage
) -> None:
    stage.query("delays")
    form = Page(aude, "/queries/delays/edit/", form="definition")
    assert "No changes" in form.press("apply").text
    assert stage.row("delays").revisions.count() == 1


PLACED = replace(
    DIVIDE, message=f"{DIVIDE.message}\n== SQL (line 2, position 8) ==\nvalue / 0\n      ^^^\n"
)


def test_editing_leads_to_the_line_and_column_at_which_the_sql_failed(
    aude: Client, stage: Stage
) -> None:
    stage.query("delays", sql="SELECT value,\n value / 0 AS n\nFROM flights")
    stage.up("delays")
    stage.fail("delays", PLACED)
    read = Page(aude, f"/failures/{Failure.objects.get().pk}/")
    (address,) = [one for words, one in _offered(read).items() if words.startswith("Edit")]
    assert address == "/queries/delays/edit/?of=1&line=2&column=8"
    form = Page(aude, address, form="definition")
    assert "The SQL of revision 1 failed at line 2, column 8" in form.text
    assert 'data-line="2" data-column="8"' in form.html
    stage.revise("delays", sql="SELECT value FROM flights")
    assert "This form shows revision 2" in Page(aude, address, form="definition").text


@pytest.mark.parametrize("asked", ["line=2", "of=9&line=2&column=8", "of=1&line=x&column=-1"])
def test_a_place_that_no_revision_has_is_left_out(aude: Client, stage: Stage, asked: str) -> None:
    stage.query("delays")
    form = Page(aude, f"/queries/delays/edit/?{asked}", form="definition")
    assert "data-line" not in form.html
