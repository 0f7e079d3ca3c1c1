"""What an owner's files no longer hold is stopped and deleted, scripts too, once all is good."""

from typing import Any

import pytest
from django.utils import timezone

from queries.domain.deploys.request import DeployState
from queries.domain.errors import Invalid
from queries.domain.states import Desired, Verb
from queries.models.applications import Application, Script
from queries.models.definitions import Managed, Query
from queries.models.history import Operation
from tests.scenarios.deploys.way import NOTE, Way
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import DIVIDE
from tests.services.bulk import advance_many

pytestmark = pytest.mark.django_db


@pytest.fixture
def stage(db: None) -> ScriptStage:
    return ScriptStage()


@pytest.fixture
def way(stage: ScriptStage) -> Way:
    return Way(stage)


def owned(stage: ScriptStage, **of: Any) -> None:
    by = {"applied": {}, "applied_at": stage.now, "applied_by": "ada"}
    Managed.objects.create(owner="repo", **of, **by)


def carry_out(operation: Operation) -> None:
    for _ in range(3):
        advance_many(operation.pk, now=timezone.now())


def test_a_running_script_and_query_are_stopped_and_deleted_after_a_good_deploy(
    way: Way, stage: ScriptStage
) -> None:
    stage.running("counts")
    for name in ("kept", "old"):
        stage.query(name)
        stage.up(name)
    owned(stage, application=stage.job)
    owned(stage, query=stage.row("old"))
    kept = way.manifest("kept", conf={NOTE: "new"})
    with pytest.raises(Invalid) as caught:
        way.ask(kept, prune=True)
    outs = [one.way_out for one in caught.value.problems]
    assert len(outs) == 2
    assert all("prune_running" in out for out in outs)

    way.ask(kept, prune=True, prune_running=True)
    assert stage.script.desired == Desired.RUNNING, "it is stopped once all is good"
    deploy = way.came_up("kept")
    assert deploy.state == DeployState.SUCCEEDED, deploy.reason
    operation = Operation.objects.get(verb=Verb.PRUNE)
    assert deploy.follows == [str(operation.uuid)]
    carry_out(operation)
    assert (stage.script.desired, stage.row("old").desired) == (Desired.STOPPED, Desired.STOPPED)
    stage.look()
    carry_out(operation)
    assert Application.objects.filter(name="job", archived_at=None).exists(), "it still runs"
    way.leave("old", "old")
    stage.launcher.leave("old")
    stage.launcher.leave("job")
    stage.look()
    carry_out(operation)
    operation.refresh_from_db()
    assert operation.outcome == "DONE", operation.result
    assert not Application.objects.filter(name="job", archived_at=None).exists()
    living = Query.objects.filter(archived_at=None).values_list("name", flat=True)
    assert set(living) == {"kept"}


def test_nothing_is_stopped_by_a_deploy_that_goes_back(way: Way, stage: ScriptStage) -> None:
    stage.running("counts")
    stage.query("kept")
    stage.up("kept")
    owned(stage, application=stage.job)
    way.ask(way.manifest("kept", conf={NOTE: "new"}), prune=True, prune_running=True)
    way.leave("kept", "kept")
    stage.ready("kept")
    stage.fail("kept", DIVIDE)
    way.work()
    way.probe()
    assert way.came_back("kept").state == DeployState.ROLLED_BACK
    assert stage.script.desired == Desired.RUNNING
    assert not Operation.objects.filter(verb=Verb.PRUNE).exists()


def test_a_script_that_is_started_again_is_not_deleted(way: Way, stage: ScriptStage) -> None:
    stage.running("counts")
    owned(stage, application=stage.job)
    deploy = way.ask(prune=True, prune_running=True)
    assert deploy.state == DeployState.SUCCEEDED, deploy.reason
    operation = Operation.objects.get(verb=Verb.PRUNE)
    carry_out(operation)
    Operation.objects.filter(verb=Verb.STOP).update(outcome="DONE")
    Script.objects.update(desired=Desired.RUNNING)
    carry_out(operation)
    operation.refresh_from_db()
    [line] = operation.result["queries"]
    assert (line["outcome"], line["detail"]) == ("REFUSED", "Its script has been started again.")
    assert Application.objects.filter(name="job", archived_at=None).exists()
