"""What a driver's own Redis user lets its authors do: post to one stream, and no more."""

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from controlplane import hosts
from controlplane.home import Home
from headgate_ground.wire import FIELD, MOST_BYTES, REVOKED, sealed
from installation.machine.valkey import choose
from listeners import ingest, senders, streams
from listeners.ingest import Ingester
from listeners.models import Progress, Trouble
from queries.domain.states import DriverState
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
from tests.listeners.events import STREAM
from tests.security.drivers.two_drivers import batch_of, key_of, ours, played, stage, theirs

__all__ = [
    "make_ingester",
    "nudged",
    "ours",
    "played",
    "redis_client",
    "stage",
    "theirs",
    "valkey",
]
pytestmark = [pytest.mark.redis, pytest.mark.django_db]


@pytest.fixture
def as_driver(ours: Run, valkey: ValkeyServer, redis_client: Any, settings: Any) -> redis.Redis:
    """Return a connection with what a driver is given."""
    settings.EVENT_STREAM = STREAM
    senders.keep(redis_client, hosts.living())
    address = senders.address(ours.driver_id, ours.driver.epoch)
    return redis.Redis.from_url(address, socket_timeout=5)


@pytest.fixture
def own_stream(ours: Run, as_driver: Any) -> str:
    """Return the name of our driver's stream."""
    return senders.stream_of(ours.driver.epoch)


def test_a_drivers_redis_user_may_post_and_ask_how_much_waits(
    as_driver: Any, own_stream: str
) -> None:
    as_driver.xadd(own_stream, {FIELD: b"{}"})
    assert as_driver.xlen(own_stream) == 1


@pytest.mark.guarantee("G-DRIVER-3")
@pytest.mark.parametrize(
    "command",
    [
        ("LPUSH", "headgate", "a task"),
        ("XADD", "another", "*", "e", "x"),
        ("XADD", STREAM, "*", "e", "x"),
        ("XADD", f"{STREAM}:999", "MAXLEN", "0", "*", "e", "x"),
        ("XRANGE", STREAM, "-", "+"),
        ("XTRIM", STREAM, "MAXLEN", "0"),
        ("GET", f"{STREAM}:revoked:999"),
        ("SET", f"{STREAM}:revoked:999", "x"),
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
    address = senders.address(ours.driver_id, ours.driver.epoch)
    with redis.Redis.from_url(address, socket_timeout=5) as before:
        assert before.lpush("headgate", "a task") == 1
        assert before.xadd("another", {"e": "x"})


# --- floods -------------------------------------------------------------------------------
@pytest.fixture
def ingester(
    ours: Run,
    theirs: Run,
    make_ingester: MakeIngester,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> Ingester:
    """Return the ingester, both drivers known to it."""
    settings.EVENT_STREAM = STREAM
    monkeypatch.setattr(ingest, "HOUSEKEEPING_S", 0.0)
    found = make_ingester(known=hosts, living=hosts.living, batch=1_000)
    found.step()
    return found


def _post(client: Any, run: Run, seq: int, **more: Any) -> None:
    event = batch_of(run, seq=seq, batch=seq)
    client.xadd(
        senders.stream_of(run.driver.epoch),
        {FIELD: sealed(event.encode(), key_of(run))},
        **more,
    )


@pytest.mark.guarantee("G-DRIVER-4")
def test_a_flood_of_one_driver_holds_up_no_other(
    ours: Run, theirs: Run, ingester: Ingester, redis_client: Any
) -> None:
    for seq in range(1, 2_001):
        _post(redis_client, theirs, seq)
    _post(redis_client, ours, 1)
    assert ingester.step() < 1_000
    assert Progress.objects.filter(query=ours.query_id).exists()
    assert Progress.objects.filter(query=theirs.query_id).count() < 2_000


@pytest.mark.guarantee("G-DRIVER-4")
def test_a_driver_that_fills_its_stream_may_write_no_more_and_is_named(
    ours: Run,
    theirs: Run,
    ingester: Ingester,
    redis_client: Any,
    valkey: ValkeyServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "MOST_ENTRIES", 100)
    address = senders.address(theirs.driver_id, theirs.driver.epoch)
    with redis.Redis.from_url(address, socket_timeout=5) as attacker:
        for seq in range(1, 400):
            _post(attacker, theirs, seq)
        ingester.step()
        with pytest.raises((redis.exceptions.AuthenticationError, redis.ConnectionError)):
            _post(attacker, theirs, 400)
    assert redis_client.xlen(senders.stream_of(theirs.driver.epoch)) == 0
    ingester.step()  # it is said for as long as the driver lives
    trouble = Trouble.objects.get()
    assert f"driver {theirs.driver.epoch} has filled its event stream" in trouble.cause
    _post(redis_client, ours, 1)
    ingester.step()
    assert Progress.objects.filter(query=ours.query_id).exists()
    Driver.objects.filter(pk=theirs.driver_id).update(state=DriverState.ENDED)
    ingester.step()
    ingester.step()
    assert not Trouble.objects.exists()


def test_what_a_driver_trims_or_dates_ahead_is_its_own_loss(
    ours: Run, theirs: Run, ingester: Ingester, redis_client: Any
) -> None:
    address = senders.address(theirs.driver_id, theirs.driver.epoch)
    _post(redis_client, ours, 1)
    with redis.Redis.from_url(address, socket_timeout=5) as attacker:
        _post(attacker, theirs, 1, id="18446744073709551000-0")
        _post(attacker, theirs, 2, id="18446744073709551001-0", maxlen=1, approximate=False)
    while ingester.step():
        pass
    assert Progress.objects.filter(query=ours.query_id).count() == 1
    assert list(Progress.objects.filter(query=theirs.query_id).values_list("seq", flat=True)) == [2]


def test_the_stream_of_a_driver_that_has_ended_goes_once_it_is_read(
    ours: Run, ingester: Ingester, redis_client: Any
) -> None:
    name = senders.stream_of(ours.driver.epoch)
    _post(redis_client, ours, 1)
    Driver.objects.filter(pk=ours.driver_id).update(state=DriverState.ENDED)
    ingester.step()
    assert Progress.objects.filter(query=ours.query_id).exists()
    ingester.step()
    assert not redis_client.exists(name)
    ingester.step()  # and is not missed


@pytest.mark.guarantee("G-DRIVER-3")
def test_users_come_back_with_a_redis_that_lost_them_and_go_with_their_drivers(
    as_driver: Any, own_stream: str, redis_client: Any
) -> None:
    redis_client.acl_deluser(*(name for name in redis_client.acl_users() if name != "default"))
    with pytest.raises((redis.exceptions.AuthenticationError, redis.ConnectionError)):
        as_driver.xlen(own_stream)
    senders.keep(redis_client, hosts.living())
    assert as_driver.xlen(own_stream) == 0
    senders.keep(redis_client, {})
    assert redis_client.acl_users() == ["default"]
    with pytest.raises((redis.exceptions.AuthenticationError, redis.ConnectionError)):
        as_driver.xlen(own_stream)


def test_a_redis_that_makes_no_users_is_said_with_the_way_out(
    ours: Run, redis_client: Any, valkey: ValkeyServer
) -> None:
    redis_client.execute_command("ACL", "SETUSER", "plain", "on", ">x", "~*", "+@all", "-acl")
    plain = redis.Redis(port=valkey.port, username="plain", password="x")
    with (
        plain,
        pytest.raises(senders.UsersRejected, match="set HEADGATE_DRIVER_REDIS_USERS=0"),
    ):
        senders.keep(plain, hosts.living())


def test_a_revoked_driver_may_read_that_and_do_nothing_else(
    ours: Run, as_driver: Any, own_stream: str, redis_client: Any
) -> None:
    epoch = ours.driver.epoch
    place = senders.revocation_of(epoch)
    assert as_driver.get(place) is None
    with pytest.raises(redis.exceptions.NoPermissionError):
        as_driver.xadd(place, {FIELD: b"so that nobody can revoke me"})
    revoked = {ours.driver_id: epoch}
    for _ in range(2):  # again and again
        senders.keep(redis_client, hosts.living(), revoked)
        senders.revoke(redis_client, revoked)
    assert as_driver.get(place) == sealed(REVOKED, key_of(ours))
    with pytest.raises(redis.exceptions.NoPermissionError):
        as_driver.xadd(own_stream, {FIELD: b"{}"})
    senders.keep(redis_client, hosts.living())  # it was not given up any more
    redis_client.delete(place)
    assert redis_client.acl_users() == ["default", f"headgate-driver-{epoch}"]


def test_the_ingester_tells_a_driver_of_its_revocation_though_redis_loses_it(
    ours: Run, theirs: Run, make_ingester: MakeIngester, redis_client: Any, settings: Any
) -> None:
    settings.EVENT_STREAM = STREAM
    revoked = {ours.driver_id: ours.driver.epoch}
    ingester = make_ingester(known=hosts, living=hosts.living, revoked=lambda: revoked)
    place = senders.revocation_of(ours.driver.epoch)
    for _ in range(2):
        ingester._housekeeping_at = -ingest.HOUSEKEEPING_S
        ingester.step()
        address = senders.address(ours.driver_id, ours.driver.epoch)
        with redis.Redis.from_url(address, socket_timeout=5) as there:
            assert there.get(place) == sealed(REVOKED, key_of(ours))
        redis_client.flushall()
        redis_client.acl_deluser(*(name for name in redis_client.acl_users() if name != "default"))
    assert not redis_client.exists(senders.revocation_of(theirs.driver.epoch))


def test_another_installations_users_are_left_alone(
    redis_client: Any, ours: Run, settings: Any
) -> None:
    settings.QUEUE = "elsewhere"
    senders.keep(redis_client, {1: 7})
    settings.QUEUE = "headgate"
    senders.keep(redis_client, {})
    assert "elsewhere-driver-7" in redis_client.acl_users()


def test_a_database_of_its_own_is_selected_by_the_drivers_too(
    ours: Run, redis_client: Any, valkey: ValkeyServer, settings: Any
) -> None:
    settings.REDIS_URL = valkey.url.replace("/0", "/3")
    senders.keep(redis_client, hosts.living())
    address = senders.address(ours.driver_id, ours.driver.epoch)
    with redis.Redis.from_url(address, socket_timeout=5) as there:
        assert there.xlen(senders.stream_of(ours.driver.epoch)) == 0


@pytest.mark.guarantee("G-DRIVER-5")
def test_the_redis_that_comes_with_headgate_refuses_values_above_a_mebibyte(tmp_path: Path) -> None:
    chosen = choose(Home(tmp_path / "home"), drivers_alive=0)
    environment = os.environ | {"REDIS_URL": chosen.url}
    with subprocess.Popen(chosen.command, stdout=subprocess.DEVNULL, env=environment) as server:
        try:
            with redis.Redis.from_url(chosen.url, socket_timeout=5) as client:
                _until_it_answers(client)
                with pytest.raises((redis.ResponseError, redis.ConnectionError)):
                    client.xadd(STREAM, {FIELD: b"x" * 1_100_000})
            # Another connection: the server closes one whose value it has refused, soon.
            with redis.Redis.from_url(chosen.url, socket_timeout=5) as client:
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
