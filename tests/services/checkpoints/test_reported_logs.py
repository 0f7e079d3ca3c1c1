"""A checkpoint in an object store is read from its driver's report, or said to be unknown, and why.

The reports are made by the driver's own code; only the store is a local folder.
"""

import html
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from listeners import models
from queries.checkpoints.logs import LogsUnknown
from queries.domain.checkpoints.logs import MOST_OF_REPORT
from queries.domain.states import RunOutcome
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Run
from queries.models.history import Failure
from queries.selectors.checkpoint_logs import available_logs
from queries.selectors.failures.what_changed import death_of
from queries.selectors.kafka.lag import lag_of
from queries.selectors.kafka.sources import committed_at, history_at
from queries.selectors.triggers.replays import exposure, gap_of
from queries.services.checkpoints.batch_repair import (
    count_unreported,
    look_for_foreign_batches,
    repair_from_checkpoints,
)
from queries.services.kafka.lag import look_at_sources
from tests.checkpoints.forms import write_batch, write_checkpoint
from tests.checkpoints.reports import Remote
from tests.conftest_brokers import Brokers, MakeQuery, brokers, make, said
from tests.conftest_redis import redis_client, valkey
from tests.scenarios.async_logs import AsyncQuery
from tests.scenarios.stage import Stage
from tests.services.checkpoints.test_foreign_batches import begin
from tests.services.checkpoints.test_unreported_commits import LATER, NOW, Story

pytestmark = pytest.mark.django_db

__all__ = ["brokers", "make", "redis_client", "valkey"]

NOT_REPORTED = "No driver has reported its logs yet"


@pytest.fixture
def api(viewer: User) -> APIClient:
    found = APIClient()
    found.force_authenticate(viewer)
    return found


@pytest.fixture
def remote(stage: Stage, tmp_path: Path) -> Remote:
    """A running query with batches 0 to 2 committed and batch 3 begun, in an object store."""
    row = stage.query("delays")
    stage.up("delays")
    root = write_checkpoint(tmp_path / "cp", batches=range(3), in_flight=True, source="kafka")
    return Remote.of(row, root, tmp_path / "drivers")


def text_of(page: str, client: Client, user: User) -> str:
    client.force_login(user)
    return html.unescape(client.get(page).content.decode())


def test_the_logs_are_those_of_the_newest_report(stage: Stage, remote: Remote) -> None:
    run = stage.run("delays")
    with pytest.raises(LogsUnknown, match=NOT_REPORTED):
        available_logs(remote.location)
    remote.report(run, NOW)
    logs = available_logs(remote.location)
    assert (logs.begun(), logs.committed(), logs.in_flight()) == ([0, 1, 2, 3], [0, 1, 2], 3)
    assert logs.seen_at == NOW
    assert logs.written_at("commits", 2) is not None
    assert logs.written_at("commits", 3) is None
    assert logs.offsets(9) is None
    assert committed_at(remote.location) == {"flights": {0: 30}}
    assert [batch for batch, _ in history_at(remote.location)] == [0, 1, 2]
    assert gap_of(remote.location) is None


def test_a_new_driver_without_a_report_leaves_that_of_the_one_before(
    stage: Stage, remote: Remote
) -> None:
    remote.report(stage.run("delays"), NOW)
    stage.launcher.die("delays", python="1")
    stage.look()
    stage.wait(10)
    assert Driver.objects.count() == 2
    remote.own(stage.run("delays"))
    assert available_logs(remote.location).seen_at == NOW


def test_a_report_on_another_host_is_unknown_and_the_host_named(
    stage: Stage, remote: Remote
) -> None:
    Driver.objects.update(host="b")
    with pytest.raises(LogsUnknown, match="its driver's report on it is on host b"):
        available_logs(remote.location)


def _fifo(place: Path) -> None:
    place.unlink()
    os.mkfifo(place)


def _link(place: Path) -> None:
    place.rename(place.parent.parent / "elsewhere")
    place.symlink_to(place.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    "damage",
    [
        _fifo,
        _link,
        lambda place: place.write_text("{"),
        lambda place: place.write_text("["),
        lambda place: place.write_bytes(b"\xff\xfe"),
        lambda place: place.write_text(" " * (MOST_OF_REPORT + 10)),
        lambda place: place.write_text('{"location": "s3a://other/bucket", "at": 1}'),
    ],
)
def test_whatever_users_code_writes_there_is_unknown_and_hurts_nobody(
    stage: Stage, remote: Remote, damage: Callable[[Path], object]
) -> None:
    damage(remote.report(stage.run("delays"), NOW))
    with pytest.raises(LogsUnknown, match=r"is damaged\. Restart the query"):
        available_logs(remote.location)
    assert committed_at(remote.location) == {}
    assert look_for_foreign_batches(now=timezone.now()) == 0


def test_the_lag_of_a_stopped_query_is_read_from_the_report_or_unknown_because(
    make: MakeQuery,
    brokers: Brokers,
    stage: Stage,
    tmp_path: Path,
    api: APIClient,
    client: Client,
    viewer: User,
) -> None:
    query = make("delays", committed={0: 100, 1: 100})
    remote = Remote.of(query, tmp_path / "delays", tmp_path / "drivers")
    stage.up("delays")
    stage.launcher.obliging = True
    stage.stop("delays")
    stage.wait(5)
    brokers.said["one:9092"] = said({0: (0, 150), 1: (0, 100)})
    look_at_sources(now=NOW, readers=brokers)
    assert lag_of(query, now=NOW).total.records is None
    told = api.get("/api/v1/queries/delays/lag/").json()["unknown_because"]
    assert told.startswith("Unknown, because s3a://flights/checkpoints/delays is not on a local")
    assert NOT_REPORTED in told
    assert f"Committed offsets: {told}" in text_of("/queries/delays/lag/", client, viewer)
    remote.report(Run.objects.get(), NOW, ended=True)
    look_at_sources(now=NOW, readers=brokers)
    lag = lag_of(query, now=NOW)
    assert (lag.total.records, lag.unknown_because) == (50, "")


def test_what_a_crash_would_replay_is_read_from_the_report_with_its_time(
    stage: Stage, tmp_path: Path, api: APIClient, client: Client, viewer: User
) -> None:
    flights = AsyncQuery(stage, tmp_path)
    flights.up()
    remote = Remote.of(flights.query, flights.root, tmp_path / "drivers")
    unknown = api.get("/api/v1/queries/flights/exposure/").json()["exposure"]
    assert unknown["unreadable"].startswith("Unknown, because s3a://")
    assert unknown["unreadable"] in text_of("/queries/flights/", client, viewer)
    remote.report(stage.run("flights"), stage.now)
    found = exposure(flights.query, now=stage.now)
    assert found is not None
    assert (found.kept, found.missing, found.unreadable) == (112, 111, "")
    assert found.seen_at == stage.now
    assert "reported by the driver" in text_of("/queries/flights/", client, viewer)
    gap = gap_of(remote.location)
    assert gap is not None
    assert gap.missing == 111


def test_foreign_batches_are_found_in_the_report(
    stage: Stage, tmp_path: Path, api: APIClient, client: Client, viewer: User
) -> None:
    now = timezone.now()
    row = stage.query("delays")
    stage.now = now - timedelta(minutes=20)
    stage.up("delays")
    begin(tmp_path / "cp", 1, stage.now + timedelta(seconds=1))
    stage.now = now - timedelta(minutes=10)
    stage.launcher.obliging = True
    stage.stop("delays")
    stage.wait(5)
    begin(tmp_path / "cp", 2, now - timedelta(minutes=5))
    remote = Remote.of(row, tmp_path / "cp", tmp_path / "drivers")
    assert look_for_foreign_batches(now=now) == 0
    told = api.get("/api/v1/queries/delays/").json()["foreign_unknown_because"]
    assert told.startswith("Unknown, because s3a://")
    assert told in text_of("/queries/delays/checkpoint/", client, viewer)
    remote.report(Run.objects.get(), now)
    assert look_for_foreign_batches(now=now) == 1
    assert Checkpoint.objects.get().foreign_last == 2
    assert api.get("/api/v1/queries/delays/").json()["foreign_unknown_because"] == ""
    page = text_of("/queries/delays/checkpoint/", client, viewer)
    assert "Unknown, because" not in page


@pytest.fixture
def story(stage: Stage, tmp_path: Path, redis_client: redis.Redis) -> Story:
    return Story(stage, tmp_path / "checkpoint")


def warnings(run: Run) -> list[str]:
    found: list[str] = Run.objects.get(pk=run.pk).warnings
    return found


@pytest.mark.redis
def test_unreported_batches_of_a_stopped_run_are_found_in_its_last_report(
    story: Story, tmp_path: Path
) -> None:
    run = story.run(minute=0, committed=[0, 1, 2, 3], reported=[0, 1])
    remote = Remote.of(run.query, story.root, tmp_path / "drivers")
    remote.report(run, NOW + timedelta(seconds=29), ended=True)
    assert count_unreported(now=LATER) == 2
    assert repair_from_checkpoints(now=LATER) == 2
    found = models.Progress.objects.filter(run=run.pk, repaired=True).order_by("batch")
    assert [row.batch for row in found] == [2, 3]
    assert warnings(run) == []
    assert count_unreported(now=LATER) == 0


@pytest.mark.redis
def test_those_of_a_killed_driver_wait_for_the_next_runs_report_and_say_so(
    story: Story, tmp_path: Path
) -> None:
    run = story.run(minute=0, committed=[0, 1], reported=[0, 1])
    remote = Remote.of(run.query, story.root, tmp_path / "drivers")
    remote.report(run, NOW + timedelta(seconds=15))
    write_batch(story.root, 2, source="kafka")
    at = (NOW + timedelta(seconds=25)).timestamp()
    os.utime(story.root / "commits/2", (at, at))
    assert count_unreported(now=LATER) == 0
    (told,) = warnings(run)
    assert told.startswith("Missing batches are unknown, because the checkpoint's logs were read")
    remote.report(run, NOW + timedelta(minutes=1))  # as the next run's driver does when it starts
    assert count_unreported(now=LATER) == 1
    assert warnings(run) == []


@pytest.mark.redis
def test_a_run_without_a_report_is_left_after_an_hour_with_the_reason(
    story: Story, tmp_path: Path
) -> None:
    run = story.run(minute=0, committed=[0], reported=[])
    Remote.of(run.query, story.root, tmp_path / "drivers")
    assert count_unreported(now=LATER) == 0
    assert Run.objects.get(pk=run.pk).commits_compared_at is None
    assert count_unreported(now=LATER + timedelta(hours=1)) == 0
    assert Run.objects.get(pk=run.pk).commits_compared_at is not None
    (told,) = warnings(run)
    assert NOT_REPORTED in told


def _dead(stage: Stage, tmp_path: Path, *, last: int | None) -> Run:
    """Let a shared driver die; its report shows batch 3 in flight, and `last` committed."""
    stage.application("flights")
    row = stage.query("delays", "flights")
    stage.query("routes", "flights")
    for name in ("delays", "routes"):
        stage.start(name)
    stage.ready("flights")
    run = stage.run("delays")
    for name in ("delays", "routes"):
        stage.launcher.commit(stage.run(name).pk, batch=last)
    stage.look()
    root = write_checkpoint(tmp_path / "cp", batches=range(3), in_flight=True)
    Remote.of(row, root, tmp_path / "drivers").report(run, stage.now)
    stage.launcher.die("flights", python="1")
    stage.look()
    run.refresh_from_db()
    assert run.outcome == RunOutcome.DRIVER_ENDED
    return run


def test_a_batch_in_flight_when_the_driver_dies_makes_its_query_a_candidate(
    stage: Stage, tmp_path: Path
) -> None:
    run = _dead(stage, tmp_path, last=2)
    assert (run.at_death, run.batch_at_death) == ("BATCH", 3)


def test_a_batch_that_committed_after_the_report_leaves_it_unknown_and_says_why(
    stage: Stage, tmp_path: Path, client: Client, viewer: User
) -> None:
    run = _dead(stage, tmp_path, last=3)
    assert run.at_death == "UNKNOWN"
    failure = Failure.objects.get(run=None)
    found = death_of(failure)
    assert found is not None
    (why,) = [one.unknown_because for one in found.candidates if one.query == "delays"]
    assert why.startswith("Unknown, because the driver read the checkpoint's logs last at")
    assert why in text_of(f"/failures/{failure.pk}/", client, viewer)
