"""One query of a shared driver ends its process: its neighbours get rid of it, and it is named."""

from pathlib import Path

import pytest

from queries.domain.reasons import Detail
from queries.domain.states import OperationOutcome, Phase, Reason, RunOutcome
from queries.models.applications import Application
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Run
from queries.models.history import Failure
from tests.scenarios.stage import Stage

FLIGHTS = ("arrivals", "delays", "routes")


@pytest.fixture
def shared(db: None) -> Stage:
    """Three queries in one application, whose drivers do at once what they are asked."""
    stage = Stage(obliging=True)
    stage.application("flights")
    for name in FLIGHTS:
        stage.query(name, "flights")
    return stage


def start_all(stage: Stage) -> None:
    for name in FLIGHTS:
        stage.start(name)


def live(stage: Stage, seconds: int) -> None:
    """Let the runs that a living driver has commit a batch each second."""
    for _ in range(seconds):
        stage.wait(1)
        news = False
        for run in Run.objects.filter(outcome=RunOutcome.OPEN).select_related("query"):
            if not stage.launcher.has(run.pk) or run.query.name in stage.launcher.silent:
                continue
            stage.launcher.commit(run.pk)
            # A first commit, or a death of the driver by it.
            news = news or run.first_commit_at is None or not stage.launcher.has(run.pk)
        if news:
            stage.look()


def held(stage: Stage) -> list[str]:
    return [name for name in FLIGHTS if stage.phase(name) == Phase.ON_HOLD]


@pytest.mark.parametrize(
    ("culprit", "when"), [("arrivals", "start"), ("delays", 0), ("routes", "start")]
)
def test_the_query_at_whose_start_or_first_batch_the_driver_dies_is_held(
    shared: Stage, culprit: str, when: str | int
) -> None:
    shared.launcher.kills[culprit] = when
    start_all(shared)
    live(shared, 30)
    assert held(shared) == [culprit]
    others = [name for name in FLIGHTS if name != culprit]
    assert {shared.phase(name) for name in others} == {Phase.RUNNING}
    row = shared.row(culprit)
    assert row.phase_reason == Reason.KILLS_DRIVER
    assert "Python exited with 1" in row.phase_detail.text
    assert "died 4 times in a row" in row.phase_detail.text
    drivers = Driver.objects.count()
    live(shared, 20)
    assert Driver.objects.count() == drivers, "its neighbours run on, undisturbed"
    assert held(shared) == [culprit]


def test_a_culprit_is_not_held_before_the_third_death(shared: Stage) -> None:
    shared.launcher.kills["delays"] = 0
    start_all(shared)
    live(shared, 6)
    assert Application.objects.get().failures in (2, 3)
    assert held(shared) == []


def test_a_persons_start_releases_the_hold(shared: Stage) -> None:
    shared.launcher.kills["delays"] = "start"
    start_all(shared)
    live(shared, 60)
    assert held(shared) == ["delays"]
    del shared.launcher.kills["delays"]
    operation = shared.start("delays")
    live(shared, 5)
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.DONE
    assert {shared.phase(name) for name in FLIGHTS} == {Phase.RUNNING}


def test_where_no_start_kills_nobody_is_held_and_the_candidates_are_named(shared: Stage) -> None:
    shared.launcher.kills["delays"] = 4  # it fills the memory for four batches
    shared.launcher.kill_exit = ("71", "3")
    start_all(shared)
    live(shared, 100)
    assert held(shared) == []
    assert Application.objects.get().failures > 3
    assert not Failure.objects.filter(run__isnull=False).exists()


def test_an_unreachable_source_does_not_block_its_neighbours(shared: Stage) -> None:
    shared.launcher.silent = {"arrivals"}
    shared.launcher.kills["delays"] = 0
    start_all(shared)
    live(shared, 120)
    assert held(shared) == ["delays"]
    assert shared.phase("routes") == Phase.RUNNING
    assert shared.phase("arrivals") == Phase.STARTING


def test_after_three_deaths_queries_start_one_after_the_other_and_say_so(shared: Stage) -> None:
    shared.launcher.silent = set(FLIGHTS)
    start_all(shared)
    for _ in range(3):
        shared.launcher.die("flights", python="SIGKILL")
        shared.look()
        shared.now = Application.objects.get().next_attempt_at or shared.now
        shared.settle()
    shared.wait(5)
    assert sorted(shared.phase(name) for name in FLIGHTS) == ["PENDING", "PENDING", "STARTING"]
    waiting = [shared.row(name) for name in FLIGHTS if shared.phase(name) == "PENDING"]
    assert {row.phase_reason for row in waiting} == {Reason.WAITS_TURN}
    first = next(name for name in FLIGHTS if shared.phase(name) == "STARTING")
    assert all(row.phase_detail.code is Detail.TURN for row in waiting)
    assert f"{first} is starting" in waiting[0].phase_detail.text
    shared.wait(60)
    assert sorted(shared.phase(name) for name in FLIGHTS) == ["PENDING", "STARTING", "STARTING"]
    shared.wait(60)
    assert {shared.phase(name) for name in FLIGHTS} == {Phase.STARTING}


def test_one_kill_from_outside_during_a_start_holds_nobody(shared: Stage) -> None:
    start_all(shared)
    shared.launcher.silent = set(FLIGHTS)
    for _ in range(3):
        shared.launcher.die("flights", python="SIGKILL")
        shared.look()
        shared.now = Application.objects.get().next_attempt_at or shared.now
        shared.settle()
    shared.wait(2)
    shared.launcher.die("flights", python="SIGKILL")
    shared.launcher.silent = set()
    live(shared, 60)
    assert held(shared) == []
    assert {shared.phase(name) for name in FLIGHTS} == {Phase.RUNNING}


def test_a_query_that_the_kernel_kills_at_each_start_is_held_at_the_second(shared: Stage) -> None:
    shared.launcher.kills["routes"] = "start"
    shared.launcher.kill_exit = ("SIGKILL", "SIGKILL")
    start_all(shared)
    live(shared, 60)
    assert held(shared) == ["routes"]
    assert shared.phase("delays") == Phase.RUNNING


def test_two_culprits_are_found_one_after_the_other(shared: Stage) -> None:
    shared.launcher.kills = {"arrivals": "start", "routes": 0}
    start_all(shared)
    live(shared, 60)
    assert held(shared) == ["arrivals", "routes"]
    assert shared.phase("delays") == Phase.RUNNING


def test_a_query_alone_in_its_driver_is_retried_for_ever(stage: Stage) -> None:
    stage.launcher.obliging = True
    stage.launcher.kills["delays"] = "start"
    stage.query("delays")
    stage.start("delays")
    live(stage, 100)
    assert stage.phase("delays") != Phase.ON_HOLD
    assert Application.objects.get().failures > 4


def test_the_candidates_of_a_death_are_those_with_something_under_way(
    shared: Stage, tmp_path: Path
) -> None:
    for name in FLIGHTS:
        (tmp_path / name / "offsets").mkdir(parents=True)
        (tmp_path / name / "commits").mkdir()
        (tmp_path / name / "offsets" / "0").write_text("v1\n{}")
        (tmp_path / name / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
        Checkpoint.objects.filter(query__name=name).update(location=f"file://{tmp_path / name}")
    (tmp_path / "delays" / "offsets" / "1").write_text("v1\n{}")
    shared.launcher.silent = {"routes"}
    start_all(shared)
    shared.launcher.die("flights", python="1")
    shared.look()
    dead = Driver.objects.order_by("epoch")[0]
    said = {run.query.name: (run.at_death, run.batch_at_death) for run in dead.runs.all()}
    assert said == {"arrivals": ("", None), "delays": ("BATCH", 1), "routes": ("STARTING", None)}


def test_what_a_continuous_query_was_doing_is_not_known(shared: Stage) -> None:
    shared.query("live", "flights", trigger={"kind": "continuous", "interval": "1 second"})
    start_all(shared)
    shared.start("live")
    shared.launcher.die("flights", python="1")
    shared.look()
    dead = Driver.objects.order_by("epoch")[0]
    assert dead.runs.get(query__name="live").at_death == "UNKNOWN"


def test_deaths_with_commits_in_between_start_no_search_for_a_culprit(shared: Stage) -> None:
    start_all(shared)
    for _ in range(4):
        live(shared, 60)
        shared.launcher.die("flights")
        shared.look()
    assert Application.objects.get().failures == 4
    for _ in range(100):
        shared.wait(1)
        if Run.objects.filter(outcome=RunOutcome.OPEN).exists():
            break
    assert Run.objects.filter(outcome=RunOutcome.OPEN).count() == len(FLIGHTS)
