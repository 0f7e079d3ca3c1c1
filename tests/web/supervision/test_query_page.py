"""A query's page: its state with the reason, and the tabs behind it."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from listeners.models import Gap
from queries.models.drivers import Driver
from queries.models.history import Failure
from tests.scenarios.stage import DIVIDE, NO_SUCH_SOURCE, Stage
from tests.web.batches import batches

TABS = ("", "runs/", "failures/", "definition/", "log/", "activity/")


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


def text(answer: Any) -> str:
    return str(answer.content.decode())


def words(html: str) -> str:
    """Return what a reader sees: no tags, single blanks."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_stands_for_a_query_that_has_never_run(
    vera: Client, stage: Stage, tab: str
) -> None:
    stage.query("delays")
    answer = vera.get(f"/queries/delays/{tab}")
    assert answer.status_code == 200
    assert "<h1>delays" in text(answer)


@pytest.mark.parametrize("tab", [*TABS, "series/"])
def test_every_tab_is_shut_to_somebody_without_a_role(
    client: Client, outsider: User, stage: Stage, tab: str
) -> None:
    stage.query("delays")
    client.force_login(outsider)
    assert client.get(f"/queries/delays/{tab}").status_code == 403


@pytest.mark.parametrize("tab", [*TABS, "series/"])
def test_a_name_that_is_not_there_is_a_page_that_says_so(
    vera: Client, stage: Stage, tab: str
) -> None:
    answer = vera.get(f"/queries/nowhere/{tab}")
    assert answer.status_code == 404
    assert "Query &quot;nowhere&quot; does not exist." in text(answer)


def steps(client: Client) -> dict[str, str]:
    """Return the steps of the operation that the head shows, and where each is."""
    html = text(client.get("/queries/delays/"))
    return {
        label: state
        for state, label in re.findall(r'<li class="way-(done|now|todo|failed)">([^<]+)<', html)
    }


def test_what_code_sets_and_does_not_get_is_told_on_the_query_and_on_its_run(
    vera: Client, stage: Stage
) -> None:
    stage.query("overridden")
    stage.up("overridden")
    run = stage.run("overridden")
    told = "The code sets queryName <flights>; overridden is used instead, the query's name."
    assert told not in words(text(vera.get("/queries/overridden/")))
    stage.launcher.warns(run.pk, told)
    stage.look("overridden")
    for address in ("/queries/overridden/", f"/runs/{run.pk}/"):
        assert escape(told) in text(vera.get(address))


def test_the_way_of_a_start_is_followed_step_by_step(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.now = timezone.now()  # an operation that ended long ago is shown no more
    stage.start("delays")
    assert steps(vera)["Requested"] == "done"
    assert steps(vera)["Running"] == "todo"
    stage.ready("delays")
    stage.commit("delays")
    assert set(steps(vera).values()) == {"done"}


def test_the_way_of_an_operation_that_ended_long_ago_is_not_shown(
    vera: Client, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    assert steps(vera) == {}


def test_a_broken_query_says_the_error_and_counts_it_on_its_tab(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", DIVIDE, batch=3)
    html = text(vera.get("/queries/delays/failures/"))
    assert "DIVIDE_BY_ZERO" in html
    assert re.search(r'Failures<span class="count">1</span>', html)


@pytest.mark.parametrize("limit", [2, 3])
def test_a_broken_query_says_how_often_its_policy_lets_a_batch_fail(
    vera: Client, stage: Stage, limit: int
) -> None:
    stage.application("flights", policy={"poison_limit": limit})
    stage.query("delays", "flights")
    stage.start("delays")
    stage.ready("flights")
    for _ in range(limit):
        stage.wait(10)
        stage.fail("delays", DIVIDE, batch=4)
    for page in ("/queries/delays/", "/queries/delays/activity/", "/queries/"):
        seen = text(vera.get(page))
        assert "On hold" in seen, page
        assert (
            f"The same error occurred on batch 4 until the poison limit of {limit} was reached."
            in words(seen)
        ), page
        assert "three times" not in seen, page


def test_a_failed_query_says_why_in_its_head(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", NO_SUCH_SOURCE)
    html = text(vera.get("/queries/delays/"))
    assert stage.row("delays").phase_detail.text in words(html).replace("&#x27;", "'")
    assert "Failed" in words(html)


def test_the_definition_masks_secrets_in_text_and_difference(vera: Client, stage: Stage) -> None:
    query = stage.query(
        "delays", sink={"format": "kafka", "options": {"kafka.password": "hunter2-is-secret"}}
    )
    first = query.revisions.get()
    changed = {**first.spec, "sql": "SELECT 1 AS one FROM flights"}
    query.revisions.create(number=2, kind="sql", spec=changed, author="aude", created_at=stage.now)
    html = text(vera.get("/queries/delays/definition/"))
    assert "hunter2" not in html
    assert "diff-removed" in html
    assert "diff-added" in html
    assert "SELECT 1 AS one" in words(html).replace("  ", " ")


def test_an_author_is_led_back_to_an_earlier_revision(
    client: Client, author: User, stage: Stage
) -> None:
    query = stage.query("delays")
    spec = query.revisions.get().spec
    query.revisions.create(number=2, kind="sql", spec=spec, author="aude", created_at=stage.now)
    client.force_login(author)
    html = text(client.get("/queries/delays/definition/"))
    assert 'href="/queries/delays/edit/?from=1"' in html
    assert client.get("/queries/delays/edit/?from=1").status_code == 200


def test_the_series_hold_what_the_charts_draw(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stored = batches(stage.run("delays"), 5, until=timezone.now(), duration_ms=1000)
    found = vera.get("/queries/delays/series/?range=15m").json()
    assert found["batches"] == [0, 1, 2, 3, 4]
    assert found["columns"]["batch_duration_ms"] == [1000] * 5
    assert found["columns"]["phase_addBatch"] == [900] * 5
    since = stored[2].at.isoformat()
    later = vera.get("/queries/delays/series/", {"since": since}).json()
    assert later["batches"][-1] == 4
    assert len(later["batches"]) < 5


def test_nonsense_in_the_address_falls_back_to_the_default(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    for address in (
        "?range=century",
        "series/?range=x&since=yesterday",
        "log/?lines=-1",
        "runs/?after=~~",
        "activity/?after=~~",
        "definition/?revision=99&against=x",
    ):
        assert vera.get(f"/queries/delays/{address}").status_code == 200


def test_the_runs_say_why_each_began_and_how_it_ended(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", DIVIDE, batch=3)
    html = words(text(vera.get("/queries/delays/runs/")))
    assert "Start requested" in html
    assert "by olga" in html
    assert "Failed" in html


def test_the_activity_names_who_asked_and_what_followed(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    html = words(text(vera.get("/queries/delays/activity/")))
    assert "olga" in html
    assert "supervision" in html
    assert "First commit" in html


def test_the_commands_for_a_terminal_name_this_query(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    html = text(vera.get("/queries/delays/"))
    assert "http://testserver/api/v1/queries/delays/start/" in html
    assert "$HEADGATE_TOKEN" in html


def test_losses_are_counted_on_the_page(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    run = stage.run("delays")
    Gap.objects.create(
        kind="batch",
        driver=run.driver_id,
        query=run.query_id,
        run=run.pk,
        spark_run_id=run.spark_run_id or "",
        first=3,
        last=9,
        missing=7,
        repaired=5,
        noticed_at=timezone.now(),
    )
    for stored in batches(run, 5, until=timezone.now(), first=3):
        stored.repaired = True
        stored.save()
    html = words(text(vera.get("/queries/delays/")))
    assert "7 batches missing, 5 repaired." in html


def test_the_header_is_that_of_the_revision_that_runs(vera: Client, stage: Stage) -> None:
    query = stage.query("delays")
    stage.up("delays")
    spec = query.revisions.get().spec
    query.revisions.create(
        number=2,
        kind="sql",
        spec=spec | {"trigger": {"kind": "processing_time", "interval": "1 minute"}},
        author="ada",
        created_at=stage.now,
    )
    shown = text(vera.get("/queries/delays/"))
    heading = words(shown[shown.index("<h1>") : shown.index("</h1>")])
    assert "r1" in heading
    assert "5 s" in heading
    assert "Running revision 1 of 2" in words(shown)


def test_the_reason_of_a_failed_query_leads_to_its_failure(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    assert "View failure" not in text(vera.get("/queries/delays/"))
    stage.fail("delays", NO_SUCH_SOURCE)
    failure = Failure.objects.get()
    assert f'<a href="/failures/{failure.pk}/">View failure</a>' in text(
        vera.get("/queries/delays/")
    )


def test_the_editor_says_which_revision_it_holds(
    client: Client, author: User, stage: Stage
) -> None:
    query = stage.query("delays")
    spec = query.revisions.get().spec
    query.revisions.create(number=2, kind="sql", spec=spec, author="olga", created_at=stage.now)
    client.force_login(author)
    shown = words(text(client.get("/queries/delays/edit/?from=1")))
    assert "This form shows revision 1 , by ada. The newest is 2; saving makes revision 3." in shown
    assert "This form holds" not in text(client.get("/queries/delays/edit/"))


def test_the_list_says_which_revision_runs(vera: Client, stage: Stage) -> None:
    query = stage.query("delays")
    stage.up("delays")
    assert "runs r1" not in words(text(vera.get("/queries/")))
    spec = query.revisions.get().spec | {"description": "what it is for"}
    query.revisions.create(number=2, kind="sql", spec=spec, author="ada", created_at=stage.now)
    assert "runs r1" not in words(text(vera.get("/queries/")))  # nothing would change by a restart
    spec = spec | {"sql": "SELECT value FROM flights"}
    query.revisions.create(number=3, kind="sql", spec=spec, author="ada", created_at=stage.now)
    assert "runs r1 of 3" in words(text(vera.get("/queries/")))


def test_a_driver_whose_processes_have_no_number_shows_none(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    for numbers in ({"pid": None, "jvm_pid": None}, {"pid": 0, "jvm_pid": 0}):
        Driver.objects.update(**numbers)
        shown = text(vera.get("/queries/delays/"))
        assert "Python –, JVM –" in shown
        assert "Python 0" not in shown
