"""A worker that dies at any step of a deploy loses nothing, and nothing is done twice."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controlplane import fail_points
from queries.domain.deploys.request import ROLLBACK_STAGES, DeployStage, DeployState
from queries.domain.errors import Invalid, Problem
from queries.models.history import Operation
from queries.services.deploys import steps
from queries.services.deploys.advancing import advance_all
from queries.services.manifests import planning
from tests.killed import killed_at
from tests.scenarios.deploys.way import Way
from tests.scenarios.stage import DIVIDE
from tests.scenarios.stage import Stage as Scene

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]


class Deadly(Way):
    """Workers, each a process that is killed at the first point that none was killed at."""

    def __init__(self, stage: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(stage)
        self.died_at: list[str] = []
        self._note = folder / "point"
        self._test = os.getpid()
        monkeypatch.setattr(fail_points, "reach", self._reach)

    def _reach(self, point: str) -> None:
        if os.getpid() != self._test and point not in self.died_at:
            self._note.write_text(point)
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self) -> None:
        while killed_at("", super().step):
            self.died_at.append(self._note.read_text())


@pytest.fixture
def way(db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deadly:
    return Deadly(Scene(), tmp_path, monkeypatch)


@pytest.fixture
def stage(way: Deadly) -> Scene:
    return way.stage


def _points(stages: Mapping[DeployStage, tuple[str, ...]]) -> set[str]:
    named = {
        f"deploy.{stage}.{place}{when}"
        for stage, places in stages.items()
        for place in places
        for when in ("before", "after")
    }
    return named | {"deploy.begin.leave.before", "deploy.begin.leave.after"}


ACTS = ("", "leave.")


def _up(stage: Scene, *names: str) -> None:
    for name in names:
        stage.query(name)
        stage.up(name)


def test_on_the_way_forward(way: Deadly, stage: Scene) -> None:
    _up(stage, "a", "b")
    way.change("a", "b", waves={"size": 1}, preflight=True)
    way.probe()
    way.probe()
    way.came_up("a")
    deploy = way.came_up("b")
    assert deploy.state == DeployState.SUCCEEDED
    acting = (DeployStage.PREFLIGHT, DeployStage.SNAPSHOT, DeployStage.WRITE, DeployStage.RESTART)
    quiet = (DeployStage.JUDGE, DeployStage.SETTLE)
    expected = dict.fromkeys(acting, ACTS) | dict.fromkeys(quiet, ("leave.",))
    assert set(way.died_at) == _points(expected)
    for name in ("a", "b"):
        assert stage.row(name).revisions.count() == 2
        assert _asked(name, "restart") == 1
        assert _asked(name, "preflight") == 1


def test_on_the_way_back(way: Deadly, stage: Scene) -> None:
    _up(stage, "a")
    way.change("a")
    way.leave("a", "a")
    stage.ready("a")
    stage.fail("a", DIVIDE)
    way.work()
    way.probe()
    deploy = way.came_back("a")
    assert deploy.state == DeployState.ROLLED_BACK
    acting = (DeployStage.SNAPSHOT, DeployStage.WRITE, DeployStage.RESTART, *ROLLBACK_STAGES[:-1])
    quiet = (DeployStage.JUDGE, DeployStage.JUDGE_BACK)
    expected = dict.fromkeys(acting, ACTS) | dict.fromkeys(quiet, ("leave.",))
    assert set(way.died_at) == _points(expected)
    assert stage.row("a").revisions.count() == 3
    assert _asked("a", "preflight") == 1


def _flights(way: Deadly, stage: Scene) -> None:
    """Deploy an application with two queries that run, changed in its memory."""
    stage.application("flights")
    for name in ("a", "b"):
        stage.query(name, "flights")
        stage.start(name)
    stage.ready("flights")
    stage.commit("a")
    stage.commit("b")
    head = {"apiVersion": "headgate/v1", "kind": "Application", "metadata": {"name": "flights"}}
    way.ask({**head, "spec": {"master": "local[2]", "memory": "2g"}})
    _fresh(way, stage)


def _fresh(way: Deadly, stage: Scene) -> None:
    stage.launcher.leave("flights")
    stage.look("flights")
    stage.ready("flights")


def _restarts() -> int:
    rows = Operation.objects.filter(application__name="flights", query=None, verb="restart")
    return rows.count()


def test_in_a_wave_of_applications(way: Deadly, stage: Scene) -> None:
    _flights(way, stage)
    stage.commit("a")
    stage.commit("b")
    deploy = way.work()
    assert deploy.state == DeployState.SUCCEEDED, deploy.reason
    acting = (DeployStage.SNAPSHOT, DeployStage.WRITE, DeployStage.RESTART)
    quiet = (DeployStage.JUDGE, DeployStage.SETTLE)
    expected = dict.fromkeys(acting, ACTS) | dict.fromkeys(quiet, ("leave.",))
    assert set(way.died_at) == _points(expected)
    assert stage.row("a").application.revisions.count() == 2
    assert _restarts() == 1
    assert len(stage.launcher.epochs("flights")) == 2
    assert len(deploy.spans) == 1


def test_in_a_wave_of_applications_that_goes_back(way: Deadly, stage: Scene) -> None:
    _flights(way, stage)
    stage.commit("a")
    stage.fail("b", DIVIDE)
    way.work()
    way.probe()
    deploy = way.probe()
    assert deploy.stage == DeployStage.JUDGE_BACK, deploy.reason
    _fresh(way, stage)
    stage.commit("a")
    stage.commit("b")
    deploy = way.work()
    assert deploy.state == DeployState.ROLLED_BACK, deploy.reason
    acting = (DeployStage.SNAPSHOT, DeployStage.WRITE, DeployStage.RESTART, *ROLLBACK_STAGES[:-1])
    quiet = (DeployStage.JUDGE, DeployStage.JUDGE_BACK)
    expected = dict.fromkeys(acting, ACTS) | dict.fromkeys(quiet, ("leave.",))
    assert set(way.died_at) == _points(expected)
    assert stage.row("a").application.revisions.count() == 3
    assert [stage.row(name).revisions.count() for name in ("a", "b")] == [1, 1]
    assert _restarts() == 2
    assert _asked("a", "preflight") == _asked("b", "preflight") == 1


def _asked(name: str, verb: str) -> int:
    return Operation.objects.filter(query__name=name, verb=verb).count()


def test_two_workers_do_nothing_twice(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between each look of a worker and its act, another does everything."""
    stage = Scene()
    way = Way(stage)
    _up(stage, "a")
    beside: list[str] = []

    def reach(point: str) -> None:
        if point.startswith("deploy.") and point.endswith(".before") and point not in beside:
            beside.append(point)
            advance_all(now=stage.now)

    monkeypatch.setattr(fail_points, "reach", reach)
    way.change("a")
    way.came_up("a")
    assert len(beside) > 6
    assert way.now().state == DeployState.SUCCEEDED
    assert stage.row("a").revisions.count() == 2
    assert _asked("a", "restart") == 1


def test_what_refuses_a_worker_because_another_has_done_it_is_no_failure(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of a new checkpoint is taken: by the query that another worker has just made."""
    stage = Scene()
    way = Way(stage)
    _up(stage, "a")
    real = planning.plan
    refused: list[str] = []

    def plan(*given: Any, **named: Any) -> Any:
        if not refused:
            refused.append("once")
            advance_all(now=stage.now)
            raise Invalid(
                [Problem("spec.checkpoint", "a", "is already in use.", "Choose another name.")]
            )
        return real(*given, **named)

    monkeypatch.setattr(steps, "plan", plan)
    way.change("a")
    assert refused
    assert way.came_up("a").state == DeployState.SUCCEEDED
