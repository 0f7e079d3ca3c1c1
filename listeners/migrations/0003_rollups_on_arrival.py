from datetime import UTC, datetime, timedelta

from django.db import migrations, models

PHASES = {
    "addBatch": "add_batch_ms",
    "getBatch": "get_batch_ms",
    "latestOffset": "latest_offset_ms",
    "queryPlanning": "query_planning_ms",
    "walCommit": "wal_commit_ms",
    "commitOffsets": "commit_offsets_ms",
}
EXTREMES = {
    "input_rate_max": "input_rows_per_second",
    "processed_rate_max": "processed_rows_per_second",
    "state_rows_max": "state_rows",
}


def fill(apps, schema_editor):
    """Copy the phases to their columns, then sum the hours of batches that were not summed yet.

    Until now, a task summed whole buckets every ten seconds; its cursor is the last row that it
    saw. A bucket can hold later rows already, so that these hours are summed again as a whole.
    """
    rollups = apps.get_model("listeners", "Rollup").objects
    progress = apps.get_model("listeners", "Progress").objects
    cursors = apps.get_model("listeners", "Cursor").objects.filter(name="rollups")
    _copy_phases(rollups)
    position = cursors.values_list("position", flat=True).first() or 0
    new = progress.filter(pk__gt=position).values_list("query", "at")
    hours = {(query, _start(at, 3600)) for query, at in new.iterator(chunk_size=2000)}
    for query, start in sorted(hours):
        end = start + timedelta(hours=1)
        buckets = {}
        for row in progress.filter(query=query, at__gte=start, at__lt=end).iterator(2000):
            for width_s in (10, 60, 3600):
                key = width_s, _start(row.at, width_s)
                if key not in buckets:
                    buckets[key] = rollups.model(
                        query=query,
                        width_s=width_s,
                        start=key[1],
                        batches=0,
                        rows=0,
                        duration_ms_min=row.batch_duration_ms,
                        duration_ms_max=row.batch_duration_ms,
                        duration_ms_sum=0,
                    )
                _add(buckets[key], row)
        rollups.filter(query=query, start__gte=start, start__lt=end).delete()
        rollups.bulk_create(buckets.values(), batch_size=500)
    cursors.delete()


def _copy_phases(rollups):
    changed = []
    for bucket in rollups.exclude(phases_ms_sum={}).iterator(chunk_size=2000):
        for name, column in PHASES.items():
            if (spent := bucket.phases_ms_sum.get(name)) is not None:
                setattr(bucket, column, int(spent))
        changed.append(bucket)
        if len(changed) == 2000:
            rollups.bulk_update(changed, PHASES.values(), batch_size=50)
            changed = []
    rollups.bulk_update(changed, PHASES.values(), batch_size=50)


def _start(at, width_s):
    return at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(seconds=width_s)


def _add(bucket, row):
    most = 2**63 - 1
    bucket.batches += 1
    bucket.rows = min(bucket.rows + row.num_input_rows, most)
    bucket.duration_ms_min = min(bucket.duration_ms_min, row.batch_duration_ms)
    bucket.duration_ms_max = max(bucket.duration_ms_max, row.batch_duration_ms)
    bucket.duration_ms_sum = min(bucket.duration_ms_sum + row.batch_duration_ms, most)
    values = {name: getattr(row, column) for name, column in EXTREMES.items()}
    if row.watermark is not None and row.watermark.timestamp() > 0:
        values["watermark_delay_s_max"] = (row.at - row.watermark).total_seconds()
    for name, value in values.items():
        known = [one for one in (getattr(bucket, name), value) if one is not None]
        setattr(bucket, name, max(known, default=None))
    told = row.body.get("durationMs") if isinstance(row.body, dict) else None
    for name, column in PHASES.items():
        spent = told.get(name) if isinstance(told, dict) else None
        if type(spent) is int and spent >= 0:
            setattr(bucket, column, min((getattr(bucket, column) or 0) + spent, most))


class Migration(migrations.Migration):

    dependencies = [
        ("listeners", "0002_slow_batches"),
    ]

    operations = [
        *(
            migrations.AddField("rollup", column, models.BigIntegerField(null=True))
            for column in PHASES.values()
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.RemoveField("rollup", "phases_ms_sum"),
    ]
