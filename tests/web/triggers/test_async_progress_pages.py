"""Async progress tracking on pages: what a crash would replay, the safe way off, the rescue."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.domain.protocol import RunError
from queries.domain.states import Phase
from queries.models.drivers import Run
from queries.models.history import Failure, Operation
from queries.views.console import fragments
from tests.scenarios.async_logs import ASYNC, AsyncQuery
from tests.scenarios.stage import BROKEN_PIPE, Stage
from tests.web.batches import batches
from tests.web.browserless import Page

GAP = RunError(
    "",
    "java.lang.IllegalStateException",
    "batch 111 doesn't exist",
    "java.lang.IllegalStateException: batch 111 doesn't exist",
)


@pytest.fixture
def flights(stage: Stage, tmp_path: Path) -> AsyncQuery:
    found = AsyncQuery(stage, tmp_path)
    found.up()
    batches(stage.run("flights"), 11, until=stage.now, first=110, rows=20)
    return found


def see(client: Client, person: User, address: str, *, form: str = "") -> Page:
    client.force_login(person)
    return Page(client, address, form=form)


def test_a_querys_page_says_what_a_crash_now_would_do_again(
    client: Client, viewer: User, flights: AsyncQuery
) -> None:
    page = see(client, viewer, "/queries/flights/")
    panel = page.by_id[f"exposure-{flights.query.pk}"]
    assert "9 batches" in panel
    assert "180 records" in panel
    assert "including the running batch 121 (about 20 records)" in panel
    assert "112" in panel
    assert "batch 111 doesn't exist" in panel
    assert "async-off" not in page.html  # no author


def test_the_panel_is_live_and_holds_data_only(flights: AsyncQuery, stage: Stage) -> None:
    pk = flights.query.pk
    [(event, html)] = fragments.draw(f"exposure:{pk}", None, stage.now)
    assert event == f"exposure-{pk}"
    assert "9 batches" in html
    assert "async-off" not in html
    plain = stage.query("plain").pk
    assert not fragments.draw(f"exposure:{plain}", None, stage.now)
    assert not fragments.draw("exposure:999", None, stage.now)
    assert not fragments.draw("exposure:none", None, stage.now)


def test_a_query_without_it_has_no_panel(client: Client, author: User, stage: Stage) -> None:
    stage.query("plain")
    assert "Async progress tracking" not in see(client, author, "/queries/plain/").text


def test_the_safe_way_off_is_begun_by_a_form_that_says_what_it_does(
    client: Client, author: User, flights: AsyncQuery, stage: Stage
) -> None:
    assert "/queries/flights/async-off/" in see(client, author, "/queries/flights/").html
    page = Page(client, "/queries/flights/async-off/")
    assert "until 2 batches have committed" in page.text
    assert not Operation.objects.filter(verb="async-off").exists()  # looking asks for nothing
    after = page.press()
    row = Operation.objects.get(verb="async-off")
    assert after.address == f"/operations/{row.uuid}/"
    assert "Let two batches commit" in after.text
    assert row.actor == "aude"
    assert "Switch async progress tracking off for flights" in after.text
    row.result = {"left": "Revision 3 restores revision 1.", "keeps_every_batch": 2, "off": 4}
    row.save()
    ended = Page(client, f"/operations/{row.uuid}/")
    assert "Revision 3 restores revision 1." in ended.text
    assert "/queries/flights/definition/?revision=4" in ended.html


def test_cancelling_it_says_what_the_definition_is_left_as(
    client: Client, author: User, flights: AsyncQuery
) -> None:
    see(client, author, "/queries/flights/async-off/").press()
    row = Operation.objects.get(verb="async-off")
    page = Page(client, f"/operations/{row.uuid}/cancel/")
    assert "The definition is restored" in page.text


def test_a_plain_edit_is_refused_and_offers_the_safe_way(
    client: Client, author: User, flights: AsyncQuery
) -> None:
    page = see(client, author, "/queries/flights/edit/?as=json", form="definition")
    sent = page.fields["json"].replace('"asyncProgressTrackingEnabled": "true"', "")
    refused = page.press("review", json=sent)
    assert refused.status == 422
    assert "but not batch 111" in refused.text
    assert "/queries/flights/async-off/" in refused.html
    assert flights.options() == ASYNC


def test_a_query_that_died_of_the_gap_is_rescued_from_its_failure_page(
    client: Client, author: User, viewer: User, stage: Stage, tmp_path: Path
) -> None:
    dead = AsyncQuery(stage, tmp_path, "dead", sink={"format": "noop"})
    dead.log(98, 112)
    stage.start("dead")
    stage.ready("dead")
    stage.fail("dead", GAP)
    assert stage.phase("dead") == Phase.FAILED
    address = f"/failures/{Failure.objects.get().pk}/"
    assert "switch it off the safe way" in see(client, viewer, address).text
    assert "/queries/dead/async-off/" not in see(client, viewer, address).html
    assert "/queries/dead/async-off/" in see(client, author, address).html
    page = Page(client, "/queries/dead/async-off/")
    assert "tracking switched on" in page.text
    page.press()
    assert Operation.objects.get(verb="async-off").arguments["missing_batch"] == 111


def test_other_failures_offer_no_such_way(
    client: Client, author: User, flights: AsyncQuery, stage: Stage
) -> None:
    stage.fail("flights", BROKEN_PIPE)
    page = see(client, author, f"/failures/{Failure.objects.get().pk}/")
    assert "async-off" not in page.html


def test_where_there_is_nothing_to_switch_off_it_is_said(
    client: Client, author: User, stage: Stage
) -> None:
    stage.query("plain")
    page = see(client, author, "/queries/plain/async-off/")
    assert "No action is needed." in page.press().text


def test_run_and_failure_tell_what_was_replayed(
    client: Client, viewer: User, flights: AsyncQuery, stage: Stage
) -> None:
    stage.fail("flights", BROKEN_PIPE)
    stage.look()
    run = stage.run("flights")
    Run.objects.filter(pk=run.pk).update(
        replayed={
            "batches": 8, "rows": 1600, "seconds": 8.2, "first": 113, "last": 120, "after": 112,
            "from_run": run.pk - 1, "rows_in_flight": 200,
        }
    )  # fmt: skip
    told = see(client, viewer, f"/runs/{run.pk}/").text
    assert "reprocessed 8 batches, 113 to 120: 1,600 records (at most 200 of them from" in told
    assert "batch 120, which was interrupted), 8.20 s of work" in told
    failure = see(client, viewer, f"/failures/{Failure.objects.get().pk}/").text
    assert "then reprocessed 8 batches, 1,600 records" in failure
    assert "last saved the offsets of batch 112" in failure


def test_a_script_gets_the_answer_in_place(
    client: Client, author: User, flights: AsyncQuery
) -> None:
    client.force_login(author)
    answer = client.post("/queries/flights/async-off/", headers={"accept": "application/json"})
    assert answer.json()["text"] == "Async progress tracking of flights is being switched off."
    assert timedelta(minutes=30) < (row := Operation.objects.get(verb="async-off")).deadline - (
        row.created_at
    )
