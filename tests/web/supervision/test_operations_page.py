"""The page of one operation: who asked for what, each step, and the way to end it early."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.reasons import Because, Detail
from queries.domain.states import OperationOutcome, Verb
from queries.models.history import Operation
from queries.services.procedures.bulk_operations import begin_many
from queries.services.procedures.engine import (
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
    begin,
    waiting,
)
from queries.views.console import fragments
from tests.scenarios.stage import Stage
from tests.services.bulk import advance_many
from tests.web.browserless import Page


def _wait(turn: StepContext) -> StepResult:
    return waiting("for batch 7")


@pytest.fixture
def rewind(stage: Stage) -> Operation:
    steps = (
        ProcedureStep("Build the new checkpoint", _wait),
        ProcedureStep("Switch", _wait, commits=True),
    )
    procedure = Procedure(Verb.REWIND, steps, limit=timedelta(minutes=5))
    row = begin(
        procedure,
        query=stage.query("delays"),
        arguments={"batch": 40, "password": "hunter2hunter2"},
        actor="olga",
        now=timezone.now(),
    )
    row.steps[0] |= {"state": "DOING", "at": timezone.now().isoformat(), "detail": "for batch 7"}
    row.save()
    return row


def see(client: Client, person: User, row: Operation) -> Page:
    client.force_login(person)
    return Page(client, f"/operations/{row.uuid}/")


def test_it_shows_verb_query_actor_and_each_step_with_what_it_waits_for(
    client: Client, viewer: User, rewind: Operation
) -> None:
    page = see(client, viewer, rewind)
    for words in ("Rewind delays", "olga", "Build the new checkpoint", "for batch 7", "Switch"):
        assert words in page.text
    assert "In progress" in page.text
    assert "40" in page.text
    assert "hunter2" not in page.html


def test_only_who_may_operate_is_offered_to_cancel_it(
    client: Client, viewer: User, operator: User, rewind: Operation
) -> None:
    assert "act-cancel" not in see(client, viewer, rewind).html
    assert "act-cancel" in see(client, operator, rewind).html


def test_it_is_cancelled_by_form_once_the_consequences_were_read(
    client: Client, operator: User, rewind: Operation
) -> None:
    client.force_login(operator)
    page = Page(client, f"/operations/{rewind.uuid}/cancel/")
    assert "cleaned up" in page.text
    after = page.press()
    assert f"/operations/{rewind.uuid}/" in after.address
    rewind.refresh_from_db()
    assert (rewind.outcome, rewind.detail.text) == (OperationOutcome.CANCELLED, "cancelled by otto")
    assert "Cancelled" in after.text


def test_past_its_point_of_no_return_there_is_no_way_to_cancel(
    client: Client, operator: User, rewind: Operation
) -> None:
    Operation.objects.filter(pk=rewind.pk).update(committed=True)
    assert "act-cancel" not in see(client, operator, rewind).html
    assert Page(client, f"/operations/{rewind.uuid}/cancel/").status == 409
    page = Page(client, f"/operations/{rewind.uuid}/")
    answer = client.post(f"/operations/{rewind.uuid}/cancel/", {"next": page.address}, follow=True)
    assert "past its point of no return" in answer.content.decode()
    rewind.refresh_from_db()
    assert rewind.outcome == ""


@pytest.mark.sql(
    "queries.selectors.supervision.history.transitions",
)
def test_what_was_never_finished_is_not_shown_as_under_way_after_the_end(
    client: Client, viewer: User, rewind: Operation
) -> None:
    Operation.objects.filter(pk=rewind.pk).update(
        outcome=OperationOutcome.TIMED_OUT,
        ended_at=timezone.now(),
        detail=Because(Detail.STEP, {"note": "for batch 7"}),
    )
    page = see(client, viewer, rewind)
    assert "Timed out" in page.text
    assert "step-left" in page.html
    assert "step-now" not in page.html


def test_a_plain_verb_shows_the_way_of_its_query_and_what_changed(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.now = timezone.now()
    stage.query("delays")
    row = stage.start("delays")
    assert "Launching" in see(client, viewer, row).text
    stage.ready("delays")
    stage.commit("delays")
    page = see(client, viewer, row)
    assert "Done" in page.text
    assert "start requested" in page.text


def test_children_and_parent_lead_to_each_other(
    client: Client, viewer: User, stage: Stage, rewind: Operation
) -> None:
    child = Operation.objects.create(
        verb=Verb.STOP,
        query=rewind.query,
        application=rewind.application,
        generation=1,
        actor="olga",
        created_at=timezone.now(),
        deadline=timezone.now(),
        parent=rewind,
    )
    assert f"/operations/{child.uuid}/" in see(client, viewer, rewind).html
    assert f"/operations/{rewind.uuid}/" in see(client, viewer, child).html


def test_lists_of_what_was_asked_lead_to_it(
    client: Client, viewer: User, rewind: Operation
) -> None:
    client.force_login(viewer)
    for address in ("/audit/?tab=operations", "/queries/delays/activity/", "/queries/delays/"):
        assert f"/operations/{rewind.uuid}/" in Page(client, address).html


def test_its_steps_are_drawn_live_and_batches_of_other_queries_draw_nothing(
    rewind: Operation, stage: Stage
) -> None:
    topic = f"operation:{rewind.uuid}"
    now = timezone.now()
    assert fragments.topic_exists(topic)
    [(event, html)] = fragments.draw(topic, None, now)
    assert event == f"operation-{rewind.uuid}"
    assert "for batch 7" in html
    assert "<form" not in html
    assert fragments.draw(topic, frozenset({f"query:{rewind.query_id}"}), now)
    assert not fragments.draw(topic, frozenset({"query:999"}), now)
    assert not fragments.draw("operation:no-such-thing", None, now)
    other = f"operation:{Operation().uuid}"
    assert not fragments.draw(other, None, now)


def test_an_operation_that_there_is_not_is_a_plain_404(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    assert client.get(f"/operations/{Operation().uuid}/").status_code == 404


def outcomes(page: Page) -> list[str]:
    """Return the rows of the table of outcomes as text."""
    table = page.html.partition('class="dense outcomes"')[2].partition("</table>")[0]
    rows = table.split("<tr>")[2:]
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in rows]


@pytest.fixture
def many_queries(stage: Stage) -> Operation:
    """One of three is started and done, one is refused, one is under way."""
    rows = [stage.query(name) for name in ("arrivals", "delays", "weather")]
    held = rows[1].application.revisions.get()
    held.spec = {**held.spec, "require_preflight": True}
    held.save()
    row = begin_many(Verb.START_MANY, rows, actor="olga", now=timezone.now())
    advance_many(row.pk, now=timezone.now())
    Operation.objects.filter(verb="start", query=rows[0]).update(outcome=OperationOutcome.DONE)
    Operation.objects.filter(pk=row.pk).update(leased_until=None)
    advance_many(row.pk, now=timezone.now())
    row.refresh_from_db()
    return row


@pytest.mark.sql(
    "queries.views.supervision.operations._changes",
    "queries.views.supervision.operations._context",
    "queries.selectors.supervision.history.operations",
)
def test_of_many_queries_it_shows_each_outcome_with_its_way_out_and_links(
    client: Client, viewer: User, many_queries: Operation
) -> None:
    page = see(client, viewer, many_queries)
    assert "Start 3 queries" in page.text
    assert "1 refused · 1 done · 1 in progress" in page.text
    rows = outcomes(page)
    assert [row.split()[0] for row in rows] == ["delays", "weather", "arrivals"]
    for words in ("Refused", "preflight", "/api/v1/queries/delays/preflight/"):
        assert words in rows[0]
    assert "In progress" in rows[1]
    assert "Done" in rows[2]
    assert 'href="/queries/delays/"' in page.html
    start = Operation.objects.get(verb="start", query__name="arrivals")
    assert f'href="/operations/{start.uuid}/"' in page.html
    assert "way_out" not in page.text, "no raw result"


def test_of_very_many_queries_it_shows_those_that_did_not_succeed_first(
    client: Client, viewer: User, many_queries: Operation
) -> None:
    [line] = [one for one in many_queries.result["queries"] if one["name"] == "arrivals"]
    done = [{**line, "name": f"q{number}", "id": 10_000 + number} for number in range(300)]
    many_queries.result = {"queries": [*done, *many_queries.result["queries"]]}
    many_queries.save()
    page = see(client, viewer, many_queries)
    rows = outcomes(page)
    assert len(rows) == 200
    assert rows[0].split()[0] == "delays"
    assert "And 103 more" in page.text


def test_what_has_been_deleted_and_what_failed_are_told(
    client: Client, viewer: User, stage: Stage
) -> None:
    delays, gone = stage.query("delays"), stage.query("gone")
    row = begin_many(Verb.STOP_MANY, [delays, gone], actor="olga", now=timezone.now())
    type(gone).objects.filter(pk=gone.pk).update(archived_at=timezone.now())
    advance_many(row.pk, now=timezone.now())
    page = see(client, viewer, row)
    [told] = [one for one in outcomes(page) if "gone" in one]
    assert "It has been deleted." in told
    assert "Remove it from the selection" in told
    assert 'href="/queries/gone/"' not in page.html
