"""What a scrape tells of queries and of Headgate, by the rows that the console shows too."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families as parse

from listeners.models import DeadLetter, DroppedEvents, Gap, Latest
from queries.domain.metrics import METRICS
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.selectors import metrics
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, Stage

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


def _scrape(client: Client) -> Values:
    """Return {(name, labels): value}; a series that stands twice fails."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    found: Values = {}
    for family in parse(answer.content.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def _of(values: Values, name: str, **labels: str) -> float | None:
    return values.get((f"headgate_{name}", tuple(sorted(labels.items()))))


@pytest.mark.sql("queries.selectors.metrics._counts")
def test_a_running_query_tells_its_state_its_batch_its_lag_and_its_losses(
    vera: Client, stage: Stage
) -> None:
    now = timezone.now()
    row = stage.query("delays")
    row.labels, row.application.labels = {"team": "data"}, {"team": "all", "env": "prod"}
    row.save()
    row.application.save()
    stage.up("delays")
    driver = stage.run("delays").driver_id
    row = stage.row("delays")
    Latest.objects.update_or_create(
        query=row.pk,
        defaults={
            "driver": driver,
            "epoch": 1,
            "seq": 1,
            "run": 1,
            "at": now,
            "progress_at": now,
            "progress": {"batchId": 41, "batchDuration": 1_500},
        },
    )
    SourceLag.objects.create(
        query=row,
        source="flights",
        partition=0,
        committed=10,
        latest=110,
        earliest=0,
        record_at=now - timedelta(seconds=30),
        seen_at=now,
    )
    Loss.objects.create(
        query=row, kind=LossKind.RETENTION, source="flights", offsets=5, records=4, noticed_at=now
    )
    Loss.objects.create(
        query=row, kind=LossKind.RETENTION, source="flights", offsets=3, noticed_at=now
    )
    DroppedEvents.objects.create(
        driver=driver, queue="outbox", count=9, total=9, since=now, until=now
    )
    Gap.objects.create(
        kind="batch",
        driver=driver,
        query=row.pk,
        first=3,
        last=4,
        missing=2,
        repaired=1,
        noticed_at=now,
    )
    values = _scrape(vera)

    assert (
        _of(
            values,
            "query_info",
            query="delays",
            application="delays",
            label_team="data",
            label_env="prod",
        )
        == 1
    )
    assert _of(values, "query_phase", query="delays", phase="RUNNING") == 1
    assert _of(values, "query_desired_running", query="delays") == 1
    assert _of(values, "query_starts_total", query="delays") == 1
    assert _of(values, "query_last_batch_id", query="delays") == 41
    assert _of(values, "query_last_batch_duration_seconds", query="delays") == 1.5
    assert _of(values, "query_lag_offsets", query="delays") == 100
    lag = _of(values, "query_lag_seconds", query="delays")
    assert lag is not None
    assert lag >= 30
    assert _of(values, "query_lost_records_total", query="delays", kind="retention") == 7
    assert _of(values, "query_dropped_events_total", query="delays") == 9
    assert _of(values, "query_missing_batches", query="delays") == 1


def test_failures_and_restarts_are_counted(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    for error in (BROKEN_PIPE, DIVIDE):
        stage.fail("delays", error, batch=7)
        stage.pause("delays")
        stage.ready("delays")
    values = _scrape(vera)
    assert _of(values, "query_failures_total", query="delays") == 2
    assert _of(values, "query_starts_total", query="delays") == 3


@pytest.mark.sql(
    "queries.selectors.metrics._counts",
    "queries.selectors.metrics._figures",
    "queries.selectors.metrics._lost",
    "queries.selectors.metrics.query_figures",
    "queries.selectors.metrics._counted",
    "queries.selectors.metrics._of_the_database",
    "queries.selectors.rows.newest_drivers",
)
def test_queries_at_rest_are_only_counted_and_deleted_ones_not_even_that(
    vera: Client, stage: Stage
) -> None:
    stage.query("resting")
    stage.query("running")
    stage.up("running")
    gone = stage.query("gone")
    gone.archived_at = stage.now
    gone.save()
    values = _scrape(vera)
    assert {dict(labels)["query"] for name, labels in values if name == "headgate_query_info"} == {
        "running"
    }
    assert _of(values, "queries", phase="STOPPED") == 1
    assert _of(values, "queries", phase="RUNNING") == 1


def test_a_selector_narrows_the_series_by_label(vera: Client, stage: Stage, settings: Any) -> None:
    settings.METRICS_SELECTOR = {"team": "data"}
    for name, team in (("delays", "data"), ("others", "web")):
        row = stage.query(name)
        stage.up(name)
        type(row).objects.filter(pk=row.pk).update(labels={"team": team})
    values = _scrape(vera)
    assert _of(values, "query_desired_running", query="delays") == 1
    assert _of(values, "query_desired_running", query="others") is None
    assert _of(values, "queries", phase="RUNNING") == 2


def test_many_queries_are_read_in_parts_and_each_stands_once(
    vera: Client, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "AT_ONCE", 2)
    names = [f"query-{number}" for number in range(5)]
    for name in names:
        stage.query(name)
        stage.start(name)
    values = _scrape(vera)
    assert [name for name in names if _of(values, "query_desired_running", query=name)] == names


def test_headgate_tells_of_its_own_parts_work_and_letters(vera: Client, db: None) -> None:
    now = datetime(2026, 11, 23, tzinfo=UTC)
    DeadLetter.objects.create(entry="1-1", received_at=now, reason="no JSON", data=b"x")
    values = _scrape(vera)
    assert _of(values, "part_up", part="database") == 1
    assert _of(values, "part_up", part="redis") == 0
    assert _of(values, "part_up", part="worker") is None  # nobody can tell without Redis
    assert _of(values, "dead_letters") == 1
    assert _of(values, "bulk_work_left_rows", work="ledger") == 0
    assert _of(values, "delivery_oldest_waiting_seconds") == 0
    assert (_of(values, "disk_free_bytes") or 0) > 0


def test_without_a_database_it_still_tells_that(
    client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch, db: None
) -> None:
    settings.METRICS_NETWORKS = ["127.0.0.0/8"]

    def away(*args: Any, **named: Any) -> Any:
        raise DatabaseError("the database is away")

    monkeypatch.setattr(metrics, "lag_lines", away)
    monkeypatch.setattr("queries.selectors.metrics.backlogs", away)
    monkeypatch.setattr("queries.views.system.query_figures", away)
    values = _scrape(client)
    assert _of(values, "part_up", part="database") is not None
    assert _of(values, "dead_letters") is None


@pytest.mark.redis
def test_queues_and_the_ingesters_lag_are_told(
    vera: Client, redis_server: str, settings: Any
) -> None:
    import redis

    settings.REDIS_URL = redis_server
    with redis.Redis.from_url(redis_server) as client:
        client.flushall()
        prefix = settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"]
        client.rpush(f"{prefix}{settings.QUEUE}", "a task", "another")
        client.xadd(settings.EVENT_STREAM, {"a": "b"}, id="1000-0")
        values = _scrape(vera)
        assert _of(values, "queue_tasks", queue=settings.QUEUE) == 2
        assert _of(values, "event_stream_entries") == 1
        assert _of(values, "ingest_lag_seconds") is None  # nobody reads it yet
        client.xgroup_create(settings.EVENT_STREAM, "ingesters", id="1000-0")
        client.xadd(settings.EVENT_STREAM, {"a": "b"}, id="8500-0")
        assert _of(_scrape(vera), "ingest_lag_seconds") == 7.5


def test_each_metric_says_what_it_is(vera: Client, stage: Stage) -> None:
    known = {one.name: one for one in METRICS}
    stage.query("delays")
    stage.up("delays")
    families = list(parse(vera.get("/metrics").content.decode()))
    for family in families:
        metric = known[family.samples[0].name]
        assert family.documentation == metric.help
        assert family.type == metric.kind
