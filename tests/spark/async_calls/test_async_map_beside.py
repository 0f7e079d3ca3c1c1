"""`map_async` beside state, under the triggers that end, and with async progress tracking."""

from collections import Counter
from typing import Any

import pytest

from tests.spark import stories
from tests.spark.async_calls import async_map_beside_story as story

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("beside")
    return stories.told(story, str(folder), folder=folder, limit_s=500)


def test_calls_after_a_deduplication_are_made_once_for_each_value(told: Any) -> None:
    assert told["stateful_before"]["rows"] == sorted(
        [value % story.KEYS, value] for value in set(story.values())
    )
    assert told["stateful_before"]["batches"] == story.FILES


def test_an_aggregation_after_the_calls_counts_every_answer(told: Any) -> None:
    counts = Counter(value % story.KEYS for value in story.values())
    assert told["stateful_after"]["rows"] == sorted([key, count] for key, count in counts.items())
    assert told["stateful_after"]["batches"] == story.FILES


def test_the_once_trigger_calls_for_all_there_is_in_one_batch(told: Any) -> None:
    rows = sorted([value % story.KEYS, value] for value in story.values())
    assert told["once"] == {"rows": rows, "batches": 1}


def test_async_progress_tracking_keeps_the_calls_of_each_batch(told: Any) -> None:
    assert told["tracked"]["failed"] == ""
    assert len(told["tracked"]["calls"]) >= story.FILES
    assert told["tracked"]["calls"] == told["tracked"]["rows"]
