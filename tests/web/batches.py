"""Batches of a run, stored as the ingester stores them."""

from datetime import datetime, timedelta
from typing import Any

from listeners.models import Latest, Progress
from queries.models.drivers import Run


def batches(
    run: Run,
    count: int,
    *,
    until: datetime,
    first: int = 0,
    every_s: float = 5,
    duration_ms: int = 1000,
    rows: int = 500,
    seq_after: int = 0,
) -> list[Progress]:
    """Store `count` batches, the last of which began at `until`, and the query's latest line."""
    assert run.spark_run_id is not None
    stored = []
    for index in range(count):
        at = until - timedelta(seconds=every_s * (count - 1 - index))
        batch = first + index
        body: dict[str, Any] = {
            "batchId": batch,
            "runId": run.spark_run_id,
            "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "batchDuration": duration_ms,
            "numInputRows": rows,
            "inputRowsPerSecond": rows / every_s,
            "processedRowsPerSecond": rows * 1000 / duration_ms,
            "durationMs": {"addBatch": duration_ms - 100, "walCommit": 100},
            "eventTime": {},
            "stateOperators": [],
        }
        stored.append(
            Progress.objects.create(
                driver=run.driver_id,
                epoch=run.driver.epoch,
                seq=batch + 1 + seq_after,
                query=run.query_id,
                run=run.pk,
                spark_run_id=run.spark_run_id,
                batch=batch,
                at=at,
                received_at=at,
                num_input_rows=rows,
                input_rows_per_second=rows / every_s,
                processed_rows_per_second=rows * 1000 / duration_ms,
                batch_duration_ms=duration_ms,
                body=body,
            )
        )
    newest = stored[-1]
    Latest.objects.update_or_create(
        query=run.query_id,
        defaults={
            "driver": run.driver_id,
            "epoch": run.driver.epoch,
            "seq": newest.seq,
            "run": run.pk,
            "at": newest.at,
            "progress_at": newest.at,
            "batch": newest.batch,
            "progress": newest.body,
        },
    )
    return stored
