"""Each tick is sent once, alone or in a message with others that only read and write rows."""

from typing import Any

import pytest
from django.conf import settings

from queries import tasks
from queries.services.schedules import ticks
from queries.services.supervision import verdicts

VERDICTS, SCHEDULES = "queries.tasks.note_verdicts", "queries.tasks.run_schedules"


def test_beat_sends_each_tick_once_at_its_interval() -> None:
    sent: dict[str, float] = {}
    for message in settings.CELERY_BEAT_SCHEDULE.values():
        names = message["args"][0]
        assert not sent.keys() & set(names)
        assert message["options"]["expires"] == 2 * message["schedule"]
        sent |= dict.fromkeys(names, message["schedule"])
    assert sent == {**settings.TICKS, **settings.HOST_TICKS}


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


def test_nothing_delays_the_sweep() -> None:
    [message] = [
        one
        for one in settings.CELERY_BEAT_SCHEDULE.values()
        if "queries.tasks.sweep" in one["args"][0]
    ]
    assert message["args"][0] == ("queries.tasks.sweep",)
