"""`map_async` on a real Spark: its results, its figures, and executors with nothing of ours."""

from typing import Any

import pytest

from tests.spark import stories
from tests.spark.async_calls import async_map_story
from tests.spark.async_calls.async_map_story import BATCHES, ROWS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", params=["local[2]", "local-cluster[2,1,1024]"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("story")
    return stories.told(async_map_story, request.param, str(folder), folder=folder)


@pytest.mark.promise
def test_each_row_becomes_none_one_or_several(told: Any) -> None:
    assert told["failed"] == ""
    expected = sorted(
        value
        for value in range(ROWS * BATCHES)
        if value % 7 and value % 5
        for _ in range(2 if value % 3 == 0 else 1)
    )
    assert told["values"] == expected


def test_executors_have_nothing_of_ours_and_keep_their_clients(told: Any) -> None:
    assert told["there"] is False
    assert told["workers"] <= 4


def test_each_operators_figures_come_with_the_progress(told: Any) -> None:
    for observed in told["observed"]:
        first = observed["headgate_async:first"]
        assert first["calls"] == ROWS
        assert first["dead_letters"] == first["errors"] > 0
        assert first["latency_ms"][0] >= 2.0
        assert first["latency_ms"] == sorted(first["latency_ms"])
        assert first["cap"] == 256
    calls = sum(observed["headgate_async:second"]["calls"] for observed in told["observed"])
    dead = sum(observed["headgate_async:first"]["dead_letters"] for observed in told["observed"])
    assert calls == len(told["values"]) + dead
