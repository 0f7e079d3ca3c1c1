"""Many rows through one task, as a Python worker would run it, with what it held and took."""

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pyarrow as pa

from headgate_async.calls import Rules
from headgate_async.mapping import MOST_ROWS
from headgate_async.operator import Plan
from headgate_async.task import run

BATCH = 10_000  # rows of an Arrow batch, Spark's default


async def call(row: Any) -> tuple[Any, ...]:
    """Wait for a turn of the loop."""
    await asyncio.sleep(0)
    return row.key, row.value


class Passage:
    """The rows on their way, counted on both sides."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.taken = self.given = self.most = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for first in range(0, self.rows, BATCH):
            numbers = range(first, min(self.rows, first + BATCH))
            keys = ["hot" if not one % 10 else f"key-{one % 3000}" for one in numbers]
            self.taken += len(numbers)
            yield pa.RecordBatch.from_pydict(
                {"key": keys, "value": [f"value-{one:09d}" for one in numbers]}
            )

    def give(self, count: int) -> None:
        """Count rows given back."""
        # The Arrow batch in hand is Spark's; what is held is what has been taken from it.
        self.most = max(self.most, self.taken - BATCH - self.given)
        self.given += count


def pass_through(rows: int, *, hold: int = MOST_ROWS) -> dict[str, float]:
    """Send rows through a task; return what was held and what it took."""
    schema = pa.schema([("key", pa.string()), ("value", pa.string())])
    plan = Plan(
        operator=f"memory-{os.getpid()}-{rows}",
        enrich=call,
        setup=None,
        blocking=False,
        with_client=False,
        in_flight=256,
        cap=256,
        rules=Rules(),
        calls_per_second=None,
        key=("key",),
        order_by=(),
        identity=None,
        hold=hold,
        schema=schema,
    )
    passage = Passage(rows)
    memory = psutil.Process().memory_info
    early = high = 0
    began = time.monotonic()
    for batch in run(plan, passage.batches()):
        passage.give(batch.num_rows)
        if passage.given < rows / 10:
            early = max(early, memory().rss)
        else:
            high = max(high, memory().rss)
    assert passage.given == rows, f"{passage.given} rows came of {rows}"
    return {
        "rows": rows,
        "most_held": passage.most,
        "hold": hold,
        "early_mb": round(early / 1e6, 1),
        "highest_mb": round(high / 1e6, 1),
        "rows_per_second": round(rows / (time.monotonic() - began)),
    }
