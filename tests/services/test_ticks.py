"""Each tick is sent once, alone or with others; none of them waits for one that may take long."""

import re
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from controlplane.celery import app
from headgate_ground.packages import SERVER
from queries import tasks
from queries.services.alerts import deliveries
from queries.services.schedules import ticks
from queries.services.supervision import verdicts

VERDICTS, SCHEDULES = "queries.tasks.note_verdicts", "queries.tasks.run_schedules"
ALERTS = "queries.tasks.send_alerts"
LIMIT_S = 60


def test_beat_sends_each_tick_once_at_its_interval() -> None:
    sent: dict[str, float] = {}
    for message in settings.CELERY_BEAT_SCHEDULE.values():
        names = message["args"][0]
        assert not sent.keys() & set(names)
        assert message["options"]["expires"] == 2 * message["schedule"]
        sent |= dict.fromkeys(names, message["schedule"])
    assert sent == {**settings.TICKS, **settings.HOST_TICKS}


def test_every_task_that_the_program_names_exists() -> None:
    """A tick whose task does not exist is logged, and no query is looked at any more."""
    root = Path(settings.BASE_DIR)
    sources = [path for package in SERVER for path in (root / package).rglob("*.py")]
    named = {
        name
        for path in sources
        for name in re.findall(r"[\"']((?:queries|listeners)\.tasks\.\w+)[\"']", path.read_text())
    }
    assert named > {*settings.TICKS, *settings.HOST_TICKS}
    import_module("listeners.tasks")  # as a worker does; this module imports the others
    assert named - app.tasks.keys() == set()


def test_what_only_one_host_must_do_is_not_sent_to_each() -> None:
    by_task: dict[str, set[str]] = {
        "queries.tasks.in_turn": set(),
        "queries.tasks.on_each_host": set(),
    }
    for message in settings.CELERY_BEAT_SCHEDULE.values():
        by_task[message["task"]] |= set(message["args"][0])
    assert by_task["queries.tasks.in_turn"] == set(settings.TICKS)
    assert by_task["queries.tasks.on_each_host"] == set(settings.HOST_TICKS)


def test_an_error_in_a_tick_keeps_those_after_it_from_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    came: list[str] = []

    def broken(**_: Any) -> None:
        raise RuntimeError("a broken row")

    monkeypatch.setattr(verdicts, "note_verdicts", broken)
    monkeypatch.setattr(ticks, "run_schedules", lambda **_: came.append("schedules"))
    tasks.in_turn([VERDICTS, SCHEDULES])
    assert came == ["schedules"]
    assert "a broken row" in caplog.text


def test_a_tick_that_waits_for_another_system_holds_up_none_of_its_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    came: list[str] = []
    answered, sent = threading.Event(), threading.Event()

    def waits(**_: Any) -> None:
        assert answered.wait(LIMIT_S)
        came.append("alerts")
        sent.set()

    monkeypatch.setattr(deliveries, "send_alerts", waits)
    monkeypatch.setattr(ticks, "run_schedules", lambda **_: came.append("schedules"))
    tasks.in_turn([ALERTS, SCHEDULES])  # returns although the channel has not answered
    assert came == ["schedules"]
    answered.set()
    assert sent.wait(LIMIT_S)
    assert came == ["schedules", "alerts"]


def test_nothing_delays_the_sweep() -> None:
    [names] = [
        message["args"][0]
        for message in settings.CELERY_BEAT_SCHEDULE.values()
        if "queries.tasks.sweep" in message["args"][0]
    ]
    before = names[: names.index("queries.tasks.sweep")]
    assert set(before) <= settings.BESIDE
