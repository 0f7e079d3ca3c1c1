"""The step to roll-ups on arrival keeps what was summed, and sums what was not."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tests.listeners.rows import START

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = [("listeners", "0002_slow_batches")]
AFTER = [("listeners", "0003_rollups_on_arrival")]


def moved(target: list[tuple[str, str]]) -> Any:
    """Return the models after a step to these migrations."""
    executor = MigrationExecutor(connection)
    executor.migrate(target)
    return MigrationExecutor(connection).loader.project_state(target).apps


def test_old_buckets_are_kept_and_new_rows_are_summed_once() -> None:
    apps = moved(BEFORE)
    try:
        old, progress = (
            apps.get_model("listeners", "Rollup"),
            apps.get_model("listeners", "Progress"),
        )
        figures = {"rows": 9, "duration_ms_min": 1, "duration_ms_max": 1, "duration_ms_sum": 1}
        phases = {"phases_ms_sum": {"addBatch": 5, "other": 2}}
        day_before = START - timedelta(days=1)
        for start in (day_before, START):  # the second one holds batch 1 already
            old.objects.create(query=42, width_s=3600, start=start, batches=1, **figures, **phases)
        stored = []
        for batch in (1, 2):
            at = START + timedelta(seconds=batch)
            stored += [
                progress.objects.create(
                    driver=1,
                    epoch=7,
                    seq=batch,
                    query=42,
                    run=5,
                    spark_run_id="r",
                    batch=batch,
                    at=at,
                    received_at=at,
                    num_input_rows=10,
                    batch_duration_ms=800,
                    body={"durationMs": {"addBatch": 700, "walCommit": "soon"}},
                )
            ]
        cursor = apps.get_model("listeners", "Cursor")
        cursor.objects.create(name="rollups", position=stored[0].pk)
    finally:
        new = moved(AFTER).get_model("listeners", "Rollup")
    columns = ("width_s", "batches", "rows", "add_batch_ms", "wal_commit_ms")
    assert list(new.objects.order_by("start", "width_s").values_list(*columns)) == [
        (3600, 1, 9, 5, None),
        (10, 2, 20, 1400, None),
        (60, 2, 20, 1400, None),
        (3600, 2, 20, 1400, None),
    ]
    assert not cursor.objects.exists()
