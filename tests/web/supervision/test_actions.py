"""Start, stop and restart by form: what each will do is said, then done, by those who may."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.states import Desired, StopMode
from queries.models.access.audit import AuditEntry
from queries.models.history import Operation
from tests.scenarios.stage import Stage
from tests.services.bulk import advance_many
from tests.web.browserless import Page


@pytest.fixture
def otto(client: Client, operator: User) -> Client:
    client.force_login(operator)
    return client


def text(answer: Any) -> str:
    return str(answer.content.decode())


def test_a_click_on_start_wants_the_query_running_and_goes_back(otto: Client, stage: Stage) -> None:
    stage.query("delays")
    answer = otto.post("/queries/delays/start/", {"next": "/queries/?group=stopped"}, follow=True)
    assert answer.redirect_chain == [("/queries/?group=stopped", 302)]
    assert "delays will start." in text(answer)
    assert stage.row("delays").desired == Desired.RUNNING
    assert Operation.objects.get().actor == "otto"


def test_a_form_never_leads_to_another_site(otto: Client, stage: Stage) -> None:
    stage.query("delays")
    for elsewhere in ("https://evil.example/", "//evil.example/", "javascript:alert(1)"):
        answer = otto.post("/queries/delays/start/", {"next": elsewhere})
        assert answer["Location"] == "/queries/delays/"


def test_a_script_gets_the_answer_in_place(otto: Client, stage: Stage) -> None:
    stage.query("delays")
    answer = otto.post("/queries/delays/start/", headers={"accept": "application/json"})
    assert answer.json() == {"tone": "ok", "text": "delays will start."}


def test_the_confirmation_of_a_stop_names_the_neighbours_it_leaves_alone(
    otto: Client, stage: Stage
) -> None:
    stage.application("airport")
    stage.query("delays", "airport")
    stage.query("arrivals", "airport")
    stage.up("delays", "airport")
    stage.start("arrivals")
    html = text(otto.get("/queries/delays/stop/"))
    assert "arrivals keeps running" in html
    assert "After the batch in flight" in html
    assert "the next start replays it" in html
    assert stage.row("delays").desired == Desired.RUNNING  # looking asks for nothing


def test_the_confirmation_of_a_stop_says_when_the_driver_ends_too(
    otto: Client, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    assert "so its driver ends too" in text(otto.get("/queries/delays/stop/"))


@pytest.mark.parametrize(
    ("sent", "mode"),
    [
        ({}, StopMode.GRACEFUL),
        ({"mode": "graceful"}, StopMode.GRACEFUL),
        ({"mode": "now"}, StopMode.NOW),
    ],
)
def test_a_stop_treats_the_batch_in_flight_as_asked(
    otto: Client, stage: Stage, sent: dict[str, str], mode: StopMode
) -> None:
    stage.query("delays")
    stage.up("delays")
    otto.post("/queries/delays/stop/", sent)
    row = stage.row("delays")
    assert (row.desired, row.stop_mode) == (Desired.STOPPED, mode)


def test_the_confirmation_of_a_restart_says_which_revision_comes_back(
    otto: Client, stage: Stage
) -> None:
    query = stage.query("delays")
    stage.up("delays")
    html = text(otto.get("/queries/delays/restart/"))
    assert "It restarts on revision 1, the one it is running now." in html
    newest = query.revisions.get()
    query.revisions.create(
        number=2, kind="sql", spec=newest.spec, author="ada", created_at=stage.now
    )
    html = text(otto.get("/queries/delays/restart/"))
    assert "It restarts on revision 2; it is running revision 1 now." in html


LOW: dict[str, Any] = {
    "sql": "SELECT timestamp, value FROM flights WHERE value > :low",
    "params": {"low": 1},
}
BY_KEY: dict[str, Any] = {
    "sql": "SELECT value AS k, count(*) AS n FROM flights WHERE value > :low GROUP BY value",
    "sink": {"format": "noop", "output_mode": "update"},
    "params": {"low": 1},
}


def test_the_dialog_of_a_start_has_the_defaults_and_takes_other_values(
    otto: Client, stage: Stage
) -> None:
    stage.query("delays", **LOW)
    assert 'name="param.low" value="1"' in text(otto.get("/queries/delays/start/"))
    otto.post("/queries/delays/start/", {"param.low": "5"})
    assert stage.row("delays").params == {"low": 5}
    # A restart keeps what it is not told to change.
    assert 'name="param.low" value="5"' in text(otto.get("/queries/delays/restart/"))
    otto.post("/queries/delays/restart/", {"param.low": "5"})
    assert stage.row("delays").params == {"low": 5}
    otto.post("/queries/delays/stop/", {"mode": "now", "param.low": "7"})
    stage.settle()
    otto.post("/queries/delays/start/", {"param.low": "1"})
    assert stage.row("delays").params is None


def test_a_value_of_another_type_is_named_and_what_was_typed_is_kept(
    otto: Client, stage: Stage
) -> None:
    stage.query("delays", **LOW)
    html = text(otto.post("/queries/delays/start/", {"param.low": "many"}, follow=True))
    assert "params.low: has a different type than the default. Use a whole number" in html
    assert 'name="param.low" value="many"' in html
    assert stage.row("delays").desired == Desired.STOPPED


@pytest.mark.parametrize("typed", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_json_does_not_have_is_named_in_the_dialog(
    otto: Client, stage: Stage, typed: str
) -> None:
    sql = "SELECT timestamp, value FROM flights WHERE value > :share"
    stage.query("delays", sql=sql, params={"share": 0.5})
    html = text(otto.post("/queries/delays/start/", {"param.share": typed}, follow=True))
    assert "which JSON does not have. Use a finite number" in html
    assert stage.row("delays").desired == Desired.STOPPED


def test_secrets_cannot_be_given_in_the_dialog(otto: Client, stage: Stage) -> None:
    stage.query("delays", params={"low": 1, "token": "env:TOKEN"})
    html = text(otto.get("/queries/delays/start/"))
    assert "param.low" in html
    assert "param.token" not in html


def test_other_values_on_a_checkpoint_with_state_are_accepted_in_the_next_dialog(
    otto: Client, stage: Stage
) -> None:
    stage.query("delays", **BY_KEY)
    stage.up("delays")
    stage.launcher.obliging = True
    stage.stop("delays")
    script = {"accept": "application/json"}
    answer = otto.post("/queries/delays/start/", {"param.low": "5"}, headers=script).json()
    html = text(otto.get(answer["again"]))
    assert "state that was written with other values of low" in html
    assert "Start with the old state" in html
    otto.post("/queries/delays/start/", {"param.low": "5", "accept_state_change": "1"})
    assert stage.row("delays").params == {"low": 5}


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
def test_a_viewer_may_neither_look_at_nor_send_the_form(
    client: Client, viewer: User, stage: Stage, verb: str
) -> None:
    stage.query("delays")
    client.force_login(viewer)
    assert client.get(f"/queries/delays/{verb}/").status_code == 403
    assert client.post(f"/queries/delays/{verb}/").status_code == 403
    assert not Operation.objects.exists()


def test_a_form_without_its_token_does_nothing(operator: User, stage: Stage) -> None:
    stage.query("delays")
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(operator)
    assert careful.post("/queries/delays/start/").status_code == 403
    assert stage.row("delays").desired == Desired.STOPPED


def test_a_query_that_is_not_there_is_a_page_that_says_so(otto: Client, stage: Stage) -> None:
    answer = otto.get("/queries/nowhere/stop/")
    assert answer.status_code == 404
    assert "Query &quot;nowhere&quot; does not exist." in text(answer)


def test_a_bulk_act_shows_first_what_it_would_change(otto: Client, stage: Stage) -> None:
    for name in ("delays", "hours"):
        stage.query(name)
    stage.up("delays")
    html = text(otto.get("/bulk/queries/?verb=start&name=delays&name=hours"))
    assert "Start 1 query?" in html
    assert "Already set to run (running)." in html
    assert "Starts on revision 1." in html
    assert html.count('type="hidden" name="name"') == 1
    assert stage.row("hours").desired == Desired.STOPPED


@pytest.mark.sql("queries.views.supervision.actions.bulk")
def test_a_bulk_act_leads_to_its_operation_which_says_how_each_went(
    otto: Client, stage: Stage
) -> None:
    for name in ("delays", "hours"):
        stage.query(name)
    form = {"verb": "start", "name": ["delays", "hours"]}
    html = text(otto.post("/bulk/queries/", form, follow=True))
    assert "The start of 2 queries was requested." in html
    assert "2 in progress" in html
    operation = Operation.objects.get()
    advance_many(operation.pk, now=timezone.now())
    assert stage.row("delays").desired == stage.row("hours").desired == Desired.RUNNING
    assert set(Operation.objects.values_list("verb", "actor")) == {
        ("start-many", "otto"),
        ("start", "otto"),
    }
    page = text(otto.get(f"/operations/{operation.uuid}/"))
    for child in Operation.objects.filter(verb="start"):
        assert f"/operations/{child.uuid}/" in page


@pytest.mark.parametrize("verb", ["", "x-ray", "begin"])
def test_a_bulk_action_that_does_not_exist_starts_nothing(
    verb: str, otto: Client, stage: Stage
) -> None:
    stage.query("delays")
    answer = otto.post("/bulk/queries/", {"verb": verb, "name": "delays"})
    assert answer.status_code == 422
    assert "is not an action on several queries" in text(answer)
    assert not Operation.objects.exists()


def test_a_bulk_stop_keeps_how_the_batch_in_flight_ends(otto: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    otto.post("/bulk/queries/", {"verb": "stop", "name": "delays", "mode": "now"})
    advance_many(Operation.objects.get(verb="stop-many").pk, now=timezone.now())
    assert stage.row("delays").stop_mode == StopMode.NOW


@pytest.mark.sql("queries.services.procedures.bulk_operations.begin_many")
def test_a_bulk_act_that_is_clicked_twice_is_one_operation(otto: Client, stage: Stage) -> None:
    for name in ("delays", "hours"):
        stage.query(name)
    shown = Page(otto, "/bulk/queries/?verb=restart&name=delays&name=hours")
    other = Page(otto, "/bulk/queries/?verb=restart&name=delays&name=hours")
    keys = [re.findall(r'name="key" value="([^"]+)"', page.html)[0] for page in (shown, other)]
    form = {"verb": "restart", "name": ["delays", "hours"], "key": keys[0]}
    first = otto.post("/bulk/queries/", form)
    again = otto.post("/bulk/queries/", form, follow=True)
    assert again.redirect_chain == [(first["Location"], 302)]
    assert "This was already requested at" in text(again)
    assert Operation.objects.count() == 1
    assert AuditEntry.objects.filter(kind="bulk").count() == 1
    otto.post("/bulk/queries/", {**form, "name": "delays"})  # the same key, another selection
    otto.post("/bulk/queries/", {**form, "key": keys[1]})  # the form shown again
    assert Operation.objects.count() == 3


def test_a_bulk_act_leads_back_to_the_list_as_it_was_filtered(otto: Client, stage: Stage) -> None:
    stage.query("delays")
    assert 'name="next" value="/queries/?q=delays"' in text(otto.get("/queries/?q=delays"))
    asked = {"verb": "stop", "name": "delays", "next": "/queries/?q=delays"}
    assert 'href="/queries/?q=delays">Cancel' in text(otto.get("/bulk/queries/", asked))
    elsewhere = {**asked, "next": "//evil.example/"}
    assert 'href="/queries/">Cancel' in text(otto.get("/bulk/queries/", elsewhere))


@pytest.mark.sql("queries.views.supervision.actions.bulk")
def test_a_bulk_act_on_nothing_asks_for_a_selection(otto: Client, stage: Stage) -> None:
    answer = otto.get("/bulk/queries/?verb=stop", follow=True)
    assert "Select at least one query first." in text(answer)
    for form in ({"verb": "stop"}, {"verb": "stop", "name": "gone"}):
        answer = otto.post("/bulk/queries/", form, follow=True)
        assert "Select at least one query first." in text(answer)
    assert not Operation.objects.exists()


def test_state_of_another_meaning_is_confirmed_by_its_consequence(
    otto: Client, stage: Stage
) -> None:
    by_key = "SELECT value % 3 AS k, count(*) AS n FROM flights GROUP BY value % 3"
    stage.query("delays", sql=by_key, sink={"format": "noop", "output_mode": "update"})
    stage.up("delays")
    stage.revise("delays", sql=by_key.replace("3", "5"))
    otto.post("/queries/delays/restart/")  # it was shown nothing
    assert not Operation.objects.filter(verb="restart").exists()
    shown = text(otto.get("/queries/delays/restart/"))
    assert "Spark continues with the old state without an error" in shown
    assert "Restart with the old state" in shown
    assert '<input type="hidden" name="accept_state_change" value="1">' in shown
    assert "/queries/delays/preflight/" in shown
    assert "State changes." in text(otto.get("/queries/delays/definition/"))
    otto.post("/queries/delays/restart/", {"accept_state_change": "1"})
    assert Operation.objects.filter(verb="restart").exists()
