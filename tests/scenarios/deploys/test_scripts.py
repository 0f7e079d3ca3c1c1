"""Deploys of applications whose driver runs a script: judged by the script, taken back with it."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from queries.domain.deploys.request import ChangeState, DeployState
from queries.domain.states import Desired, Phase
from queries.models.deploys import Deploy
from queries.models.history import Operation
from queries.services.supervision import application_operations as verbs
from tests.scenarios.deploys.way import Way
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import BROKEN_PIPE, NO_SUCH_SOURCE

pytestmark = pytest.mark.django_db

FAST = {"kind": "available_now"}


@pytest.fixture
def stage(db: None, settings: Any, tmp_path: Path) -> ScriptStage:
    (tmp_path / "job.py").touch()
    settings.CODE_ROOTS = [str(tmp_path)]
    return ScriptStage(str(tmp_path))


@pytest.fixture
def way(stage: ScriptStage) -> Way:
    return Way(stage)


def job(way: Way, *arguments: str, name: str = "job", **whole: Any) -> Deploy:
    """Deploy the application with other arguments of its script."""
    how = {key: whole.pop(key) for key in ("good", "waves", "on_failure") if key in whole}
    return way.ask(manifest(*arguments, name=name, **whole), **how)


def manifest(*arguments: str, name: str = "job", **whole: Any) -> dict[str, Any]:
    [code] = settings.CODE_ROOTS
    spec = {"kind": "script", "master": "local[2]", "memory": "1g", "python_path": [code]}
    script = {"file": f"{code}/job.py", "arguments": list(arguments or ["--fast"])}
    head = {"apiVersion": "headgate/v1", "kind": "Application", "metadata": {"name": name}}
    return {**head, "spec": {**spec, "script": script}, **whole}


def fresh(stage: ScriptStage) -> None:
    """The old driver leaves, and the next one's session is up."""
    stage.launcher.leave("job")
    stage.look("job")
    stage.ready("job")


def restarts(name: str = "job") -> int:
    return Operation.objects.filter(application__name=name, verb="restart").count()


@pytest.mark.sql(
    "queries.selectors.deploys.evidence._fewest_batches",
    "queries.selectors.deploys.evidence._of_script",
    "queries.selectors.deploys.evidence.of_query",
    "queries.selectors.deploys.evidence.quiet_since",
    "queries.selectors.deploys.evidence.ready_at",
    "queries.selectors.manifests.look_up",
)
def test_a_good_script_is_judged_by_itself_and_by_what_it_starts(
    way: Way, stage: ScriptStage
) -> None:
    stage.running("counts")
    deploy = job(way, "--slow")
    assert (deploy.state, deploy.stage) == (DeployState.RUNNING, "judge")
    fresh(stage)
    deploy = way.work()
    assert deploy.stage == "judge", "its driver is ready, and has started nothing yet"
    assert "has not started any query" in str(way.of("job", "Application").reason)
    stage.find("counts")
    deploy = way.work()
    assert deploy.state == DeployState.SUCCEEDED, deploy.reason
    change = way.of("job", "Application")
    assert (change.state, change.to_revision) == (ChangeState.GOOD, 2)
    assert change.evidence["driver"] == stage.driver("job").epoch
    assert [one["query"] for one in change.evidence["queries"]] == ["job/counts"]
    assert "job/counts" in change.judged_by
    assert restarts() == 1


def test_a_script_that_fails_goes_back_and_its_queries_with_it(
    way: Way, stage: ScriptStage
) -> None:
    stage.running("counts")
    job(way, "--wrong")
    fresh(stage)
    stage.find("counts")
    stage.fail_script(NO_SUCH_SOURCE)
    deploy = way.work()
    assert "job failed: " in str(deploy.reason)
    assert deploy.stage == "judge-back", deploy.reason
    assert stage.job.revisions.latest("number").spec["script"]["arguments"] == ["--fast"]
    stage.ready("job")
    assert way.work().stage == "judge-back", "what ran before does not run again yet"
    stage.find("counts")
    deploy = way.work()
    assert deploy.state == DeployState.ROLLED_BACK, deploy.reason
    assert {one.state for one in deploy.changes.all()} == {ChangeState.ROLLED_BACK}
    assert stage.driver("job").application_revision.number == 3
    [failure] = way.of("job", "Application").evidence["failures"]
    assert failure["error_class"] == "DATA_SOURCE_NOT_FOUND"


def test_a_query_that_gets_another_trigger_by_new_code_goes_back_with_the_script(
    way: Way, stage: ScriptStage
) -> None:
    stage.running("counts")
    job(way, "--wrong")
    fresh(stage)
    stage.find("counts", trigger={"kind": "processing_time", "interval": "7 seconds"})
    assert stage.row("job/counts").revisions.count() == 2
    stage.fail_script(NO_SUCH_SOURCE)
    deploy = way.work()
    assert deploy.stage == "judge-back", deploy.reason
    stage.ready("job")
    stage.find("counts")
    assert way.work().state == DeployState.ROLLED_BACK


def test_a_deploy_that_mends_a_failed_script_waits_until_it_runs(
    way: Way, stage: ScriptStage
) -> None:
    stage.running("counts")
    stage.fail_script(NO_SUCH_SOURCE)
    assert stage.script.phase == Phase.FAILED
    deploy = job(way, "--mended")
    assert (deploy.state, deploy.stage) == (DeployState.RUNNING, "judge")
    stage.ready("job")
    assert way.work().stage == "judge"
    stage.find("counts")
    assert way.work().state == DeployState.SUCCEEDED


def test_a_deploy_that_does_not_mend_a_failed_script_goes_back(
    way: Way, stage: ScriptStage
) -> None:
    stage.running("counts")
    stage.fail_script(NO_SUCH_SOURCE)
    job(way, "--as-wrong")
    stage.ready("job")
    stage.fail_script(NO_SUCH_SOURCE)
    deploy = way.work()
    assert "job failed: " in str(deploy.reason)
    assert deploy.state == DeployState.ROLLED_BACK, "it did not run before: nothing is waited for"
    assert stage.script.desired == Desired.RUNNING


def test_a_script_that_has_failed_is_not_good_while_its_driver_ends(
    way: Way, stage: ScriptStage
) -> None:
    """What it has started commits its batch in flight meanwhile."""
    stage.running("counts")
    job(way, "--raises")
    fresh(stage)
    stage.launcher.script_is_failing("job")
    stage.find("counts")
    assert stage.script.phase == Phase.STOPPING
    assert way.work().stage == "judge"
    stage.fail_script(NO_SUCH_SOURCE)
    assert way.work().stage == "judge-back"
    stage.check_history()


def test_a_script_that_ran_no_query_before_is_judged_too(way: Way, stage: ScriptStage) -> None:
    stage.running()
    job(way, "--slow")
    fresh(stage)
    assert way.work().stage == "judge"
    stage.find("new")
    assert way.work().state == DeployState.SUCCEEDED


def test_every_query_that_a_script_starts_must_be_good(way: Way, stage: ScriptStage) -> None:
    stage.running("counts")
    job(way, "--more", good={"batches": 2})
    fresh(stage)
    stage.find("counts")
    way.store_batches("job/counts", 2)
    stage.launcher.finds("job", "totals")
    stage.look("job")
    deploy = way.work()
    assert deploy.stage == "judge"
    assert "job/totals" in str(way.of("job", "Application").reason)
    stage.commit("job/totals")
    way.store_batches("job/totals", 1)
    assert "1 of 2 batches" in str(way.work().changes.get(kind="Application").reason)
    way.store_batches("job/totals", 1)
    assert way.work().state == DeployState.SUCCEEDED


def test_a_new_failure_of_a_query_that_the_script_starts_again_goes_back(
    way: Way, stage: ScriptStage
) -> None:
    stage.running("counts")
    job(way, "--more", good={"batches": 2})
    fresh(stage)
    stage.find("totals")
    stage.fail("job/totals", BROKEN_PIPE)
    deploy = way.work()
    assert "job failed: " in str(deploy.reason)
    assert deploy.stage == "judge-back"


def test_a_query_that_new_code_drops_is_not_asked_for(way: Way, stage: ScriptStage) -> None:
    stage.running("counts", "totals")
    job(way, "--without-totals")
    fresh(stage)
    stage.find("counts")
    assert way.work().stage == "judge", "the script may start it yet"
    assert "has not started it yet" in str(way.of("job/totals").reason)
    deploy = way.work(minutes=1.1)
    assert deploy.state == DeployState.SUCCEEDED, deploy.reason
    assert "so it is not evaluated" in way.of("job/totals").judged_by


def test_a_script_that_starts_nothing_is_bad_at_the_deadline(way: Way, stage: ScriptStage) -> None:
    stage.running("counts")
    job(way, "--hangs")
    fresh(stage)
    deploy = way.work(minutes=11)
    assert "job did not meet the conditions within 10 min" in str(deploy.reason)
    assert "has not started any query" in str(deploy.reason)
    assert deploy.stage == "judge-back"


def test_a_script_that_completes_is_good(way: Way, stage: ScriptStage) -> None:
    stage.running("all")
    job(way, "--once")
    fresh(stage)
    stage.launcher.finds("job", "all", trigger=FAST)
    stage.look("job")
    stage.launcher.end_run(stage.run("job/all").pk)
    stage.look("job")
    stage.launcher.script_completes("job")
    stage.look("job")
    deploy = way.work()
    assert deploy.state == DeployState.SUCCEEDED, deploy.reason
    assert stage.script.desired == Desired.STOPPED


def test_a_question_of_new_code_goes_back(way: Way, stage: ScriptStage) -> None:
    """One query has gone and another came: held until an author answers, or the code goes back."""
    stage.running("counts")
    job(way, "--renamed")
    fresh(stage)
    stage.launcher.asks("job", "totals", stage.row("job/counts").pk)
    stage.look("job")
    deploy = way.work()
    assert deploy.stage == "judge-back", deploy.reason
    assert stage.script.question == {}
    stage.ready("job")
    stage.find("counts")
    assert way.work().state == DeployState.ROLLED_BACK


def test_a_new_script_is_started_in_its_wave_and_judged(way: Way, stage: ScriptStage) -> None:
    deploy = job(way, name="fresh", desired="RUNNING")
    assert (deploy.state, deploy.stage, deploy.waves) == (DeployState.RUNNING, "judge", 1)
    stage.ready("fresh")
    stage.launcher.finds("fresh", "counts")
    stage.look("fresh")
    stage.commit("fresh/counts")
    deploy = way.work()
    assert deploy.state == DeployState.SUCCEEDED, deploy.reason
    assert way.of("fresh", "Application").from_revision is None
    assert not Operation.objects.filter(verb="start-many").exists(), "the deploy has started it"


def test_new_scripts_of_one_wave_are_units_of_their_own(way: Way, stage: ScriptStage) -> None:
    names = ("one", "two")
    deploy = way.ask(*(manifest(name=name, desired="RUNNING") for name in names))
    assert deploy.stage == "judge"
    for name in names:
        stage.ready(name)
        stage.launcher.finds(name, "counts")
        stage.look(name)
        stage.commit(f"{name}/counts")
    assert way.work().state == DeployState.SUCCEEDED
    assert [restarts(name) for name in names] == [1, 1]


def test_a_new_script_is_stopped_on_the_way_back(way: Way, stage: ScriptStage) -> None:
    job(way, name="fresh", desired="RUNNING")
    stage.ready("fresh")
    stage.launcher.script_fails("fresh", NO_SUCH_SOURCE)
    stage.look("fresh")
    deploy = way.work()
    assert deploy.state == DeployState.ROLLED_BACK, deploy.reason
    row = stage.driver("fresh").application
    assert row.archived_at is None
    assert row.script.desired == Desired.STOPPED


def test_a_script_that_is_only_to_run_is_started_judged_and_stopped_again(
    way: Way, stage: ScriptStage
) -> None:
    deploy = job(way, desired="RUNNING")
    assert (deploy.stage, stage.script.desired) == ("judge", Desired.RUNNING)
    stage.ready("job")
    stage.fail_script(NO_SUCH_SOURCE)
    deploy = way.work()
    assert deploy.state == DeployState.ROLLED_BACK, deploy.reason
    assert stage.script.desired == Desired.STOPPED
    assert stage.job.revisions.count() == 1


def test_a_script_that_is_to_stop_is_written_and_stopped_at_the_end(
    way: Way, stage: ScriptStage
) -> None:
    stage.running("counts")
    deploy = job(way, "--slow", desired="STOPPED")
    assert (deploy.state, deploy.waves) == (DeployState.SUCCEEDED, 0)
    assert stage.job.revisions.count() == 2
    assert Operation.objects.filter(verb="stop-many").count() == 1
    assert restarts() == 0


def test_a_script_that_somebody_stops_stays_stopped_on_the_way_back(
    way: Way, stage: ScriptStage
) -> None:
    stage.running("counts")
    job(way, "--slow")
    fresh(stage)
    stage.stop_script()
    deploy = way.work()
    assert "job was stopped in the meantime" in str(deploy.reason)
    assert deploy.state == DeployState.ROLLED_BACK, deploy.reason
    assert stage.script.desired == Desired.STOPPED
    assert stage.job.revisions.latest("number").spec["script"]["arguments"] == ["--fast"]


def test_what_somebody_starts_on_another_revision_is_not_judged_as_the_deploys(
    way: Way, stage: ScriptStage
) -> None:
    stage.running("counts")
    job(way, "--slow", on_failure="stop")
    row = stage.job
    row.revisions.create(
        number=3, spec=row.revisions.get(number=1).spec, author="ada", created_at=stage.now
    )
    verbs.request_application_restart(application=row, actor="ada", now=stage.now)
    deploy = way.work()
    assert deploy.state == DeployState.FAILED
    assert "job was changed or started on another revision" in str(deploy.reason)


def test_a_driver_of_before_says_nothing_of_the_new_code(way: Way, stage: ScriptStage) -> None:
    """It dies as it is to leave: that is no failure of what comes after it."""
    stage.running("counts")
    job(way, "--slow")
    stage.launcher.die("job")
    stage.look("job")
    assert way.work().stage == "judge"
    stage.ready("job")
    stage.find("counts")
    assert way.work().state == DeployState.SUCCEEDED
