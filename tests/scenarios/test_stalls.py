"""A query stands still: it is told, and restarted only where its application says so."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from headgate_ground.wire import HeartbeatBody as Beat
from headgate_ground.wire import QueryPulse
from listeners.models import Heartbeat, Latest
from queries.domain.states import Phase, Reason
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.selectors.query_lines import query_line
from tests.scenarios.stage import Stage

BEAT = Beat(
    mode="private",
    streams=None,
    ours=None,
    listeners=(),
    last_seq=1,
    unsent=0,
    outbox_dropped=0,
    missing_batches=0,
    repaired=0,
    jvm_alive=True,
)


@pytest.mark.parametrize(("acts", "runs"), [(False, 1), (True, 2)])
def test_a_stalled_query_is_restarted_where_its_policy_says_so(
    stage: Stage, acts: bool, runs: int
) -> None:
    stage.application("flights", policy={"restart_on_stall": acts})
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    stage.launcher.obliging = True
    run = stage.run("delays")
    Latest.objects.create(
        query=run.query_id, driver=run.driver_id, epoch=1, seq=1, run=run.pk, at=stage.now
    )
    stage.now += timedelta(minutes=30)
    line = query_line("delays", now=stage.now)
    assert line.health is not None
    assert line.health.verdict == "STALLED"
    stage.look()
    stage.wait(3)
    assert Run.objects.count() == runs
    assert stage.phase("delays") == Phase.RUNNING
    if acts:
        assert stage.run("delays").cause == Reason.STALLED


def _beat(stage: Stage, *, task_at: datetime | None) -> None:
    """The driver's heartbeat arrives now."""
    run = stage.run("delays")
    pulse = QueryPulse(run.pk, True, task_at.isoformat() if task_at else None)
    body = replace(BEAT, queries=(pulse,)).body()
    Heartbeat.objects.update_or_create(
        driver=run.driver_id,
        defaults={"epoch": 1, "seq": 1, "at": stage.now, "received_at": stage.now, "body": body},
    )


@pytest.mark.parametrize(("acts", "runs"), [(False, 1), (True, 2)])
def test_a_first_batch_that_hangs_is_restarted_where_its_policy_says_so(
    stage: Stage, acts: bool, runs: int
) -> None:
    stage.application("flights", policy={"restart_on_stall": acts})
    stage.query("delays", "flights")
    stage.start("delays")
    stage.ready("flights")
    stage.launcher.obliging = True
    stage.now += timedelta(minutes=3)
    _beat(stage, task_at=None)
    line = query_line("delays", now=stage.now)
    assert line.phase is Phase.STARTING
    assert line.health is not None
    assert line.health.verdict == "STALLED"
    stage.look()
    stage.wait(3)
    assert Run.objects.count() == runs
    if acts:
        assert stage.run("delays").cause == Reason.STALLED


@pytest.mark.parametrize("silent", [False, True])
def test_a_long_first_batch_is_left_alone(stage: Stage, silent: bool) -> None:
    """Its tasks finish; or nothing is heard of its driver, and nobody knows."""
    stage.application("flights", policy={"restart_on_stall": True})
    stage.query("delays", "flights")
    stage.start("delays")
    stage.ready("flights")
    for _ in range(20):
        stage.now += timedelta(minutes=1)
        if not silent:
            _beat(stage, task_at=stage.now - timedelta(seconds=20))
        stage.look()
    assert stage.phase("delays") == Phase.STARTING
    assert Run.objects.count() == 1
    health = query_line("delays", now=stage.now).health
    assert (health and health.verdict) == ("NO_TELEMETRY" if silent else None)


def test_a_query_whose_source_is_away_is_not_restarted_for_standing_still(stage: Stage) -> None:
    stage.application("flights", policy={"restart_on_stall": True})
    stage.query("delays", "flights")
    stage.start("delays")
    stage.ready("flights")
    Query.objects.update(source_unreachable_since=stage.now)
    for _ in range(10):
        stage.now += timedelta(minutes=1)
        _beat(stage, task_at=None)
        stage.look()
    assert Run.objects.count() == 1
    assert stage.row("delays").phase_reason == Reason.WAITS_SOURCE
    assert query_line("delays", now=stage.now).health is None


@pytest.mark.parametrize("location", ["s3a://flights/delays", "hdfs://nn/delays"])
def test_a_silent_query_whose_driver_reports_commits_is_blind_wherever_its_checkpoint_is(
    stage: Stage, location: str
) -> None:
    """No event arrives, as when the ingester is frozen; the driver's own file still does."""
    stage.application("flights", policy={"restart_on_stall": True})
    stage.query("delays", "flights")
    Checkpoint.objects.filter(query__name="delays").update(location=location)
    stage.up("delays", "flights")
    for _ in range(10):
        stage.now += timedelta(minutes=1)
        stage.commit("delays")
    health = query_line("delays", now=stage.now).health
    assert health is not None
    assert (health.verdict, Run.objects.count()) == ("NO_TELEMETRY", 1)
    stage.now += timedelta(minutes=30)  # and no commit either
    health = query_line("delays", now=stage.now).health
    assert (health and health.verdict) == "STALLED"
