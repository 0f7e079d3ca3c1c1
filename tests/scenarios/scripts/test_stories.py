"""Stories of an application that runs a user's script: it is wanted, its queries are found."""

import pytest

from queries.domain.definitions.spec import PythonQuery
from queries.domain.errors import NotAllowed
from queries.domain.protocol import Want
from queries.domain.states import OperationOutcome, RunOutcome, StopMode
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import Failure
from queries.services.supervision import application_operations as verbs
from queries.services.supervision import operations
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, NO_SUCH_SOURCE, Stage

pytestmark = pytest.mark.django_db


def test_a_script_is_started_and_its_queries_are_found() -> None:
    stage = ScriptStage()
    operation = stage.start_script()
    assert stage.script.phase == "STARTING"
    job = stage.launcher.spec("job").script
    assert job is not None
    assert job.file.endswith("/0/job.py")
    assert job.arguments == ("--fast",)
    stage.ready("job")
    assert stage.script.phase == "RUNNING"
    assert stage.outcome(operation) == OperationOutcome.DONE

    query = stage.find("counts")
    assert query.identity == "name:counts"
    assert stage.phase("job/counts") == "RUNNING"
    assert stage.row("job/counts").desired == "RUNNING"
    run = stage.run("job/counts")
    assert run.found == 1
    assert set(run.revision.spec) == set(PythonQuery.model_fields)
    assert run.checkpoint.location.endswith("/_job/counts")
    [entry] = stage.launcher.assignment("job").queries
    assert (entry.run, entry.found, entry.want) == (run.pk, 1, Want.RUN)


def test_a_stop_drains_its_queries_and_ends_the_script() -> None:
    stage = ScriptStage()
    stage.running("counts")
    operation = stage.stop_script()
    assert stage.script.phase == "STOPPING"
    assert stage.launcher.assignment("job").end
    [entry] = stage.launcher.assignment("job").queries
    assert entry.want is Want.DRAIN
    stage.launcher.end_run(entry.run)
    stage.launcher.leave("job")
    stage.look("job")
    assert stage.script.phase == "STOPPED"
    assert stage.phase("job/counts") == "STOPPED"
    assert stage.outcome(operation) == OperationOutcome.DONE
    assert not stage.launcher.living()
    stage.check_history()


def test_a_script_that_has_done_its_work_is_completed_and_stays_so() -> None:
    stage = ScriptStage()
    stage.running()
    stage.find("all", trigger={"kind": "available_now"})
    stage.launcher.end_run(stage.run("job/all").pk)
    stage.look("job")
    assert stage.phase("job/all") == "COMPLETED"
    stage.launcher.script_completes("job")
    stage.look("job")
    assert stage.script.phase == "COMPLETED"
    assert stage.script.desired == "STOPPED"
    stage.wait(3600)
    assert stage.launcher.epochs("job") == (1,) or len(stage.launcher.epochs("job")) == 1
    assert stage.phase("job/all") == "COMPLETED"
    stage.start_script()
    assert stage.script.phase == "STARTING"
    stage.check_history()


def test_a_script_may_stop_a_query_of_its_own_and_go_on() -> None:
    stage = ScriptStage()
    stage.running("one", "two")
    stage.launcher.end_run(stage.run("job/one").pk)
    stage.look("job")
    assert stage.phase("job/one") == "STOPPED"
    assert stage.row("job/one").desired == "STOPPED"
    assert stage.last_run("job/one").outcome == RunOutcome.STOPPED
    assert not Failure.objects.exists()
    assert stage.script.phase == "RUNNING"


def test_a_failed_script_runs_again_in_a_new_driver_for_ever() -> None:
    stage = ScriptStage()
    stage.running("counts")
    for attempt in range(1, 12):
        stage.fail_script(BROKEN_PIPE)
        assert stage.job.failures == attempt
        if attempt > 1:
            assert stage.script.phase == "BACKOFF"
            assert stage.phase("job/counts") == "BACKOFF"
            at = stage.job.next_attempt_at
            assert at is not None
            stage.wait((at - stage.now).total_seconds() + 1)
        assert stage.script.phase == "STARTING"
        assert stage.phase("job/counts") == "PENDING"
        stage.ready("job")
        stage.launcher.finds("job", "counts")
        stage.look("job")
        assert stage.phase("job/counts") == "STARTING"
    assert len(stage.launcher.epochs("job")) == 12
    assert Query.objects.count() == 1
    stage.check_history()


def test_a_fatal_failure_holds_the_script_until_it_is_started() -> None:
    stage = ScriptStage()
    stage.running("counts")
    stage.fail_script(NO_SUCH_SOURCE)
    assert stage.script.phase == "FAILED"
    assert stage.phase("job/counts") == "FAILED"
    stage.wait(86400)
    assert not stage.launcher.living()
    stage.start_script()
    assert stage.script.phase == "STARTING"
    stage.check_history()


def test_the_same_error_on_the_same_batch_breaks_the_script_and_a_commit_mends_it() -> None:
    stage = ScriptStage()
    stage.running("counts")
    for _ in range(3):
        stage.fail_script(DIVIDE, batch=7)
        if stage.script.phase == "ON_HOLD":
            break
        at = stage.job.next_attempt_at or stage.now
        stage.wait((at - stage.now).total_seconds() + 1)
        stage.ready("job")
        stage.launcher.finds("job", "counts")
        stage.look("job")
    assert stage.script.phase == "ON_HOLD"
    assert "batch 7" in str(stage.job.restart_block_reason)
    assert stage.job.next_attempt_at is not None
    stage.wait(1801)
    assert stage.script.phase == "STARTING"
    stage.ready("job")
    stage.find("counts")
    stage.look("job")
    assert stage.job.restart_block == ""
    stage.check_history()


def test_a_query_that_the_script_starts_again_is_the_same_query() -> None:
    stage = ScriptStage()
    stage.running("counts")
    stage.fail("job/counts", BROKEN_PIPE)
    assert stage.phase("job/counts") == "BACKOFF"
    assert stage.script.phase == "RUNNING"
    stage.launcher.finds("job", "counts")
    stage.look("job")
    assert stage.phase("job/counts") == "STARTING"
    assert Run.objects.filter(query__name="job/counts").count() == 2
    assert Query.objects.count() == 1


def test_a_restart_replaces_the_driver_and_the_queries_come_back() -> None:
    stage = ScriptStage()
    stage.running("counts")
    operation = verbs.request_application_restart(
        application=stage.job, actor="olga", now=stage.now
    )
    stage.settle()
    assert stage.script.phase == "STOPPING"
    stage.launcher.leave("job")
    stage.look("job")
    assert stage.phase("job/counts") == "PENDING"
    stage.ready("job")
    stage.find("counts")
    assert stage.outcome(operation) == OperationOutcome.DONE
    assert stage.phase("job/counts") == "RUNNING"
    stage.check_history()


def test_a_driver_that_dies_is_followed_by_another() -> None:
    stage = ScriptStage()
    stage.running("counts")
    stage.launcher.die("job")
    stage.look("job")
    assert stage.script.phase == "STARTING"
    assert stage.last_run("job/counts").outcome == RunOutcome.DRIVER_ENDED
    stage.ready("job")
    [known] = stage.launcher.spec("job").script.known  # type: ignore[union-attr]
    assert known.identity == "name:counts"
    stage.check_history()


def test_the_installation_stops_and_the_script_comes_back_with_it() -> None:
    from queries.models.drivers import Host

    stage = ScriptStage()
    stage.running("counts")
    host = Host.objects.create(name=stage.job.host, seen_at=stage.now, stopping_since=stage.now)
    stage.look("job")
    assert stage.script.phase == "STOPPING"
    stage.launcher.leave("job")
    stage.look("job")
    assert stage.script.phase == "PENDING"
    assert stage.phase("job/counts") == "PENDING"
    assert stage.script.desired == "RUNNING"
    host.delete()
    stage.look("job")
    assert stage.script.phase == "STARTING"
    stage.check_history()


def test_a_found_query_is_not_acted_on_by_itself() -> None:
    stage = ScriptStage()
    stage.running("counts")
    row = stage.row("job/counts")
    for ask in (operations.request_start, operations.request_restart):
        with pytest.raises(NotAllowed, match="script of application job") as refused:
            ask(query=row, actor="olga", now=stage.now)
        assert "stop or restart application job" in refused.value.way_out
    with pytest.raises(NotAllowed):
        operations.request_stop(query=row, mode=StopMode.NOW, actor="olga", now=stage.now)


def test_only_an_application_with_a_script_can_be_started() -> None:
    stage = Stage()
    stage.query("delays")
    application = Application.objects.get(name="delays")
    with pytest.raises(NotAllowed) as refused:
        verbs.request_script_start(application=application, actor="olga", now=stage.now)
    assert "Start its queries" in refused.value.way_out


def test_a_report_that_lies_gets_no_rows_and_is_told() -> None:
    stage = ScriptStage()
    stage.running("counts")
    held = stage.run("job/counts").checkpoint.location
    stage.launcher.finds("job", "thief", location=held)
    stage.launcher.finds("job", "away", location="file:///tmp/../etc")
    stage.launcher.finds("job", "x" * 5000)
    stage.look("job")
    assert [query.name for query in Query.objects.all()] == ["job/counts"]
    notes = " ".join(stage.script.notes)
    assert "job/counts" in notes
    assert ".." in notes
    assert "too long" in notes
    assert max(map(len, stage.script.notes)) < 700


def test_of_many_queries_fifty_are_shown() -> None:
    stage = ScriptStage()
    stage.running()
    for number in range(60):
        stage.launcher.finds("job", f"q{number}")
    stage.look("job")
    assert Query.objects.count() == 50
    assert any("50" in note for note in stage.script.notes)


def test_what_the_script_asks_for_and_does_not_get_is_kept() -> None:
    stage = ScriptStage()
    stage.running()
    stage.launcher.says("job", "The script requests spark.master=local[*], which is not applied.")
    stage.look("job")
    assert stage.script.notes == [
        "The script requests spark.master=local[*], which is not applied."
    ]


@pytest.mark.sql("queries.selectors.code.moved_checkpoints")
def test_a_query_with_another_checkpoint_keeps_the_old_one_as_history() -> None:
    stage = ScriptStage()
    stage.running()
    stage.find("counts", asked="file:///data/one", location="file:///data/one")
    stage.fail_script(BROKEN_PIPE)
    stage.ready("job")
    stage.find("counts", asked="file:///data/two", location="file:///data/two")
    query = stage.row("job/counts")
    places = query.checkpoints.order_by("pk").values_list("location", "retired_at")
    assert [(place, retired is None) for place, retired in places] == [
        ("file:///data/one", False),
        ("file:///data/two", True),
    ]


def test_an_application_is_deleted_with_the_queries_that_its_script_started() -> None:
    stage = ScriptStage()
    stage.running("counts")
    with pytest.raises(NotAllowed, match="has not ended"):
        verbs.archive_application(application=stage.job, actor="ada", now=stage.now)
    stage.stop_script()
    stage.launcher.leave("job")
    stage.look("job")
    verbs.archive_application(application=stage.job, actor="ada", now=stage.now)
    assert not Query.objects.filter(archived_at=None).exists()
    assert not Application.objects.filter(archived_at=None).exists()
