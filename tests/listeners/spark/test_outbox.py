"""Events wait on disk and in memory while Redis is away, and nothing waits for Redis."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from headgate_ground import spool
from headgate_ground.wire import REVOKED, EventKind, WireEvent, sealed
from listeners.spark import outbox as module
from listeners.spark.outbox import Outbox, TelemetrySettings
from tests.conftest_redis import ValkeyServer
from tests.listeners.events import STREAM, event

pytestmark = pytest.mark.redis

MakeOutbox = Callable[..., Outbox]

KEY, REVOCATION = b"k" * 32, "revocation"


@pytest.fixture
def make_outbox(valkey: ValkeyServer, tmp_path: Path) -> Iterator[MakeOutbox]:
    made: list[Outbox] = []

    def make(
        revoked: Callable[[], object] = lambda: None, url: str = "", **settings: Any
    ) -> Outbox:
        settings = {"socket_timeout_s": 0.3, **settings}
        made.append(
            Outbox(
                folder=tmp_path / "spool",
                redis_url=url or valkey.url,
                stream=STREAM,
                settings=TelemetrySettings.read(settings),
                key=KEY,
                revocation=REVOCATION,
                revoked=revoked,
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close(1)


def said(number: int, size: int = 0) -> WireEvent:
    return event(EventKind.STATUS, 0, body={"state": f"{number}", "padding": "x" * size})


def arrived(client: redis.Redis) -> list[int]:
    """Return the numbers in the order of their first arrival.

    What Redis took without saying so in time comes again; the ingester stores it once.
    """
    entries: Any = client.xrange(STREAM)
    return list(dict.fromkeys(WireEvent.decode(fields[b"e"]).seq for _, fields in entries))


def looks_at_the_stream(client: redis.Redis) -> int:
    """Return how often anybody has asked how long the stream is."""
    calls: int = client.info("commandstats")["cmdstat_xlen"]["calls"]
    return calls


def wait_for(met: Callable[[], bool], limit_s: float = 60) -> None:
    limit = time.monotonic() + limit_s
    while not met():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.02)


def test_events_arrive_in_order_with_numbers_from_one(
    redis_client: redis.Redis, make_outbox: MakeOutbox
) -> None:
    outbox = make_outbox()
    outbox.start()
    for number in range(1200):
        outbox.add(said(number))
    assert outbox.close(30) == 1200
    assert arrived(redis_client) == list(range(1, 1201))
    assert (outbox.unsent, outbox.dropped) == (0, 0)


def test_a_redis_that_was_away_gets_everything_afterwards(
    valkey: ValkeyServer,
    redis_client: redis.Redis,
    make_outbox: MakeOutbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MEMORY_BYTES", 20_000)  # the rest waits on disk only
    outbox = make_outbox()
    outbox.start()
    outbox.add(said(0))
    wait_for(lambda: outbox.unsent == 0)
    valkey.kill()
    for number in range(1, 1000):
        outbox.add(said(number))
    assert outbox.unsent == 999
    valkey.start()
    wait_for(lambda: outbox.unsent == 0)
    numbers = arrived(redis_client)
    assert sorted(set(numbers)) == list(range(1, 1001))
    assert outbox.dropped == 0


def test_a_redis_that_hangs_holds_up_neither_adding_nor_the_end(
    valkey: ValkeyServer, redis_client: redis.Redis, make_outbox: MakeOutbox, tmp_path: Path
) -> None:
    outbox = make_outbox()
    outbox.start()
    assert valkey.process is not None
    os.kill(valkey.process.pid, signal.SIGSTOP)
    try:
        adding = threading.Thread(target=lambda: [outbox.add(said(n)) for n in range(500)])
        adding.start()
        adding.join(30)
        assert not adding.is_alive()
        closing = threading.Thread(target=outbox.close, args=(1.0,))
        closing.start()
        closing.join(30)
        assert not closing.is_alive()
    finally:
        os.kill(valkey.process.pid, signal.SIGCONT)
    # All of it is on disk, where the repair of gaps finds it.
    assert [seq for seq, _ in spool.read_from(tmp_path / "spool", 1)] == list(range(1, 501))


def test_what_has_no_room_any_more_is_counted_exactly(
    valkey: ValkeyServer,
    redis_client: redis.Redis,
    make_outbox: MakeOutbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MEMORY_BYTES", 50_000)
    monkeypatch.setattr("listeners.spark.outbox.SEGMENT_BYTES", 100_000)
    outbox = make_outbox(spool_mb=1)
    valkey.kill()
    outbox.start()
    for number in range(3_000):
        outbox.add(said(number, size=800))
    assert outbox.dropped > 0
    valkey.start()
    wait_for(lambda: outbox.unsent == 0)
    numbers = set(arrived(redis_client))
    assert len(numbers) + outbox.dropped == outbox.last_seq == 3_000
    assert max(numbers) == 3_000  # the newest are kept, the oldest that disk alone held went


def test_the_sender_holds_back_while_nobody_reads(
    redis_client: redis.Redis, make_outbox: MakeOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "THROTTLE_S", 0.05)
    outbox = make_outbox(max_unread=100)
    outbox.start()
    for number in range(2_000):
        outbox.add(said(number))
    wait_for(lambda: redis_client.xlen(STREAM) > 100)
    before = looks_at_the_stream(redis_client)
    wait_for(lambda: looks_at_the_stream(redis_client) >= before + 3)  # and it sends nothing
    assert outbox.unsent > 0
    assert redis_client.xlen(STREAM) <= 100 + module.BATCH_EVENTS
    while outbox.unsent:
        redis_client.xtrim(STREAM, maxlen=0, approximate=False)
        time.sleep(0.02)
    assert outbox.last_seq == 2_000


def test_a_spool_that_holds_nothing_yet_is_read_as_empty(tmp_path: Path) -> None:
    assert list(spool.read_from(tmp_path, 1)) == []


def test_a_spool_that_cannot_be_written_stops_nothing(
    redis_client: redis.Redis, make_outbox: MakeOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = make_outbox()
    monkeypatch.setattr(outbox._spool, "append", _disk_full)
    outbox.start()
    for number in range(50):
        outbox.add(said(number))
    outbox.close(30)
    assert arrived(redis_client) == list(range(1, 51))


def test_on_a_full_disk_without_redis_memory_is_bounded_and_what_it_cannot_hold_is_counted(
    valkey: ValkeyServer,
    redis_client: redis.Redis,
    make_outbox: MakeOutbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MEMORY_BYTES", 50_000)
    outbox = make_outbox()
    valkey.kill()
    outbox.start()
    with monkeypatch.context() as full:
        full.setattr(outbox._spool, "append", _disk_full)
        for number in range(200):
            outbox.add(said(number, size=800))
    held = 200 - outbox.dropped
    assert 0 < held * 800 < 50_000
    for number in range(100):  # there is room again, on disk
        outbox.add(said(number, size=800))
    valkey.start()
    wait_for(lambda: outbox.unsent == 0)
    assert arrived(redis_client) == [*range(1, held + 1), *range(201, 301)]


def _disk_full(*_: object, **__: object) -> None:
    raise OSError("no space left on device")


def test_sent_segments_make_room_first(
    redis_client: redis.Redis,
    make_outbox: MakeOutbox,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("listeners.spark.outbox.SEGMENT_BYTES", 10_000)
    outbox = make_outbox(spool_sent_mb=0)
    outbox.start()
    for number in range(200):
        outbox.add(said(number, size=200))
        if number % 20 == 0:
            wait_for(lambda: outbox.unsent == 0)
    outbox.close(30)
    assert arrived(redis_client) == list(range(1, 201))
    assert outbox.dropped == 0
    assert next(spool.read_from(tmp_path / "spool", 1))[0] > 1


# --- revocation ---------------------------------------------------------------------------


def make_user(client: Any, name: str, *rights: str) -> None:
    client.execute_command("ACL", "SETUSER", name, *rights)


@pytest.mark.guarantee("G-HOST-2")
def test_a_revoked_driver_finds_it_with_its_next_event_though_it_may_send_none(
    redis_client: redis.Redis, make_outbox: MakeOutbox, valkey: ValkeyServer
) -> None:
    make_user(redis_client, "given-up", "reset", "on", ">word", f"%R~{REVOCATION}", "+get")
    redis_client.set(REVOCATION, sealed(REVOKED, KEY))
    told = threading.Event()
    outbox = make_outbox(told.set, valkey.url.replace("redis://", "redis://given-up:word@"))
    outbox.start()
    outbox.add(said(0))
    wait_for(told.is_set)
    assert not redis_client.exists(STREAM)


def test_a_revoked_driver_finds_it_while_its_stream_is_too_long(
    redis_client: redis.Redis, make_outbox: MakeOutbox
) -> None:
    told = threading.Event()
    outbox = make_outbox(told.set, max_unread=0)
    outbox.start()
    outbox.add(said(0))
    wait_for(lambda: outbox.unsent == 0)
    redis_client.set(REVOCATION, sealed(REVOKED, KEY))
    wait_for(told.is_set)


@pytest.mark.guarantee("G-HOST-2")
@pytest.mark.parametrize("holds", [None, REVOKED, sealed(REVOKED, b"another"), b""])
def test_a_redis_that_lacks_the_sealed_word_revokes_nobody(
    redis_client: redis.Redis, make_outbox: MakeOutbox, holds: bytes | None
) -> None:
    told = threading.Event()
    if holds is not None:
        redis_client.set(REVOCATION, holds)
    outbox = make_outbox(told.set)
    outbox.start()
    for number in range(3):
        outbox.add(said(number))
        wait_for(lambda: outbox.unsent == 0)
    assert not told.is_set()


def test_a_redis_that_does_not_let_it_look_or_has_lost_its_users_revokes_nobody(
    redis_client: redis.Redis, make_outbox: MakeOutbox, valkey: ValkeyServer
) -> None:
    make_user(redis_client, "earlier", "reset", "on", ">word", f"~{STREAM}", "+xadd", "+xlen")
    redis_client.set(REVOCATION, sealed(REVOKED, KEY))
    told = threading.Event()
    outbox = make_outbox(told.set, valkey.url.replace("redis://", "redis://earlier:word@"))
    outbox.start()
    outbox.add(said(0))
    wait_for(lambda: outbox.unsent == 0)  # and its events come nevertheless
    redis_client.acl_deluser("earlier")
    redis_client.flushall()
    outbox.add(said(1))
    time.sleep(1)
    assert outbox.unsent == 1
    assert not told.is_set()
