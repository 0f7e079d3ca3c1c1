"""The feeder replays real flights as files, in order, from where it stopped."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from examples.flights import feeder
from examples.flights.feeder import Feeder, hours

LIMIT_S = 60.0
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def _months_read_once() -> Iterator[None]:
    """A month's flights take most of a second to read, and nobody changes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeder, "_month", cache(feeder._month))
        yield


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / feeder.INPUT).iterdir())


def test_flights_come_by_the_hour_in_order_of_their_scheduled_departure() -> None:
    replayed = list(islice(hours(), 400))
    times = [hour for hour, _ in replayed]
    assert times[0] == datetime(2013, 1, 1, 10, tzinfo=UTC)
    assert times == sorted(set(times))
    for hour, flights in replayed:
        scheduled = [datetime.fromisoformat(flight["scheduled"]) for flight in flights]
        assert scheduled == sorted(scheduled)
        assert {at.replace(minute=0) for at in scheduled} == {hour}


def test_no_flight_of_a_month_is_left_out() -> None:
    january = _count_until(datetime(2013, 2, 1, 8, tzinfo=UTC))
    assert january == 27_004


def _count_until(end: datetime) -> int:
    count = 0
    for hour, flights in hours():
        if hour >= end:
            break
        count += len(flights)
    return count


def test_each_lap_adds_a_year() -> None:
    late = datetime(2013, 12, 31, 20, tzinfo=UTC)
    replayed = list(islice(hours(late), 20))
    assert replayed[0][0] == late
    times = [hour for hour, _ in replayed]
    assert times == sorted(set(times))
    first_of_2014 = next(
        flights for hour, flights in replayed if hour == datetime(2014, 1, 1, 10, tzinfo=UTC)
    )
    _, first_of_2013 = next(hours())
    assert [flight["flight"] for flight in first_of_2014] == [
        flight["flight"] for flight in first_of_2013
    ]


def test_a_cancelled_flight_has_no_delay_and_others_have_whole_minutes() -> None:
    _, flights = next(iter(islice(hours(datetime(2013, 1, 2, 21, tzinfo=UTC)), 1)))
    assert {type(flight["dep_delay"]) for flight in flights} <= {int, type(None)}
    some = [flight for _, day in islice(hours(), 20) for flight in day]
    assert any(flight["dep_delay"] is None for flight in some)
    assert any(flight["dep_delay"] == 0 for flight in some)  # what delay-recovery divides by


def test_a_file_is_whole_and_what_comes_next_is_remembered(tmp_path: Path) -> None:
    feeder.prepare(tmp_path)
    hour, flights = next(hours())
    Feeder(tmp_path, day_seconds=1).publish(hour, flights, now=NOW)
    assert files(tmp_path) == ["flights-2013-01-01T10.json"]
    found = rows(tmp_path / feeder.INPUT / "flights-2013-01-01T10.json")
    assert [row | {"scheduled": row["timetable"]} for row in found] == [
        flight | {"timetable": flight["scheduled"]} for flight in flights
    ]
    assert json.loads((tmp_path / feeder.STATE).read_text())["next"] == "2013-01-01T11:00:00+00:00"


def test_flights_depart_now_in_their_order(tmp_path: Path) -> None:
    feeder.prepare(tmp_path)
    writer = Feeder(tmp_path, day_seconds=30)
    now = NOW
    times = []
    for hour, flights in islice(hours(), 30):
        now += timedelta(seconds=writer.hour_seconds)
        writer.publish(hour, flights, now=now)
        for row in rows(writer.files[-1]):
            at = datetime.fromisoformat(row["scheduled"])
            assert now - timedelta(seconds=1.25) <= at < now
            times.append(at)
    assert times == sorted(times)
    assert len(set(times)) > 300  # the minutes of an hour are kept apart


def test_only_the_newest_files_are_kept(tmp_path: Path) -> None:
    feeder.prepare(tmp_path)
    writer = Feeder(tmp_path, day_seconds=1, keep=3)
    for hour, flights in islice(hours(), 5):
        writer.publish(hour, flights, now=NOW)
    assert files(tmp_path) == [f"flights-2013-01-01T{hour}.json" for hour in (12, 13, 14)]


def test_the_airlines_are_there_before_the_first_flight(tmp_path: Path) -> None:
    feeder.prepare(tmp_path)
    lines = (tmp_path / feeder.AIRLINES / "airlines.csv").read_text().splitlines()
    assert lines[0] == "carrier,name"
    assert "UA,United Air Lines Inc." in lines
    feeder.prepare(tmp_path)  # a second time changes nothing


class _StopAfter(threading.Event):
    """An event that sets itself at the n-th wait."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self.left = waits

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        if self.left < 0:
            self.set()
        return self.is_set()


def test_a_feeder_that_is_started_again_goes_on_where_it_stopped(tmp_path: Path) -> None:
    Feeder(tmp_path, day_seconds=0.001).run(_StopAfter(3))
    assert files(tmp_path)[-1] == "flights-2013-01-01T12.json"
    Feeder(tmp_path, day_seconds=0.001).run(_StopAfter(2))
    assert files(tmp_path) == [f"flights-2013-01-01T{hour}.json" for hour in range(10, 15)]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"next": 7}', '{"next": "soon"}'])
def test_a_damaged_state_begins_with_the_first_flight(tmp_path: Path, damage: str) -> None:
    (tmp_path / feeder.STATE).write_text(damage)
    Feeder(tmp_path, day_seconds=0.001).run(_StopAfter(1))
    assert files(tmp_path) == ["flights-2013-01-01T10.json"]


def _wait_for(look: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not look():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_sigterm_ends_a_feeder_in_the_middle_of_its_wait(tmp_path: Path) -> None:
    script = Path(feeder.__file__)
    command = [sys.executable, str(script), str(tmp_path), "--day-seconds", "86400"]
    with subprocess.Popen(command) as process:
        try:
            _wait_for((tmp_path / feeder.STATE).exists)
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0  # the next file is due in an hour
        finally:
            process.kill()
    assert files(tmp_path) == ["flights-2013-01-01T10.json"]


@pytest.mark.parametrize("arguments", [["--day-seconds", "0"], ["--keep", "0"]])
def test_settings_that_make_no_sense_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        feeder.main(arguments)
    assert "greater than 0" in capsys.readouterr().err
