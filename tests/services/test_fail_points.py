"""Operations with steps whose worker is killed before and after every one of them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from queries.domain.states import OperationOutcome, Verb
from queries.models.checkpoints import Loss
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.services.checkpoints import clone, rewind_and_reset
from queries.services.checkpoints.source_starts import WantedStart
from queries.services.kafka import go_on_after_loss, lag
from queries.services.procedures.engine import advance
from queries.services.triggers import request_async_off
from queries.tasks import PROCEDURES
from tests.checkpoints.forms import names, tree
from tests.conftest_brokers import Brokers, MakeQuery, brokers, commit, make, said
from tests.killed import killed_at
from tests.scenarios.async_logs import AsyncQuery
from tests.scenarios.stage import Stage
from tests.scenarios.test_async_off import Way
from tests.scenarios.test_go_on import LOST
from tests.services.checkpoints.test_procedures import Bench, bench

__all__ = ["bench", "brokers", "make"]

pytestmark = pytest.mark.django_db(transaction=True)

#: How often a step may be taken until it is done, with the story going on in between.
TRIES = 12


def kill_at_every_step(
    stage: Stage, operation: Operation, go_on: Callable[[str], object] = lambda step: None
) -> Operation:
    """Kill the worker before and after each step, then let the next one take it to its end.

    `go_on` lets happen in the world what the step of this name waits for.
    """
    steps = PROCEDURES[Verb(operation.verb)].steps

    def work() -> None:
        advance(operation.pk, procedures=PROCEDURES, launcher=stage.launcher, now=timezone.now())

    def settle() -> None:
        Operation.objects.update(leased_until=None)  # a dead worker's lease runs out
        stage.now = timezone.now()
        stage.look()

    for number, step in enumerate(steps, 1):
        for side in ("before", "after"):
            for _ in range(TRIES):
                if killed_at(f"{operation.verb}.{number}.{side}", work):
                    settle()
                    break
                settle()
                go_on(step.name)
            else:
                raise AssertionError(f"{operation.verb}: nobody came {side} {step.name!r}")
    for _ in range(TRIES):
        work()
        settle()
        operation.refresh_from_db()
        if operation.outcome != OperationOutcome.OPEN:
            break
    assert operation.outcome == OperationOutcome.DONE, operation.detail.text
    assert {step["state"] for step in operation.steps} == {"DONE"}
    return operation


def test_a_rewind_leaves_the_old_checkpoint_byte_for_byte(bench: Bench) -> None:
    query = bench.define(store="changelog", sink=True)
    before = tree(bench.root)
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=bench.stage.now
    )
    kill_at_every_step(bench.stage, operation)
    assert tree(bench.root) == before
    assert bench.location.startswith(f"file://{bench.root}.r6-")
    assert max(map(int, names(bench.place / "commits"))) == 6
    assert Checkpoint.objects.filter(query=query).count() == 2
    visible = {name for name in names(bench.out) if not name.startswith("_")}
    assert visible == {f"part-0000{n}-c000.json" for n in range(7)}
    assert not [name for name in names(bench.root.parent) if "building" in name]


def test_a_reset_leaves_the_old_checkpoint_byte_for_byte(bench: Bench) -> None:
    query = bench.define(store="zip", sink=True)
    before = tree(bench.root)
    operation = rewind_and_reset.request_reset(
        query=query, wish=WantedStart("earliest"), actor="aude", now=bench.stage.now
    )
    kill_at_every_step(bench.stage, operation)
    assert tree(bench.root) == before
    assert names(bench.out) == {"_headgate"}
    assert Checkpoint.objects.filter(query=query).count() == 2


def test_a_clone_leaves_the_old_checkpoint_byte_for_byte_and_is_one(
    bench: Bench, settings: LazySettings
) -> None:
    settings.CHECKPOINTS_DIR = bench.root.parent
    query = bench.define(store="delta")
    before = tree(bench.root)
    operation = clone.request_clone(
        query=query, name="two", sink={"format": "noop"}, actor="aude", now=bench.stage.now
    )
    kill_at_every_step(bench.stage, operation)
    assert tree(bench.root) == before
    assert Query.objects.filter(name="two").count() == 1
    assert bench.place == bench.root


def test_going_on_after_a_loss_records_it_once_and_keeps_every_commit(
    stage: Stage,
    make: MakeQuery,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    stage.now = timezone.now()
    make("delays")
    brokers.said["one:9092"] = said({0: (180, 300), 1: (0, 100)})
    look = partial(lag.look_at_sources, readers=brokers)
    monkeypatch.setattr(go_on_after_loss, "look_at_sources", look)
    stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", LOST)
    stage.launcher.obliging = True
    before = tree(tmp_path / "delays")
    operation = go_on_after_loss.go_on(
        query=stage.row("delays"), offsets=80, actor="otto", now=stage.now
    )

    def go_on(step: str) -> None:
        for _ in range(3):
            stage.wait(2)
            stage.ready("delays")
        if step == "Commit past the gap":
            commit(tmp_path / "delays", 1, {0: 180, 1: 100})

    kill_at_every_step(stage, operation, go_on)
    after = tree(tmp_path / "delays")
    assert {name: after[name] for name in before} == before  # nothing that was committed is touched
    assert Loss.objects.count() == 1
    assert Run.objects.filter(query__name="delays", accepts_loss=True).count() == 1
    assert not stage.run("delays").accepts_loss


def test_the_safe_way_off_asks_for_each_start_once_and_keeps_every_commit(
    stage: Stage, tmp_path: Path
) -> None:
    flights = AsyncQuery(stage, tmp_path)
    way = Way(stage, flights)
    flights.up()
    way.row = request_async_off(query=stage.row("flights"), actor="aude", now=stage.now)
    before = tree(flights.root)
    told: list[str] = []

    def go_on(step: str) -> None:
        if step == "Start the query with it" and step not in told:
            told.append(step)
            stage.launcher.end_run(stage.run("flights").pk)
            way.fresh_driver()
            flights.commit()
        elif step == "Let two batches commit":
            flights.commit()
        elif step == "Stop it after the batch in flight" and step not in told:
            told.append(step)
            stage.launcher.end_run(stage.run("flights").pk)
            stage.look()

    operation = kill_at_every_step(stage, way.row, go_on)
    after: dict[str, Any] = tree(flights.root)
    assert {name: after[name] for name in before} == before
    begun = flights.begun()
    assert begun == [59, 74, 86, 98, 112, *range(113, begun[-1] + 1)]  # none is left out
    assert flights.query.revisions.count() == 3
    assert [one.verb for one in operation.children.order_by("pk")] == ["restart", "stop", "start"]
