"""Progress that Spark cannot mean: it is stored, and what is impossible in it is unknown."""

from typing import Any

import pytest
import redis

from listeners import models
from tests.conftest_redis import MakeIngester
from tests.listeners.events import progress, send

pytestmark = [pytest.mark.redis, pytest.mark.django_db(transaction=True)]

CASES: dict[str, dict[str, Any]] = {
    "watermark": {"eventTime": {"watermark": "+56971-10-25T00:00:00.000Z"}},
    "rates": {"inputRowsPerSecond": "NaN", "processedRowsPerSecond": "Infinity"},
    "sink": {"sink": {"description": "FileSink[/x]", "numOutputRows": -1}},
    "state": {"stateOperators": [{"numRowsTotal": -3, "memoryUsedBytes": -1}]},
    "duration": {"batchDuration": -17, "durationMs": {"addBatch": -17, "triggerExecution": -17}},
    "null": {"stateOperators": [None]},
    "types": {"stateOperators": {}, "sources": "none", "eventTime": [], "numInputRows": "ten"},
    "huge": {"numInputRows": 2**63, "batchDuration": 2**62},
    "time": {"timestamp": "yesterday"},
}
UNKNOWN: dict[str, dict[str, Any]] = {
    "watermark": {"watermark": None},
    "rates": {"input_rows_per_second": None, "processed_rows_per_second": None},
    "state": {"state_rows": None},
    "duration": {"batch_duration_ms": 0},
    "null": {"state_rows": None},
    "types": {"state_rows": None, "watermark": None, "num_input_rows": 0},
    "huge": {"num_input_rows": 0, "batch_duration_ms": 0},
}


@pytest.mark.parametrize("case", CASES)
def test_a_strange_progress_is_stored_and_its_neighbours_too(
    case: str, redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    strange = progress(2, 2)
    strange.body.update(CASES[case])
    send(redis_client, progress(1, 1), strange, progress(3, 3))
    ingester = make_ingester()
    ingester.step()  # makes the group
    while ingester.step():
        pass
    assert models.DeadLetter.objects.count() == 0
    assert list(models.Progress.objects.order_by("batch").values_list("batch", flat=True)) == [
        *(1, 2, 3)
    ]
    row = models.Progress.objects.get(batch=2)
    assert {name: getattr(row, name) for name in UNKNOWN.get(case, {})} == UNKNOWN.get(case, {})
    assert "numOutputRows" not in row.body.get("sink", {})
    line = models.Latest.objects.get(query=42)
    assert line.batch == 3
