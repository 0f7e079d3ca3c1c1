"""Deploys that go well, and those that go back by themselves."""

from pathlib import Path

import pytest
from django.conf import LazySettings

from queries.domain.deploys.request import ChangeState, DeployState
from queries.domain.states import Desired, Phase
from queries.models.definitions import Checkpoint
from tests.scenarios.deploys.way import NOTE, REFUSED, Way
from tests.scenarios.stage import DIVIDE, NO_SUCH_SOURCE, Stage


@pytest.fixture
def way(stage: Stage) -> Way:
    return Way(stage)


def test_a_good_change_is_written_restarted_and_judged(way: Way, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    deploy = way.change("delays")
    assert (deploy.state, deploy.stage, deploy.wave) == (DeployState.RUNNING, "judge", 1)
    deploy = way.came_up("delays")
    assert deploy.state == DeployState.SUCCEEDED
    change = way.of("delays")
    assert (change.state, change.from_revision, change.to_revision) == (ChangeState.GOOD, 1, 2)
    assert change.first_batch == 10
    assert stage.row("delays").target_revision.number == 2  # type: ignore[union-attr]
    assert stage.phase("delays") == Phase.RUNNING


def test_a_canary_goes_first_and_the_others_some_at_a_time(way: Way, stage: Stage) -> None:
    for name in ("a", "b", "c", "d"):
        stage.query(name)
        stage.up(name)
    way.change("a", "b", "c", "d", waves={"canary": ["c"], "size": 2})
    written = {name for name in "abcd" if stage.row(name).revisions.count() == 2}
    assert written == {"c"}, "a driver that dies takes no definition whose wave has not come"
    assert way.came_up("c").wave == 2
    assert {name for name in "abcd" if stage.row(name).revisions.count() == 2} == {"a", "b", "c"}
    assert way.came_up("a").wave == 2
    assert way.came_up("b").wave == 3
    assert way.came_up("d").state == DeployState.SUCCEEDED


def test_a_new_failure_rolls_everything_back_and_the_report_names_it(
    way: Way, stage: Stage
) -> None:
    for name in ("a", "b"):
        stage.query(name)
        stage.up(name)
    way.change("a", "b", waves={"size": 1})
    way.came_up("a")
    way.leave("b", "b")
    stage.ready("b")
    stage.fail("b", DIVIDE)
    deploy = way.work()
    assert "b failed" in str(deploy.reason)
    assert "ivision by zero" in str(deploy.reason)
    assert deploy.stage == "try-back", "what the new definition may have written is tried first"
    way.probe()
    deploy = way.probe()
    assert deploy.stage == "judge-back"
    assert [stage.row(one).revisions.count() for one in ("a", "b")] == [3, 3]
    way.came_back("a")
    deploy = way.came_back("b")
    assert deploy.state == DeployState.ROLLED_BACK
    [failure] = way.of("b").evidence["failures"]
    assert failure["error_class"] == "DIVIDE_BY_ZERO"
    for name in ("a", "b"):
        change = way.of(name)
        assert (change.state, change.back_revision) == (ChangeState.ROLLED_BACK, 3)
        assert NOTE not in stage.row(name).revisions.get(number=3).spec.get("conf", {})
        assert stage.phase(name) == Phase.RUNNING


def test_what_failed_before_spark_started_it_goes_back_without_a_trial(
    way: Way, stage: Stage
) -> None:
    stage.query("a")
    stage.up("a")
    way.change("a")
    way.leave("a", "a")
    stage.ready("a")
    stage.launcher.fail_run(stage.run("a").pk, NO_SUCH_SOURCE)
    stage.look()
    deploy = way.work()
    assert deploy.stage in ("judge-back", "try-back")


def test_a_former_definition_that_cannot_read_the_state_offers_the_rewind(
    way: Way, stage: Stage
) -> None:
    stage.query("a")
    stage.up("a")
    way.change("a")
    way.came_up("a")
    way.change("a", note="newer", good={"batches": 5})
    way.came_up("a")
    deploy = way.work(minutes=11)
    assert "1 of 5 batches" in str(deploy.reason)
    deploy = way.probe(tried=REFUSED)
    assert deploy.state == DeployState.FAILED
    assert "It is not proven that revision" in str(deploy.reason)
    change = way.of("a")
    assert (change.state, change.back_revision) == (ChangeState.KEPT, 4)
    assert stage.row("a").target_revision.number == 3  # type: ignore[union-attr]
    assert stage.phase("a") == Phase.RUNNING, "what runs goes on"


def test_stop_leaves_what_is_written_and_begins_no_further_wave(way: Way, stage: Stage) -> None:
    for name in ("a", "b"):
        stage.query(name)
        stage.up(name)
    way.change("a", "b", waves={"size": 1}, on_failure="stop")
    way.leave("a", "a")
    stage.ready("a")
    stage.fail("a", DIVIDE)
    deploy = way.work()
    assert deploy.state == DeployState.FAILED
    assert [way.of(one).state for one in ("a", "b")] == [ChangeState.BAD, ChangeState.LEFT]
    assert [stage.row(one).revisions.count() for one in ("a", "b")] == [2, 1]


def test_cancelling_before_anything_is_written_ends_it_at_once(way: Way, stage: Stage) -> None:
    stage.query("a")
    stage.up("a")
    deploy = way.change("a", preflight=True)
    assert deploy.stage == "preflight"
    deploy = way.cancel()
    assert deploy.state == DeployState.CANCELLED
    assert str(deploy.reason) == "cancelled by olga"
    assert stage.row("a").revisions.count() == 1


def test_cancelling_later_goes_back(way: Way, stage: Stage) -> None:
    stage.query("a")
    stage.up("a")
    way.change("a")
    way.leave("a", "a")
    deploy = way.cancel()
    assert deploy.stage in ("judge-back", "try-back")


def test_a_preflight_that_fails_ends_it_before_anything_is_written(way: Way, stage: Stage) -> None:
    stage.query("a")
    stage.up("a")
    way.change("a", preflight=True)
    deploy = way.probe(tried=REFUSED)
    assert deploy.state == DeployState.FAILED
    assert "The preflight of a failed" in str(deploy.reason)
    assert stage.row("a").revisions.count() == 1


def require_preflight(stage: Stage, name: str, location: str) -> None:
    """Let an application require preflights, and its query's checkpoint be at a location."""
    revision = stage.row(name).application.revisions.latest("number")
    revision.spec = {**revision.spec, "require_preflight": True}
    revision.save()
    Checkpoint.objects.filter(query__name=name).update(location=location)


@pytest.mark.usefixtures("no_java")
def test_a_required_preflight_that_could_not_try_the_checkpoint_ends_it_before_anything_is_written(
    way: Way, stage: Stage
) -> None:
    stage.query("a")
    stage.up("a")
    require_preflight(stage, "a", "s3a://flights/checkpoints/a")
    epoch = stage.run("a").epoch
    way.change("a")
    deploy = way.probe()
    assert deploy.state == DeployState.FAILED
    assert (
        "Application a requires a preflight, but the preflight of a could not try the checkpoint: "
        "Java cannot be started"
    ) in str(deploy.reason)
    assert "Turn “Require a preflight” off" in str(deploy.reason)
    assert stage.row("a").revisions.count() == 1
    assert stage.run("a").epoch == epoch


@pytest.mark.usefixtures("no_java")
def test_nor_is_another_spark_written_that_was_not_tried_on_the_checkpoint(
    way: Way, stage: Stage, settings: LazySettings, tmp_path: Path
) -> None:
    settings.SPARKS_DIR = tmp_path / "sparks"
    (tmp_path / "sparks" / "4.2" / "pyspark").mkdir(parents=True)
    stage.query("a")
    stage.up("a")
    require_preflight(stage, "a", "s3a://flights/checkpoints/a")
    application = stage.row("a").application
    spec = application.revisions.latest("number").spec
    way.ask(
        {
            "apiVersion": "headgate/v1",
            "kind": "Application",
            "metadata": {"name": application.name},
            "spec": {**spec, "spark": "4.2"},
        },
        preflight=True,
    )
    assert way.probe().state == DeployState.FAILED
    assert application.revisions.count() == 1


@pytest.mark.usefixtures("no_java")
def test_one_that_was_only_asked_for_does_not(way: Way, stage: Stage) -> None:
    stage.query("a")
    stage.up("a")
    Checkpoint.objects.update(location="s3a://flights/checkpoints/a")
    way.change("a", preflight=True)
    deploy = way.probe()
    assert deploy.stage != "preflight"
    assert stage.row("a").revisions.count() == 2


def test_an_application_restarts_with_all_of_its_queries(way: Way, stage: Stage) -> None:
    stage.application("flights")
    for name in ("a", "b"):
        stage.query(name, "flights")
        stage.start(name)
    stage.ready("flights")
    stage.commit("a")
    stage.commit("b")
    stage.query("alone")
    stage.up("alone")
    spec = {"master": "local[4]", "memory": "1g"}
    about = {"name": "flights"}
    application = {"apiVersion": "headgate/v1", "kind": "Application", "metadata": about}
    deploy = way.ask(
        application | {"spec": spec},
        way.manifest("a", conf={NOTE: "new"}),
        way.manifest("alone", conf={NOTE: "new"}),
    )
    assert (deploy.waves, deploy.wave) == (2, 1), "applications go first"
    first = stage.driver("flights")
    stage.launcher.leave("flights")
    stage.look()
    assert stage.driver("flights").epoch > first.epoch
    stage.ready("flights")
    stage.commit("a")
    assert way.work().wave == 1, "a query that does not change is judged too"
    stage.commit("b")
    assert way.work().wave == 2
    assert stage.run("a").revision.number == 2
    assert stage.run("b").revision.number == 1
    assert stage.driver("flights").application_revision.number == 2
    assert way.came_up("alone").state == DeployState.SUCCEEDED


def test_a_stopped_query_is_written_and_not_started(way: Way, stage: Stage) -> None:
    stage.query("a")
    deploy = way.change("a")
    assert deploy.state == DeployState.SUCCEEDED
    assert stage.row("a").revisions.count() == 2
    assert stage.row("a").desired == Desired.STOPPED


def test_a_new_query_is_started_in_its_wave_and_stopped_on_the_way_back(
    way: Way, stage: Stage
) -> None:
    stage.query("old")
    new = way.manifest("old") | {"metadata": {"name": "new"}, "desired": "RUNNING"}
    way.ask(new)
    stage.look()
    stage.ready("new")
    stage.fail("new", NO_SUCH_SOURCE)
    deploy = way.work()
    assert deploy.state == DeployState.ROLLED_BACK
    assert stage.row("new").desired == Desired.STOPPED


def held(stage: Stage, name: str) -> None:
    """The query fails in a way that a restart does not mend."""
    stage.fail(name, NO_SUCH_SOURCE)
    assert stage.phase(name) == Phase.FAILED


def test_a_query_that_is_held_goes_back_before_supervision_has_looked_again(
    way: Way, stage: Stage
) -> None:
    """What it was held for is of the definition before: nothing is known of the one after."""
    stage.query("a")
    stage.up("a")
    way.change("a")
    way.leave("a", "a")
    stage.ready("a")
    held(stage, "a")
    way.work()
    deploy = way.probe()
    assert deploy.stage == "judge-back", deploy.reason
    assert way.came_back("a").state == DeployState.ROLLED_BACK


def test_a_held_query_is_mended_by_a_deploy(way: Way, stage: Stage) -> None:
    stage.query("a")
    stage.up("a")
    held(stage, "a")
    assert way.change("a").stage == "judge"
    assert way.came_up("a").state == DeployState.SUCCEEDED


def test_a_neighbour_that_was_held_before_does_not_stop_an_applications_deploy(
    way: Way, stage: Stage
) -> None:
    stage.application("flights")
    for name in ("a", "b"):
        stage.query(name, "flights")
        stage.start(name)
    stage.ready("flights")
    stage.commit("a")
    held(stage, "b")
    spec = {"master": "local[4]", "memory": "1g"}
    application = {"apiVersion": "headgate/v1", "kind": "Application", "spec": spec}
    way.ask(application | {"metadata": {"name": "flights"}})
    stage.launcher.leave("flights")
    stage.look()
    stage.ready("flights")
    stage.commit("a")
    deploy = way.work()
    assert deploy.state == DeployState.SUCCEEDED, deploy.reason
    assert stage.phase("b") != Phase.RUNNING
