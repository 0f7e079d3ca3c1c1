"""A worker hears of the end of a driver, and what follows from it is in the rows at once."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.utils import timezone

from queries import tasks, ticks
from queries.domain.states import RunOutcome
from tests.scenarios.stage import Stage


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return what ends the worker's loop."""
    found = threading.Event()
    monkeypatch.setattr(tasks, "leaving", found)
    # It would close the connection that holds the test's transaction.
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)
    return found


def test_a_run_whose_driver_has_died_is_ended_without_a_sweep(
    stage: Stage, leaving: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.die("delays")
    ended, run = stage.driver("delays"), stage.run("delays").pk

    exits = stage.launcher.exits

    @contextmanager
    def until_nobody_ends() -> Iterator[Callable[[float], int | None]]:
        with exits() as wait:

            def next_exit(limit_s: float) -> int | None:
                found = wait(limit_s)
                if found is None:
                    leaving.set()
                return found

            yield next_exit

    monkeypatch.setattr(tasks, "launcher", lambda: stage.launcher)
    monkeypatch.setattr(stage.launcher, "exits", until_nobody_ends)
    tasks._supervise()
    ended.refresh_from_db()
    assert ended.ended_at is not None
    assert ended.runs.get(pk=run).outcome == RunOutcome.DRIVER_ENDED


def test_a_worker_that_begins_finds_what_happened_while_there_was_none(
    stage: Stage, leaving: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.die("delays")
    application = stage.row("delays").application
    type(application).objects.update(reconcile_after=None)  # of which nothing is due

    @contextmanager
    def nobody_ends() -> Iterator[Callable[[float], int | None]]:
        yield lambda limit_s: leaving.set()

    monkeypatch.setattr(tasks, "launcher", lambda: stage.launcher)
    monkeypatch.setattr(stage.launcher, "exits", nobody_ends)
    monkeypatch.setattr(ticks, "launcher", lambda: stage.launcher)
    monkeypatch.setattr(timezone, "now", lambda: stage.now)
    tasks._supervise()
    driver = stage.driver("delays")
    ticks.sweep()
    driver.refresh_from_db()
    assert driver.ended_at is not None


def test_where_exits_cannot_be_heard_the_worker_says_so_once_and_tries_again(
    stage: Stage,
    leaving: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried = []

    def refuse() -> None:
        tried.append(1)
        if len(tried) == 3:
            leaving.set()
        raise OSError("Address already in use")

    monkeypatch.setattr(tasks, "launcher", lambda: stage.launcher)
    monkeypatch.setattr(tasks, "EXITS_AGAIN_S", 0)
    monkeypatch.setattr(stage.launcher, "exits", refuse)
    with caplog.at_level(logging.WARNING, logger=tasks.__name__):
        tasks._supervise()
    assert len(tried) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "a driver's exit will be handled by the sweep: Address already in use"
    ]
