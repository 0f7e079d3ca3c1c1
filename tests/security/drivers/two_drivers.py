"""Two drivers of different applications: ours, and one whose authors attack us."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from controlplane import hosts
from headgate_ground.wire import WireEvent
from queries.models.drivers import Run
from tests.listeners.events import progress
from tests.scenarios.stage import Stage


@pytest.fixture(scope="module")
def played(story: None) -> Stage:
    """Return a stage on which our query runs."""
    stage = Stage()
    _run_of(stage, "ours")
    return stage


@pytest.fixture
def stage(played: Stage, db: None) -> Stage:
    return deepcopy(played)


@pytest.fixture
def ours(stage: Stage) -> Run:
    """Return the run of our query."""
    return stage.run("ours")


@pytest.fixture
def theirs(stage: Stage, ours: Run) -> Run:
    """Return the run of the attackers' own query, in an application of theirs."""
    return _run_of(stage, "theirs")


def _run_of(stage: Stage, name: str) -> Run:
    stage.query(name)
    stage.up(name)
    return stage.run(name)


def batch_of(of: Run, /, **columns: Any) -> WireEvent:
    about = {"driver": of.driver_id, "epoch": of.driver.epoch, "run": of.pk}
    return replace(progress(1, 0, **about, query=of.query_id), **columns)


def key_of(run: Run) -> bytes:
    return hosts.event_key(run.driver_id, run.driver.epoch)
