"""The trouble of one element is logged once per cause, counted, and stops nobody else."""

import logging
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError

from listeners import models
from listeners.loops import backlogs
from listeners.loops import each as module
from listeners.loops.each import LoopErrors, SkippedElement

logger = logging.getLogger("listeners.test")
NAMES = ("first", "second", "third")


def serve(each: LoopErrors, rotten: set[str]) -> list[str]:
    served = []
    for name in NAMES:
        with each.isolate_errors(name):
            if name in rotten:
                raise OSError(28, "No space left on device")
            served.append(name)
    return served


def test_the_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    each = LoopErrors("gaps", logger)
    assert serve(each, {"second"}) == ["first", "third"]
    assert each.now() == (
        SkippedElement("gaps", "second", "OSError: [Errno 28] No space left on device", 1),
    )
    assert [record.getMessage() for record in caplog.records] == [
        "gaps: skipped second, once in a row: OSError: [Errno 28] No space left on device"
    ]


def test_a_cause_is_logged_once_however_often_and_wherever_it_is_met(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = LoopErrors("gaps", logger)
    for _ in range(5):
        serve(each, {"second", "third"})
    assert len(caplog.records) == 1
    assert [one.times for one in each.now()] == [5, 5]
    monkeypatch.setattr(module, "LOGGED_AGAIN_S", 0)
    serve(each, {"second"})
    assert "6 times in a row" in caplog.records[1].getMessage()


def test_what_follows_from_an_end_told_elsewhere_is_no_trouble() -> None:
    ended: list[bool] = []
    each = LoopErrors(
        "driver", logger, moot=lambda error: isinstance(error, OSError) and bool(ended)
    )
    assert serve(each, {"first"}) == ["second", "third"]
    assert [one.about for one in each.now()] == ["first"]
    ended.append(True)
    assert serve(each, {"third"}) == ["first", "second"]
    assert each.now() == ()


def test_a_trouble_that_is_over_is_said_and_forgotten_and_is_news_when_it_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger.name)
    met: list[SkippedElement] = []
    over: list[SkippedElement] = []
    each = LoopErrors("gaps", logger, on_error=met.append, over=over.append)
    serve(each, {"second"})
    serve(each, set())
    serve(each, {"second"})
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]
    assert [one.about for one in met] == ["second", "second"]
    assert [one.about for one in over] == ["second"]
    assert [one.times for one in each.now()] == [1]


def test_a_secret_in_a_cause_is_masked_and_no_traceback_shows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    each = LoopErrors("driver", logger, mask=lambda text: text.replace("hunter2", "***"))
    with each.isolate_errors("current.json"):
        raise ValueError("hunter2 is no epoch\nsecond line")
    assert each.now()[0].cause == "ValueError: *** is no epoch"
    assert "hunter2" not in caplog.text


def test_what_ends_the_whole_loop_is_let_through() -> None:
    each = LoopErrors("gaps", logger, through=(KeyError,))
    with pytest.raises(KeyError), each.isolate_errors("first"):
        raise KeyError("lease")
    assert each.now() == ()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 3)
    each = LoopErrors("gaps", logger)
    for number in range(10):
        each.record_error(f"driver {number}", ValueError("x"))
    assert [one.about for one in each.now()] == ["driver 7", "driver 8", "driver 9"]


@pytest.mark.django_db
def test_a_trouble_of_the_server_is_a_row_until_it_is_over() -> None:
    each = backlogs.loop_errors("a loop of a test", logger)
    serve(each, {"second"})
    serve(each, {"second"})  # written again only after a while
    now = datetime.now(UTC)
    [shown] = backlogs.current(now)
    assert (shown.loop, shown.about, shown.times) == ("a loop of a test", "second", 1)
    assert backlogs.current(now + timedelta(minutes=11)) == []  # nothing has met it since
    serve(each, set())
    assert not models.Trouble.objects.exists()


@pytest.mark.django_db
def test_what_is_set_aside_is_shown_for_a_day() -> None:
    backlogs.quarantine("ledger", "batch 4", ValueError("rotten"), log=logger)
    backlogs.quarantine("ledger", "batch 4", ValueError("rotten"), log=logger)
    now = datetime.now(UTC)
    [shown] = backlogs.current(now + timedelta(hours=23))
    assert (shown.about, shown.cause, shown.times, shown.set_aside) == (
        "batch 4",
        "ValueError: rotten",
        2,
        True,
    )
    assert backlogs.current(now + timedelta(hours=25)) == []


def test_a_database_that_is_the_trouble_itself_hides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write(*_: object, **__: object) -> None:
        raise DatabaseError("database is locked")

    monkeypatch.setattr(backlogs, "_write", write)
    each = backlogs.loop_errors("another loop of a test", logger)
    assert serve(each, {"second"}) == ["first", "third"]
    assert len(each.now()) == 1
