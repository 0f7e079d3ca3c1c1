"""A worker's threads end before its host's name is free for another one."""

import threading
from typing import Any

import pytest
from celery import signals
from celery.worker import state
from django.db import connections

from controlplane import celery
from controlplane.hosts import NameTaken
from queries import tasks


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    found = threading.Event()
    monkeypatch.setattr(celery, "leaving", found)
    monkeypatch.setattr(signals.worker_shutdown, "receivers", [*signals.worker_shutdown.receivers])
    monkeypatch.setitem(connections.settings, "default", {**connections.settings["default"]})
    monkeypatch.setattr(state, "should_stop", None)
    return found


@pytest.mark.guarantee("G-HOST-3")
def test_a_worker_that_stops_ends_its_ticks_and_then_gives_its_name_back(
    leaving: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[str] = []

    class Name:
        def take(self) -> None:
            came.append("taken")

        def keep(self, lost: Any) -> None: ...

        def release(self) -> None:
            came.append("released")

    class Ticks:
        def join(self) -> None:
            came.append("ended" if leaving.is_set() else "joined too soon")

    monkeypatch.setattr(celery, "HostName", Name)
    monkeypatch.setattr(tasks, "_timers", [Ticks()])
    celery._worker_begins()
    signals.worker_shutdown.send(sender=None)
    assert came == ["taken", "ended", "released"]


@pytest.mark.guarantee("G-HOST-3")
def test_a_worker_that_has_lost_its_name_supervises_no_longer(leaving: threading.Event) -> None:
    celery._leave(NameTaken())
    assert leaving.is_set()
    assert celery.stopping()
