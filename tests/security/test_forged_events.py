"""Nobody speaks for a query but the driver that runs it, whoever reaches Redis or a spool."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from controlplane import driver_users, senders
from controlplane.machine.home import Home
from controlplane.machine.valkey import choose
from listeners import spool
from listeners.models import DeadLetter, Heartbeat, Latest, Progress
from listeners.senders import Senders, believed_only
from listeners.wire import FIELD, MOST_BYTES, Event, sealed
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.models.drivers import Driver, Run
from tests.conftest_redis import (
    ANSWERS_WITHIN_S,
    MakeIngester,
    ValkeyServer,
    make_ingester,
    nudged,
    redis_client,
    valkey,
)
from tests.listeners.events import STREAM, heartbeat, progress
from tests.scenarios.stage import Stage

__all__ = ["make_ingester", "nudged", "redis_client", "valkey"]
pytestmark = [pytest.mark.redis, pytest.mark.django_db]

Say = Callable[..., None]


@pytest.fixture
def ours(stage: Stage) -> Run:
    """Return the run of our query."""
    return _run_of(stage, "ours")


@pytest.fixture
def theirs(stage: Stage, ours: Run) -> Run:
    """Return the run of the attackers' own query, in an application of theirs."""
    return _run_of(stage, "theirs")


def _run_of(stage: Stage, name: str) -> Run:
    stage.query(name)
    stage.up(name)
    return stage.run(name)


def _batch(of: Run, /, **columns: Any) -> Event:
    about = {"driver": of.driver_id, "epoch": of.driver.epoch, "run": of.pk}
    return replace(progress(1, 0, **about, query=of.query_id), **columns)


def _key(run: Run) -> bytes:
    return senders.event_key(run.driver_id, run.driver.epoch)


@pytest.fixture
def say(redis_client: Any, make_ingester: MakeIngester) -> Say:
    """Put an entry into the stream and let the ingester work."""

    def say(event: Event, key: bytes) -> None:
        redis_client.xadd(STREAM, {FIELD: sealed(event.encode(), key)})
        ingester = make_ingester(known=senders)
        ingester.step()  # makes its group
        while ingester.step():
            pass

    return say


def _refusal() -> str:
    assert not Progress.objects.exists()
    assert not Latest.objects.exists()
    assert not Heartbeat.objects.exists()
    return str(DeadLetter.objects.get().reason)


def test_what_a_driver_says_of_its_own_run_is_stored(ours: Run, say: Say) -> None:
    say(_batch(ours), _key(ours))
    assert Progress.objects.get().query == ours.query_id
    assert not DeadLetter.objects.exists()


def test_an_event_without_a_seal_is_set_aside_with_the_reason(ours: Run, say: Say) -> None:
    say(_batch(ours), b"")
    assert _refusal() == f"it does not carry the seal of driver {ours.driver.epoch}"


def test_a_driver_cannot_speak_in_the_name_of_another(ours: Run, theirs: Run, say: Say) -> None:
    say(_batch(ours), _key(theirs))
    assert _refusal() == f"it does not carry the seal of driver {ours.driver.epoch}"


def test_a_driver_cannot_speak_of_anothers_run(ours: Run, theirs: Run, say: Say) -> None:
    say(_batch(theirs, query=ours.query_id, run=ours.pk), _key(theirs))
    assert _refusal() == f"run number {ours.pk} is not one of driver {theirs.driver.epoch}"


def test_a_driver_cannot_call_its_run_one_of_another_query(
    ours: Run, theirs: Run, say: Say
) -> None:
    say(_batch(theirs, query=ours.query_id), _key(theirs))
    assert _refusal() == f"run number {theirs.pk} is not one of query number {ours.query_id}"


def test_an_event_about_a_query_names_a_run(ours: Run, theirs: Run, say: Say) -> None:
    say(_batch(theirs, query=ours.query_id, run=None), _key(theirs))
    assert _refusal() == "it is about a query and names no run of it"


def test_a_heartbeat_cannot_call_anothers_query_dead(ours: Run, theirs: Run, say: Say) -> None:
    beat = heartbeat(1)
    body = {**beat.body, "queries": [{"run": ours.pk, "alive": False, "task_at": None}]}
    about: dict[str, Any] = {"driver": theirs.driver_id, "epoch": theirs.driver.epoch}
    say(replace(beat, body=body, **about), _key(theirs))
    assert _refusal() == f"run number {ours.pk} is not one of driver {theirs.driver.epoch}"


def test_a_heartbeat_of_endless_length_asks_nothing_of_the_database(
    theirs: Run, django_assert_num_queries: Any
) -> None:
    beat = heartbeat(1)
    pulses = [{"run": number, "alive": True, "task_at": None} for number in range(2_000)]
    about: dict[str, Any] = {"driver": theirs.driver_id, "epoch": theirs.driver.epoch}
    event = replace(beat, body={**beat.body, "queries": pulses}, **about)
    with django_assert_num_queries(1):  # its driver
        found = Senders(senders).refusals([(event, sealed(event.encode(), _key(theirs)))])
    assert found == ["it names 2000 runs, more than 1000"]


def test_what_is_no_number_of_a_run_asks_for_none(theirs: Run) -> None:
    beat = heartbeat(1)
    body = {**beat.body, "queries": [{"run": 2**63}, {"run": "5"}, 5]}
    about: dict[str, Any] = {"driver": theirs.driver_id, "epoch": theirs.driver.epoch}
    event = replace(beat, body=body, **about)
    assert Senders(senders).refusals([(event, sealed(event.encode(), _key(theirs)))]) == [""]


def test_the_key_goes_with_the_epoch(ours: Run, say: Say) -> None:
    later = ours.driver.epoch + 1
    say(_batch(ours, epoch=later), senders.event_key(ours.driver_id, later))
    assert _refusal() == (
        f"driver number {ours.driver_id} has epoch {ours.driver.epoch}, not {later}"
    )


def test_a_driver_that_was_never_launched_is_not_heard(say: Say, db: None) -> None:
    say(progress(1, 0, driver=999), senders.event_key(999, 7))
    assert _refusal() == "there is no driver number 999"


def test_a_driver_that_was_alive_at_the_upgrade_is_believed(ours: Run, say: Say) -> None:
    Driver.objects.update(seals_events=False)
    say(_batch(ours), b"")
    assert Progress.objects.get().query == ours.query_id


def test_a_flood_of_refused_entries_does_not_fill_the_log(
    ours: Run, say: Say, redis_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for seq in range(50):
        redis_client.xadd(STREAM, {FIELD: _batch(ours, seq=seq, batch=seq).encode()})
    say(_batch(ours), b"")
    assert DeadLetter.objects.count() == 51
    lines = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(lines) == 6
    assert lines[-1] == "46 more entries are dead letters"


# --- spools -------------------------------------------------------------------------------
def _spooled(folder: Path, run: Run, *entries: tuple[int, bytes]) -> list[tuple[int, bytes]]:
    """Return what is believed of a spool that holds these lines."""
    epoch = run.driver.epoch
    place = folder / "ours" / str(epoch) / spool.FOLDER
    place.mkdir(parents=True)
    lines = b"".join(spool.line(seq, entry) for seq, entry in entries)
    (place / spool.segment_name(1)).write_bytes(lines)
    read = LocalProcessLauncher(folder, folder).spooled
    return list(believed_only(read, senders)(epoch, 1))


def test_a_spool_gives_back_what_its_driver_has_sealed(ours: Run, tmp_path: Path) -> None:
    entry = sealed(_batch(ours).encode(), _key(ours))
    assert _spooled(tmp_path, ours, (1, entry)) == [(1, entry)]


def test_what_others_wrote_into_a_spool_is_passed_over_and_said(
    ours: Run, theirs: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = sealed(_batch(ours).encode(), _key(ours))
    forged = sealed(_batch(ours, seq=2).encode(), _key(theirs))
    moved = sealed(_batch(ours, seq=3).encode(), _key(ours))
    assert _spooled(tmp_path, ours, (1, good), (2, forged), (9_000, moved), (5, b'{"v":2}')) == [
        (1, good)
    ]
    epoch = ours.driver.epoch
    assert [record.message.partition("passed over: ")[2] for record in caplog.records] == [
        f"it does not carry the seal of driver {epoch}",
        f"it is event 3 of driver {epoch}",
        "event version 2 is not 1",
    ]


# --- Redis --------------------------------------------------------------------------------
@pytest.fixture
def as_driver(ours: Run, valkey: ValkeyServer, redis_client: Any, settings: Any) -> redis.Redis:
    """Return a connection with what a driver is given."""
    settings.EVENT_STREAM = STREAM
    driver_users.keep(redis_client, senders.living())
    address = driver_users.address(ours.driver_id, ours.driver.epoch)
    return redis.Redis.from_url(address, socket_timeout=5)


def test_a_drivers_redis_user_may_post_and_ask_how_much_waits(as_driver: Any) -> None:
    as_driver.xadd(STREAM, {FIELD: b"{}"})
    assert as_driver.xlen(STREAM) == 1


@pytest.mark.parametrize(
    "command",
    [
        ("LPUSH", "headgate", "a task"),
        ("XADD", "another", "*", "e", "x"),
        ("XRANGE", STREAM, "-", "+"),
        ("XTRIM", STREAM, "MAXLEN", "0"),
        ("DEL", STREAM),
        ("KEYS", "*"),
        ("CONFIG", "GET", "requirepass"),
        ("ACL", "LIST"),
        ("PUBLISH", "headgate:events:changed", "query:1"),
        ("FLUSHALL",),
        ("SHUTDOWN", "NOSAVE"),
        ("EVAL", "return 1", "0"),
        ("CLIENT", "LIST"),
    ],
)
def test_a_drivers_redis_user_may_do_nothing_else(as_driver: Any, command: tuple[str, ...]) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        as_driver.execute_command(*command)


def test_the_same_commands_succeed_with_the_password_that_drivers_had_before(
    ours: Run, redis_client: Any, settings: Any
) -> None:
    settings.DRIVER_REDIS_USERS = False
    address = driver_users.address(ours.driver_id, ours.driver.epoch)
    with redis.Redis.from_url(address, socket_timeout=5) as before:
        assert before.lpush("headgate", "a task") == 1
        assert before.xadd("another", {"e": "x"})


def test_users_come_back_with_a_redis_that_lost_them_and_go_with_their_drivers(
    ours: Run, as_driver: Any, redis_client: Any
) -> None:
    redis_client.acl_deluser(*(name for name in redis_client.acl_users() if name != "default"))
    with pytest.raises((redis.exceptions.AuthenticationError, redis.ConnectionError)):
        as_driver.xlen(STREAM)
    driver_users.keep(redis_client, senders.living())
    assert as_driver.xlen(STREAM) == 0
    driver_users.keep(redis_client, {})
    assert redis_client.acl_users() == ["default"]
    with pytest.raises((redis.exceptions.AuthenticationError, redis.ConnectionError)):
        as_driver.xlen(STREAM)


def test_a_redis_that_makes_no_users_is_said_with_the_way_out(
    ours: Run, redis_client: Any, valkey: ValkeyServer
) -> None:
    redis_client.execute_command("ACL", "SETUSER", "plain", "on", ">x", "~*", "+@all", "-acl")
    plain = redis.Redis(port=valkey.port, username="plain", password="x")
    with plain, pytest.raises(driver_users.Refused, match="set HEADGATE_DRIVER_REDIS_USERS=0"):
        driver_users.keep(plain, senders.living())


def test_another_installations_users_are_left_alone(
    redis_client: Any, ours: Run, settings: Any
) -> None:
    settings.QUEUE = "elsewhere"
    driver_users.keep(redis_client, {1: 7})
    settings.QUEUE = "headgate"
    driver_users.keep(redis_client, {})
    assert "elsewhere-driver-7" in redis_client.acl_users()


def test_a_database_of_its_own_is_selected_by_the_drivers_too(
    ours: Run, redis_client: Any, valkey: ValkeyServer, settings: Any
) -> None:
    settings.REDIS_URL = valkey.url.replace("/0", "/3")
    driver_users.keep(redis_client, senders.living())
    address = driver_users.address(ours.driver_id, ours.driver.epoch)
    with redis.Redis.from_url(address, socket_timeout=5) as there:
        assert there.xlen(settings.EVENT_STREAM) == 0


def test_the_redis_that_comes_with_headgate_refuses_values_above_a_mebibyte(tmp_path: Path) -> None:
    chosen = choose(Home(tmp_path / "home"), drivers_alive=0)
    with subprocess.Popen(chosen.command, stdout=subprocess.DEVNULL) as server:
        try:
            with redis.Redis.from_url(chosen.url, socket_timeout=5) as client:
                _until_it_answers(client)
                with pytest.raises((redis.ResponseError, redis.ConnectionError)):
                    client.xadd(STREAM, {FIELD: b"x" * 1_100_000})
                assert client.xadd(STREAM, {FIELD: b"x" * (MOST_BYTES + 64)})
        finally:
            server.kill()


def _until_it_answers(client: redis.Redis) -> None:
    limit = time.monotonic() + ANSWERS_WITHIN_S
    while time.monotonic() < limit:
        with contextlib.suppress(redis.RedisError):
            client.ping()
            return
        time.sleep(0.02)
    raise TimeoutError("Valkey did not answer")
