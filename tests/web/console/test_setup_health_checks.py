"""The probes and the banner tell the system's own health, part by part."""

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from controlplane import signs_of_life
from controlplane.home import Home
from controlplane.signs_of_life import Sign
from controlplane.ticks import TICKS, TickReport, TickRun
from installation.machine import claims
from queries.domain.hosts import SILENT_AFTER
from queries.domain.system import OF_DATA, READY_PARTS, PartState
from queries.roles import Role
from queries.selectors import hosts
from queries.selectors.hosts import Disk
from queries.services.system import health as system
from queries.services.system import parts

NOBODY = "redis://127.0.0.1:9/0"


@pytest.fixture(autouse=True)
def _look_anew() -> Iterator[None]:
    system.forget()
    yield
    system.forget()


def _signs(now: datetime, **ages_s: float) -> dict[str, Sign]:
    return {name: Sign(now - timedelta(seconds=age), "here") for name, age in ages_s.items()}


def test_healthz_answers_whatever_else_is_down(client: Client, settings: Settings) -> None:
    settings.REDIS_URL = NOBODY
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


@pytest.mark.django_db
def test_readyz_names_each_part_and_says_that_redis_is_down(
    client: Client, settings: Settings
) -> None:
    settings.REDIS_URL = NOBODY
    answer = client.get("/readyz")
    checks = answer.json()["checks"]
    assert answer.status_code == 503
    assert set(checks) == {*READY_PARTS, "hosts", "ticks"}
    assert checks["database"]["status"] == "ok"
    assert checks["redis"]["status"] == "problem"
    assert checks["redis"]["since"] is not None
    assert {checks[name]["status"] for name in ("worker", "ticks", "ingester")} == {"unknown"}


@pytest.fixture
def _somebody(db: None, tmp_path: Path, settings: Settings) -> None:
    settings.HOME = Home(tmp_path)
    settings.HOME.make()
    get_user_model().objects.create_user("ada")


@pytest.mark.django_db
def test_readyz_is_not_ready_before_anybody_can_sign_in(client: Client) -> None:
    said = client.get("/readyz").json()["checks"]["setup"]
    assert said["status"] == "problem"
    assert "There are no users yet" in said["message"]
    get_user_model().objects.create_user("gone", is_active=False)
    system.forget()
    assert client.get("/readyz").json()["checks"]["setup"]["status"] == "problem"


@pytest.mark.usefixtures("_somebody")
def test_readyz_waits_for_the_roles(client: Client) -> None:
    assert client.get("/readyz").json()["checks"]["setup"]["status"] == "ok"
    Group.objects.get(name=Role.VIEWER).delete()
    system.forget()
    said = client.get("/readyz").json()["checks"]["setup"]
    assert (said["status"], "viewer" in said["message"]) == ("problem", True)


@pytest.mark.usefixtures("_somebody")
def test_readyz_waits_for_what_make_run_prepares_and_for_no_one_that_has_died(
    client: Client, settings: Settings
) -> None:
    def status() -> str:
        system.forget()
        return str(client.get("/readyz").json()["checks"]["setup"]["status"])

    home = settings.HOME
    home.preparing.touch()
    assert status() == "ok"  # it was left by one that has died: nobody prepares anything
    with claims.claim(home, address="http://here/"):
        assert status() == "problem"
        home.preparing.unlink()
        assert status() == "ok"


@pytest.mark.usefixtures("_somebody")
def test_readyz_waits_for_migrations(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_migrated", False)
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *_: ["one", "another"])
    said = client.get("/readyz").json()["checks"]["setup"]
    assert said["status"] == "problem"
    assert said["message"].startswith("2 migrations have not been applied.")
    monkeypatch.undo()
    system.forget()
    assert client.get("/readyz").json()["checks"]["setup"]["status"] == "ok"


@pytest.mark.redis
@pytest.mark.usefixtures("_somebody")
def test_readyz_is_ready_once_every_part_gives_signs_of_life(
    client: Client, settings: Settings, redis_server: str
) -> None:
    settings.REDIS_URL = redis_server
    with redis.Redis.from_url(redis_server) as connection:
        for name in (signs_of_life.WORKER, signs_of_life.INGESTER):
            signs_of_life.record_heartbeat(connection, name, now=timezone.now())
        signs_of_life.report(connection, _report(timezone.now()))
        answer = client.get("/readyz")
        connection.flushdb()
    assert answer.status_code == 200, answer.content
    assert {check["status"] for check in answer.json()["checks"].values()} == {"ok"}


@pytest.mark.redis
@pytest.mark.django_db
def test_an_ingester_is_seen_by_its_reads_of_the_stream(
    client: Client, settings: Settings, redis_server: str
) -> None:
    settings.REDIS_URL = redis_server
    with redis.Redis.from_url(redis_server) as connection:
        connection.xgroup_create(settings.EVENT_STREAM, "a group", "0", mkstream=True)
        connection.xreadgroup("a group", "one", {settings.EVENT_STREAM: ">"}, block=1)
        checks = client.get("/readyz").json()["checks"]
        connection.flushdb()
    assert checks["ingester"]["status"] == "ok"
    assert checks["worker"]["status"] == "problem"


def _report(now: datetime, host: str = "here", **ended_s: float) -> TickReport:
    """Return a worker's report, in which all ticks have just ended but those named."""
    runs = {}
    for tick in TICKS:
        ended = now - timedelta(seconds=ended_s.get(tick.name, 1))
        runs[tick.name] = TickRun(ended - timedelta(seconds=1), ended)
    return TickReport(host, now - timedelta(seconds=1), now - timedelta(days=1), runs)


def test_a_worker_whose_sweep_is_late_is_a_problem(now: datetime) -> None:
    signs, reports = _signs(now, worker=1), [_report(now, sweep=20)]
    part = parts.worker_part(signs, reports, now)
    assert part.state is PartState.PROBLEM
    assert part.since == now - timedelta(seconds=18)
    assert "“Sweep” on here was due at" in part.sentence


def test_sweeps_on_one_host_are_enough_for_starts_and_the_other_is_named(now: datetime) -> None:
    signs, reports = _signs(now, worker=1), [_report(now), _report(now, "there", sweep=20)]
    assert parts.worker_part(signs, reports, now).sentence == "Sweeps run on here."
    part = parts.ticks_part(reports, now)
    assert part.state is PartState.PROBLEM
    assert "“Sweep” on there" in part.sentence


@pytest.mark.guarantee("G-HOST-4")
def test_each_late_tick_has_a_sentence(now: datetime) -> None:
    report = _report(now, send_alerts=31, keep_ledger=61)
    hangs = TickRun(now - timedelta(minutes=5), now - timedelta(minutes=6))
    part = parts.ticks_part([replace(report, runs={**report.runs, "look_at_sources": hangs})], now)
    assert part.since == now - timedelta(minutes=5)
    assert part.sentence == (
        "“Look at sources” on here has been running since 11:55:00 UTC and has not ended. "
        "“Keep ledger” on here was due at 11:59:09 UTC and has not begun: it is late by more than "
        "5 intervals of 10 s. “Send alerts” on here was due at 11:59:34 UTC and has not begun: it "
        "is late by more than 5 intervals of 5 s."
    )


def test_a_worker_whose_timers_report_nothing_is_a_problem(now: datetime) -> None:
    signs = _signs(now, worker=1)
    assert parts.worker_part(signs, [], now).state is PartState.PROBLEM
    old = replace(_report(now), at=now - SILENT_AFTER - timedelta(seconds=1))
    assert parts.worker_part(signs, [old], now).state is PartState.PROBLEM
    assert parts.ticks_part([old], now).ok  # it is the worker's problem


@pytest.mark.parametrize("ages", [{}, {"worker": 60}])
def test_no_sign_of_a_worker_is_a_problem(now: datetime, ages: dict[str, float]) -> None:
    assert parts.worker_part(_signs(now, **ages), [], now).state is PartState.PROBLEM


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, "Set maxmemory-policy to noeviction"),
        ({"aof_last_write_status": "err"}, "cannot write its append-only file"),
    ],
)
def test_a_redis_that_can_lose_events_is_a_problem(info: dict[str, Any], words: str) -> None:
    part = parts.redis_part(info)
    assert part.state is PartState.PROBLEM
    assert words in part.sentence


@pytest.mark.django_db
def test_a_problem_remembers_since_when_it_has_been_there(
    now: datetime, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL = NOBODY
    monkeypatch.setattr(system, "FRESH_FOR_S", 0)
    first = system.system_health(now)
    later = system.system_health(now + timedelta(minutes=5))
    assert first.problems[0].since == now
    assert later.problems[0].since == now


@pytest.mark.django_db
def test_little_free_space_is_a_problem_but_the_system_stays_ready(
    now: datetime, settings: Settings
) -> None:
    settings.DISK_WARNING_MB = 10**12
    settings.HEADGATE_HOME.mkdir(exist_ok=True)
    disk = next(part for part in system.system_health(now).parts if part.name == "disk")
    assert disk.state is PartState.PROBLEM
    assert "disk" not in READY_PARTS


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> dict[str, Disk]:
    """File systems by path, as a story wants them; all other paths are on HEADGATE_HOME's."""
    settings.DISK_WARNING_MB = 1000
    home = Disk("/home", "/", 1, size=50_000_000_000, free=9_000_000_000)
    found: dict[str, Disk] = {}
    monkeypatch.setattr(hosts, "disk_of", lambda path: found.get(path, home))
    return found


@pytest.mark.guarantee("G-HOST-4")
@pytest.mark.django_db
def test_every_local_data_root_with_little_space_is_a_problem_of_its_own(
    now: datetime, settings: Settings, mounts: dict[str, Disk]
) -> None:
    settings.ALLOWED_PATHS = ["/data/in", "/data/out", "s3a://bucket/in", "/small", "/wide"]
    full = Disk("/data/in", "/data", 2, size=50_000_000_000, free=3_000_000)
    mounts["/data/in"] = mounts["/data/out"] = full
    mounts["/small"] = Disk("/small", "/small", 3, size=100_000_000, free=60_000_000)
    mounts["/wide"] = Disk("/wide", "/wide", 4, size=10**12, free=10**11)
    parts = [one for one in system.system_health(now).parts if one.name.startswith(OF_DATA)]
    assert [(one.name, one.state) for one in parts] == [("disk /data", PartState.PROBLEM)]
    assert parts[0].sentence == (
        "/data/in is on the file system mounted at /data: 3 MB of 50,000 MB are free, 997 MB too "
        "little. Free up space there."
    )


def test_a_disk_is_found_for_what_does_not_exist_yet(tmp_path: Path) -> None:
    found = hosts.disk_of(str(tmp_path / "not" / "yet"))
    assert found is not None
    assert os.path.ismount(found.mount)
    assert str(tmp_path).startswith(found.mount)
    assert found.size >= found.free


@pytest.mark.django_db
def test_a_file_system_without_inodes_is_full_whatever_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Found:
        f_flag, f_blocks, f_frsize, f_bavail = 0, 50_000, 1_000_000, 9_000
        f_files, f_favail = 1_000, 0

    monkeypatch.setattr(os, "statvfs", lambda path: Found)
    disk = hosts.disk_of(str(tmp_path))
    assert disk is not None
    assert (disk.low, disk.missing) == (True, 0)
    assert disk.sentence.endswith(
        "9,000 MB of 50,000 MB are free, but no inode: it has too many files."
    )
    Found.f_files = 0  # a file system that does not count them
    assert (other := hosts.disk_of(str(tmp_path)))
    assert not other.low


@pytest.mark.django_db
def test_data_disks_that_cannot_be_checked_are_not_reported_as_full(
    now: datetime, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(hosts, "disk_of", lambda path: 1 / 0)
    parts = [one.name for one in system.system_health(now).parts if "could not" in one.sentence]
    assert parts == ["data disks"]


@pytest.mark.parametrize(("flag", "blocks"), [(os.ST_RDONLY, 10), (0, 0)])
def test_what_nothing_can_be_written_to_is_not_watched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flag: int, blocks: int
) -> None:
    class Found:
        f_flag, f_blocks, f_frsize, f_bavail = flag, blocks, 1, 0

    monkeypatch.setattr(os, "statvfs", lambda path: Found)
    assert hosts.disk_of(str(tmp_path)) is None
