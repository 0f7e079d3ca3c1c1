"""Failures are listed by their fingerprint, and each says why it broke and what to do."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from controlplane.masking import IN_REQUEST
from headgate_ground.masking import TABLE, LocalSearcher
from queries.domain.protocol import Killer, RunError
from queries.models.history import Failure, FailureGroup
from queries.services import failures
from tests.checkpoints.forms import write_checkpoint
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, NO_SUCH_SOURCE, Stage
from tests.web.browserless import Page

STACK = """org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
\tat com.acme.Recovery.compute(Recovery.scala:41)
Caused by: java.lang.ArithmeticException: password=hunter2hunter2 / by zero
\tat java.base/java.lang.Math.floorDiv(Math.java:1)
"""


@pytest.fixture
def broken(stage: Stage) -> Stage:
    """Return a stage on which delays failed once by a bug, and ticks by a service away."""
    stage.query("delays")
    stage.query("ticks")
    for name, error in (("delays", DIVIDE), ("ticks", BROKEN_PIPE)):
        stage.up(name)
        stage.fail(name, error, batch=7)
    return stage


def _see(client: Client, person: User, address: str) -> Page:
    client.force_login(person)
    return Page(client, address)


def test_groups_show_count_query_and_status(client: Client, viewer: User, broken: Stage) -> None:
    page = _see(client, viewer, "/failures/")
    assert "DIVIDE_BY_ZERO" in page.text
    assert "delays" in page.text
    assert "ConnectException: Connection refused" in page.text
    assert "Resolve" not in page.text.replace("Resolved", "")


@pytest.mark.sql("queries.selectors.failures.failures.failure_groups")
def test_filters_stand_in_the_address(client: Client, viewer: User, broken: Stage) -> None:
    only = _see(client, viewer, "/failures/?query=delays").text
    assert "DIVIDE_BY_ZERO" in only
    assert "ConnectException" not in only
    only = _see(client, viewer, "/failures/?q=refused").text
    assert "ConnectException" in only
    assert "DIVIDE_BY_ZERO" not in only
    assert "No matching failures" in _see(client, viewer, "/failures/?application=nobody").text


def test_no_failure_is_said_kindly(client: Client, viewer: User, stage: Stage) -> None:
    assert "No failures yet" in _see(client, viewer, "/failures/").text


def test_a_resolved_group_that_fails_again_is_open_and_marked(
    client: Client, operator: User, broken: Stage
) -> None:
    group = FailureGroup.objects.get(query__name="delays")
    client.force_login(operator)
    answer = client.post(f"/failures/groups/{group.pk}/resolve/", {"next": "/failures/"})
    assert answer["Location"] == "/failures/"
    group.refresh_from_db()
    assert (group.status, group.resolved_by) == ("RESOLVED", "otto")
    assert "DIVIDE_BY_ZERO" not in Page(client, "/failures/").text
    assert "DIVIDE_BY_ZERO" in Page(client, "/failures/?status=resolved").text

    broken.ready("delays")
    broken.fail("delays", DIVIDE, batch=7)
    page = Page(client, "/failures/?status=regressed")
    assert "DIVIDE_BY_ZERO" in page.text
    assert "regressed" in page.text
    assert FailureGroup.objects.get(query__name="delays").count == 2


def test_a_group_can_be_opened_again(client: Client, operator: User, broken: Stage) -> None:
    group = FailureGroup.objects.get(query__name="delays")
    failures.resolve_group(group=group, actor="otto", now=broken.now)
    client.force_login(operator)
    client.post(f"/failures/groups/{group.pk}/reopen/")
    group.refresh_from_db()
    assert group.status == "OPEN"


def test_a_viewer_cannot_resolve(client: Client, viewer: User, broken: Stage) -> None:
    group = FailureGroup.objects.get(query__name="delays")
    client.force_login(viewer)
    assert client.post(f"/failures/groups/{group.pk}/resolve/").status_code == 403
    group.refresh_from_db()
    assert group.status == "OPEN"


def test_a_failure_says_cause_meaning_way_out_batch_and_policy(
    client: Client, viewer: User, broken: Stage
) -> None:
    group = FailureGroup.objects.get(query__name="delays")
    page = _see(client, viewer, f"/failures/groups/{group.pk}/")
    assert page.status == 200
    assert "Division by zero" in page.text
    assert "division by zero" in page.text
    assert "try_divide" in page.text
    assert "batch 7" in page.text
    assert "3 times" in page.text
    assert "a retry probe runs every 30 min" in page.text


def test_the_root_cause_stands_first_and_frames_of_others_are_folded(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", RunError("", "java.lang.ArithmeticException", "/ by zero", STACK), batch=1)
    page = _see(client, viewer, f"/failures/{Failure.objects.get().pk}/")
    assert page.html.index("ArithmeticException: password") < page.html.index("Job aborted")
    folded = page.html.split('<details class="frames">')
    assert len(folded) == 3
    assert "DAGScheduler" in folded[2]
    assert "com.acme.Recovery" not in folded[1].split("</details>")[0]
    assert "1 frame from Spark" in page.text


def test_no_secret_of_a_message_reaches_the_page(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", RunError("", "java.lang.ArithmeticException", "/ by zero", STACK), batch=1)
    failure = Failure.objects.get()
    Failure.objects.update(
        masked_with="older",
        log_tail="token=abcdefabcdef",
        conf={"spark.x.password": "hunter2hunter2"},
    )
    page = _see(client, viewer, f"/failures/{failure.pk}/")
    assert "hunter2" not in page.html
    assert "abcdefabcdef" not in page.html


@pytest.mark.guarantee("G-SECRET-6")
def test_what_was_masked_with_this_table_when_stored_is_not_searched_again(
    client: Client, viewer: User, broken: Stage
) -> None:
    failure = Failure.objects.get(run__query__name="delays")
    assert failure.masked_with == TABLE
    again = {"root_cause": "pwd=of_cause", "message": "pwd=of_message", "log_tail": "pwd=of_log"}
    for masked_with, seen in ((TABLE, True), ("", False), ("older", False)):
        Failure.objects.filter(pk=failure.pk).update(masked_with=masked_with, **again)
        page = _see(client, viewer, f"/failures/{failure.pk}/").html
        body = client.get(f"/api/v1/failures/{failure.pk}/").content.decode()
        rows = client.get("/api/v1/queries/delays/failures/").content.decode()
        assert [one in page for one in ("of_message", "of_log")] == [seen, seen]
        assert [one in body for one in ("of_cause", "of_message", "of_log")] == [seen] * 3
        assert ("of_cause" in rows) is seen


@pytest.mark.guarantee("G-SECRET-6")
def test_a_request_searches_no_more_than_64_kib_in_the_web_process(
    client: Client, viewer: User, broken: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []
    real = LocalSearcher.mask

    def noted(self: LocalSearcher, text: str) -> str:
        searched.append(len(text))
        return real(self, text)

    failure = Failure.objects.get(run__query__name="delays")
    tail = f"pwd=of_log {'-eyJ' * 50_000} end"
    Failure.objects.filter(pk=failure.pk).update(masked_with="older", log_tail=tail)
    monkeypatch.setattr(LocalSearcher, "mask", noted)
    for address in (f"/failures/{failure.pk}/", f"/api/v1/failures/{failure.pk}/"):
        client.force_login(viewer)
        searched.clear()
        shown = client.get(address).content.decode()
        assert "-eyJ end" in shown
        assert "of_log" not in shown
        assert 0 < sum(searched) <= IN_REQUEST


def test_what_changed_since_the_last_good_run_is_shown_line_by_line(
    client: Client, author: User, stage: Stage
) -> None:
    query = stage.query("delays")
    stage.up("delays")
    stage.wait(5)
    stage.stop("delays")
    stage.launcher.leave("delays")
    stage.look()
    spec = {**query.revisions.get().spec, "sql": "SELECT value / 0 FROM flights"}
    query.revisions.create(number=2, kind="sql", spec=spec, author="ann", created_at=stage.now)
    stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", DIVIDE, batch=1)
    page = _see(client, author, f"/failures/{Failure.objects.get().pk}/")
    assert "Revision r1 → r2" in page.text
    assert "SELECT value / 0 FROM flights" in page.text
    assert "start requested" in page.text


def test_the_death_of_a_driver_has_a_page_too(client: Client, viewer: User, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.die("delays", python="SIGKILL", jvm="SIGKILL")
    stage.look()
    failure = Failure.objects.get(run__isnull=True)
    page = _see(client, viewer, f"/failures/{failure.pk}/")
    assert page.status == 200
    assert "The driver of delays" in page.text
    assert "SIGKILL" in page.text


@pytest.mark.parametrize(
    ("killed", "says"),
    [
        (Killer.STRANGER, "not by Headgate and not for lack of memory"),
        (Killer.ISOLATION_LATE, "its isolation was not set up in time"),
    ],
)
def test_the_page_of_a_drivers_death_says_who_ended_it(
    client: Client, viewer: User, stage: Stage, killed: Killer, says: str
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.die("delays", python="SIGKILL", jvm="UNKNOWN", killed=killed)
    stage.look()
    page = _see(client, viewer, f"/failures/{Failure.objects.get(run__isnull=True).pk}/")
    assert says in page.text
    assert "OOM" not in page.text


def test_a_script_that_never_had_a_good_run_is_compared_with_nothing(
    client: Client, viewer: User
) -> None:
    job = ScriptStage()
    job.running()
    job.fail_script(NO_SUCH_SOURCE)
    page = _see(client, viewer, f"/failures/{Failure.objects.get().pk}/")
    assert "No query of this application has committed a batch" in page.text
    assert "last good" not in page.text
    assert "Same revision" not in page.text
    assert "Check its input data" not in page.text


def test_a_script_whose_own_driver_had_committed_is_not_compared_with_an_earlier_one(
    client: Client, viewer: User
) -> None:
    job = ScriptStage()
    job.running("counts")
    job.fail_script(NO_SUCH_SOURCE)
    page = _see(client, viewer, f"/failures/{Failure.objects.get(run=None).pk}/")
    assert "This driver had committed batches before it failed" in page.text


@pytest.mark.sql(
    "queries.selectors.failures.failures.failures_of",
)
def test_an_author_takes_over_a_checkpoint_of_another_installation(
    client: Client, author: User, operator: User, stage: Stage
) -> None:
    query = stage.query("delays")
    stage.start("delays")
    stage.ready("delays")
    stage.launcher.refuse(stage.run("delays").pk, "foreign")
    stage.look()
    page = _see(client, author, f"/failures/{Failure.objects.get().pk}/")
    assert "another Headgate installation" in page.text
    assert "/queries/delays/takeover/" in page.html
    confirm = Page(client, "/queries/delays/takeover/")
    assert "batches are executed twice" in confirm.text
    confirm.press()
    assert query.checkpoints.get().takeover_at is not None
    client.force_login(operator)
    assert client.post("/queries/delays/takeover/").status_code == 403


@pytest.mark.parametrize("address", ["/failures/", "/failures/1/", "/failures/groups/1/"])
def test_an_outsider_is_refused(client: Client, outsider: User, address: str) -> None:
    client.force_login(outsider)
    assert client.get(address).status_code == 403


def test_a_failure_that_is_not_there_is_a_plain_page(client: Client, viewer: User) -> None:
    page = _see(client, viewer, "/failures/99/")
    assert page.status == 404
    assert "Failure 99 does not exist" in page.text


def test_a_batch_that_the_checkpoint_holds_is_one_click_away(
    client: Client, viewer: User, stage: Stage, tmp_path: Path
) -> None:
    query = stage.query("delays")
    query.checkpoints.update(location=f"file://{tmp_path}/delays")
    stage.up("delays")
    stage.fail("delays", DIVIDE, batch=1)
    address = f"/failures/{Failure.objects.get().pk}/"
    client.force_login(viewer)
    link = 'href="/queries/delays/checkpoint/batches/1/"'
    assert link not in Page(client, address).html  # no such file: nothing is promised
    write_checkpoint(tmp_path / "delays", batches=range(2))
    assert link in Page(client, address).html
    assert client.get("/queries/delays/checkpoint/batches/1/").status_code == 200


def test_the_records_of_a_failed_batch_are_among_what_an_author_can_do(
    client: Client, author: User, viewer: User, stage: Stage, tmp_path: Path
) -> None:
    query = stage.query("delays")
    query.checkpoints.update(location=f"file://{tmp_path}/delays")
    stage.up("delays")
    stage.fail("delays", DIVIDE, batch=1)
    write_checkpoint(tmp_path / "delays", batches=range(2))
    address = f"/failures/{Failure.objects.get().pk}/"
    client.force_login(author)
    acts = Page(client, address).html.partition("What you can do")[2].partition("</dd>")[0]
    assert 'action="/queries/delays/records/"' in acts
    assert "View records" in acts
    client.force_login(viewer)
    assert "View records" not in Page(client, address).html
