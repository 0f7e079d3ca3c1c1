"""A worker hears of the end of a driver, and what follows from it is in the rows at once."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.utils import timezone

from queries import tasks
from queries.domain.states import Phase, RunOutcome
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


def test_a_query_whose_pause_is_over_starts_again_though_nobody_asks_for_a_sweep(
    stage: Stage, leaving: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    stage.up("delays")
    for _ in range(2):  # the first attempt follows at once, the second after a pause
        stage.launcher.die("delays")
        stage.look()
    assert stage.phase("delays") == Phase.BACKOFF

    waits = []

    @contextmanager
    def nobody_ends() -> Iterator[Callable[[float], int | None]]:
        def none(limit_s: float) -> None:
            waits.append(limit_s)
            if len(waits) == 2:
                leaving.set()

        yield none

    monkeypatch.setattr(tasks, "launcher", lambda: stage.launcher)
    monkeypatch.setattr(stage.launcher, "exits", nobody_ends)
    monkeypatch.setattr(tasks, "_swept_at", -tasks.UNASKED_AFTER_S)
    later = stage.now + timedelta(minutes=1)
    monkeypatch.setattr(timezone, "now", lambda: later)
    tasks._supervise()
    assert stage.phase("delays") == Phase.STARTING


def test_a_worker_that_begins_finds_what_happened_while_there_was_none(
    stage: Stage, leaving: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.die("delays")
    driver = stage.driver("delays")

    @contextmanager
    def nobody_ends() -> Iterator[Callable[[float], int | None]]:
        yield lambda limit_s: leaving.set()

    monkeypatch.setattr(tasks, "launcher", lambda: stage.launcher)
    monkeypatch.setattr(stage.launcher, "exits", nobody_ends)
    monkeypatch.setattr(tasks, "_swept_at", -tasks.UNASKED_AFTER_S)
    monkeypatch.setattr(timezone, "now", lambda: stage.now)
    tasks._supervise()
    driver.refresh_from_db()
    assert driver.ended_at is not None


def test_where_exits_cannot_be_heard_nor_sweeps_asked_for_a_dead_driver_is_found(
    stage: Stage, leaving: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.die("delays")
    driver = stage.driver("delays")

    def refuse() -> None:
        raise OSError("Address already in use")

    def then_leave() -> None:
        swept()
        leaving.set()

    swept = tasks._sweep_unasked
    monkeypatch.setattr(tasks, "launcher", lambda: stage.launcher)
    monkeypatch.setattr(tasks, "EXITS_AGAIN_S", 0)
    monkeypatch.setattr(tasks, "_swept_at", -tasks.UNASKED_AFTER_S)
    monkeypatch.setattr(tasks, "_sweep_unasked", then_leave)
    monkeypatch.setattr(timezone, "now", lambda: stage.now)
    monkeypatch.setattr(stage.launcher, "exits", refuse)
    tasks._supervise()
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
        "the next sweep will handle a driver's exit: Address already in use"
    ]
