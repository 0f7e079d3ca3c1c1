"""Rows of the listeners app for tests, with honest defaults."""

from datetime import UTC, datetime, timedelta
from typing import Any

from listeners.models import Progress

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def store_batch(batch: int, **columns: Any) -> Progress:
    """Store one executed batch; a batch takes a second and reads ten rows."""
    defaults = {
        "driver": 1,
        "epoch": 7,
        "seq": batch + 1,
        "query": 42,
        "run": 5,
        "spark_run_id": f"run-{columns.get('run', 5)}",
        "batch": batch,
        "at": START + timedelta(seconds=batch),
        "received_at": START + timedelta(seconds=batch),
        "num_input_rows": 10,
        "batch_duration_ms": 1000 + batch,
        "body": {"batchId": batch, "durationMs": {"addBatch": 800, "walCommit": 20}},
    }
    return Progress.objects.create(**{**defaults, **columns})
