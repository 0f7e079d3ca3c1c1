"""The demo's remote store: real planes, a real Valkey, two milliseconds away."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.flights.code import planes_of_flights as code
from headgate_async.rows import row_class
from tests.spark.driver_under_test import wait_for

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("planes")
    process = subprocess.Popen([sys.executable, "-m", "examples.flights.planes", str(folder)])
    file = folder / "planes.json"
    try:
        wait_for(file.exists, "the store says where it is")
        yield file
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert not file.exists()


def flight(offset: int, *, tail: str | None = "N14228", minute: int = 0) -> Any:
    names = ["tail_number", "flight", "timestamp", "topic", "partition", "offset"]
    at = datetime(2026, 1, 1, 12, minute, tzinfo=UTC)
    values = (tail, json.dumps({"flight": offset}), at, "flights", 0, offset)
    kind = row_class(names)
    return tuple.__new__(kind, values)


def call(address: Path, function: Any, *rows: Any) -> list[Any]:
    async def story() -> list[Any]:
        async with code.store(str(address)) as client:
            return [await function(row, client) for row in rows]

    return asyncio.run(story())


def test_a_flight_is_given_its_plane_and_one_without_a_tail_number_none(address: Path) -> None:
    known, unknown, none = call(
        address, code.look_up, flight(1), flight(2, tail="N00000"), flight(3, tail=None)
    )
    assert json.loads(known["value"]) == {
        "flight": 1,
        "manufacturer": "BOEING",
        "model": "737-824",
        "year": "1999",
    }
    assert json.loads(unknown["value"]) == {"flight": 2}
    assert none["key"] is None


def test_an_answer_takes_two_milliseconds_at_least(address: Path) -> None:
    began = time.monotonic()
    call(address, code.look_up, *[flight(number) for number in range(50)])
    assert time.monotonic() - began >= 0.1  # never less; how much more is the machine's affair


def test_only_the_first_of_a_window_passes_and_a_replay_answers_the_same(address: Path) -> None:
    rows = [flight(1), flight(2), flight(3, minute=10), flight(4, tail=None)]
    first = call(address, code.first_only, *rows)
    assert [one and json.loads(one["value"])["flight"] for one in first] == [1, None, 3, None]
    assert call(address, code.first_only, *rows) == first


def test_a_store_that_is_not_up_is_an_error_to_try_again(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="the store is not running"):
        call(tmp_path / "planes.json", code.look_up, flight(1))
