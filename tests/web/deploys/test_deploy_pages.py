"""The pages of deploys, and the button that rolls a query back."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.checkpoints import Snapshot
from queries.models.deploys import Deploy
from queries.views.console import fragments
from tests.scenarios.deploys.way import NOTE, REFUSED, Way
from tests.scenarios.stage import DIVIDE, Stage

pytestmark = pytest.mark.django_db


@pytest.fixture
def way(stage: Stage) -> Way:
    stage.query("delays")
    stage.up("delays")
    return Way(stage)


def page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_without_deploys_the_page_says_what_one_is(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    assert "POST /api/v1/deploys/" in page(client, "/deploys/")
    assert "No matching deploys" in page(client, "/deploys/?state=FAILED")


def test_the_report_of_a_good_deploy(client: Client, viewer: User, way: Way) -> None:
    client.force_login(viewer)
    way.change("delays")
    deploy = way.came_up("delays")
    text = page(client, f"/deploys/{deploy.uuid}/")
    assert "Deploy of repo" in text
    assert "Succeeded" in text
    assert ">Passed</span>" in text, "the change's badge"
    assert "1 → 2" in text
    assert "first batch 10, 1 batch committed" in text
    assert f"spec.conf.{NOTE}" in text
    assert "Cancel" not in text, "it has ended"
    assert "may be incomplete" not in text
    Deploy.objects.update(unsure=["apart", "code"])
    text = page(client, f"/deploys/{deploy.uuid}/")
    assert "not all reads and writes of apart, code (2 queries) are known" in text
    assert f"/deploys/{deploy.uuid}/" in page(client, "/deploys/?query=delays")


def test_the_report_says_when_and_by_what_each_was_judged(
    client: Client, viewer: User, way: Way
) -> None:
    client.force_login(viewer)
    way.change("delays")
    way.stage.now += timedelta(seconds=70)
    deploy = way.came_up("delays")
    text = page(client, f"/deploys/{deploy.uuid}/")
    assert "Evaluated from its own runs since the restart." in text
    assert "running after 1 min" in text
    assert text.count(f"{deploy.created_at:%H:%M}") > 2, "of the wave and of the restart too"


def test_a_failure_is_named_with_its_own_page(
    client: Client, viewer: User, way: Way, stage: Stage
) -> None:
    client.force_login(viewer)
    way.change("delays", on_failure="stop")
    way.leave("delays", "delays")
    stage.ready("delays")
    stage.fail("delays", DIVIDE)
    deploy = way.work()
    failure = way.of("delays").evidence["failures"][0]["failure"]
    text = page(client, f"/deploys/{deploy.uuid}/")
    assert f"/failures/{failure}/" in text
    assert "delays failed: " in text
    assert ">Bad</span>" not in text
    assert "/queries/delays/revisions/1/rollback/" in text, "the rollback is offered"


def test_the_rewind_to_the_snapshot_is_offered_where_the_old_revision_cannot_go_on(
    client: Client, viewer: User, way: Way, stage: Stage
) -> None:
    client.force_login(viewer)
    way.change("delays", good={"batches": 5})
    way.came_up("delays")
    way.work(minutes=11)
    deploy = way.probe(tried=REFUSED)
    change = way.of("delays")
    change.snapshot = Snapshot.objects.create(
        checkpoint=stage.row("delays").checkpoints.get(),
        batch=1234,
        location="file:///kept",
        taken_at=stage.now,
    )
    change.save()
    text = page(client, f"/deploys/{deploy.uuid}/")
    assert "/queries/delays/checkpoint/rewind/?batch=1234" in text or "batch=1234" in text
    assert "Rewind to batch 1,234" in text


def test_an_author_cancels_after_reading_what_that_leaves(
    client: Client, author: User, way: Way
) -> None:
    client.force_login(author)
    deploy = way.change("delays")
    address = f"/deploys/{deploy.uuid}/cancel/"
    assert address in page(client, f"/deploys/{deploy.uuid}/")
    assert "are rolled back, and the changed queries restart" in page(client, address)
    assert client.post(address).status_code == 302
    deploy = way.work()
    assert deploy.cancelled_by == author.username
    assert address not in page(client, f"/deploys/{deploy.uuid}/")
    assert client.get(address).status_code == 409


@pytest.mark.sql("queries.selectors.deploys.reports.deploy_report")
def test_an_operator_sees_no_button_that_only_authors_may_press(
    client: Client, operator: User, way: Way, stage: Stage
) -> None:
    client.force_login(operator)
    deploy = way.change("delays")
    assert "cancel/" not in page(client, f"/deploys/{deploy.uuid}/")
    assert "rollback/" not in page(client, "/queries/delays/definition/")


def test_a_query_is_rolled_back_from_its_definition_page(
    client: Client, author: User, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.revise("delays", conf={NOTE: "newer"})
    client.force_login(author)
    address = "/queries/delays/revisions/1/rollback/"
    assert address in page(client, "/queries/delays/definition/")
    assert "becomes the newest again as revision 3" in page(client, address)
    answer = client.post(address, follow=True)
    assert "delays is restarting on revision 1." in answer.content.decode()
    assert stage.row("delays").target_revision.number == 3  # type: ignore[union-attr]
    answer = client.post("/queries/delays/revisions/3/rollback/", follow=True)
    assert "Revision 3 is already the newest of delays." in answer.content.decode()


def test_a_rollback_on_state_of_another_meaning_is_confirmed_by_its_consequence(
    client: Client, author: User, stage: Stage
) -> None:
    swapped = "SELECT value % 5 AS k, count(*) AS n FROM flights GROUP BY value % 5"
    stage.query("delays", sql=swapped, sink={"format": "noop", "output_mode": "update"})
    stage.revise("delays", sql=swapped.replace("5", "3"))
    stage.up("delays")  # revision 2 wrote the state
    client.force_login(author)
    address = "/queries/delays/revisions/1/rollback/"
    answer = client.post(address, follow=True)  # it was shown nothing
    assert "changes its state" in answer.content.decode()
    assert stage.row("delays").revisions.count() == 2
    shown = page(client, address)
    assert "Spark continues with the old state without an error" in shown
    assert "Roll back with the old state" in shown
    client.post(address, {"accept_state_change": "1"})
    newest = stage.row("delays").revisions.latest("number")
    assert (newest.number, newest.accepted_by) == (3, author.username)


def test_open_pages_follow_a_deploy(way: Way) -> None:
    deploy = way.change("delays")
    now = timezone.now() + timedelta(seconds=1)
    drawn = dict(fragments.draw(f"deploy:{deploy.pk}", None, now))
    assert drawn.keys() == {
        f"deploy-status-{deploy.pk}",
        f"deploy-report-{deploy.pk}",
    }
    assert "It has not committed a batch" in drawn[f"deploy-report-{deploy.pk}"]
    rows = dict(fragments.draw("deploys", None, now))
    assert rows.keys() == {f"deploy-row-{deploy.pk}"}
    assert not fragments.draw("deploy:none", None, now)
