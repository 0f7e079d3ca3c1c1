"""Events from the stream are stored once, whatever dies and whatever comes twice."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import redis
from django.db import OperationalError, connection

from controlplane import fail_points
from headgate_ground.wire import FIELD, EventKind
from listeners import ingest, models, store
from listeners.loops.backlogs import current
from listeners.streams import GROUP
from tests.conftest_redis import MakeIngester, ValkeyServer
from tests.killed import killed_at
from tests.listeners.events import STREAM, event, heartbeat, progress, send
from tests.listeners.rows import START

pytestmark = [pytest.mark.redis, pytest.mark.django_db(transaction=True)]


def drain(ingester: ingest.Ingester) -> None:
    """Step until nothing is left; one step may only make the group."""
    empty = 0
    while empty < 2:
        empty = 0 if ingester.step() else empty + 1


def pending(client: redis.Redis) -> int:
    found: dict[str, int] = client.xpending(STREAM, GROUP)
    return found["pending"]


def test_a_batch_becomes_a_row_with_its_numbers(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    send(redis_client, progress(1, 17))
    drain(make_ingester())
    row = models.Progress.objects.get()
    assert (row.query, row.run, row.batch, row.seq) == (42, 5, 17, 1)
    assert (row.num_input_rows, row.batch_duration_ms, row.state_rows) == (10, 800, 7)
    assert (row.input_rows_per_second, row.processed_rows_per_second) == (10.5, 12.5)
    assert row.at == START + timedelta(seconds=1)
    assert row.watermark is not None
    assert row.watermark.year == 2013
    assert row.body["durationMs"] == {"addBatch": 700}


def test_evidence_on_a_slow_batch_becomes_a_row_and_is_no_sign_of_life(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    body = {"batch": 17, "took_ms": 41_000, "stages": []}
    slow = event(EventKind.SLOW_BATCH, 1, body=body)
    send(redis_client, slow, slow, event(EventKind.SLOW_BATCH, 2, body={"batch": "many"}))
    drain(make_ingester())
    row = models.SlowBatch.objects.get()
    assert (row.query, row.run, row.batch, row.took_ms) == (42, 5, 17, 41_000)
    assert row.body == body
    assert not models.Latest.objects.exists()
    assert "no number" in models.DeadLetter.objects.get().reason


@pytest.mark.guarantee("G-EVENT-1")
def test_what_comes_twice_is_stored_once_and_what_is_stored_is_trimmed(
    redis_client: redis.Redis, make_ingester: MakeIngester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "HOUSEKEEPING_S", 0.0)
    events = [progress(number, number) for number in range(1, 251)]
    send(redis_client, *events, *events)
    drain(make_ingester())
    assert models.Progress.objects.count() == 250
    assert not models.DeadLetter.objects.exists()
    assert pending(redis_client) == 0
    assert redis_client.xlen(STREAM) == 1  # the last one marks how far the group has read


@pytest.mark.parametrize(("more_bytes", "at_once"), [(4_000_000, 35), (1, 10)])
def test_a_backlog_is_stored_at_once_unless_its_entries_are_large(
    redis_client: redis.Redis,
    make_ingester: MakeIngester,
    monkeypatch: pytest.MonkeyPatch,
    more_bytes: int,
    at_once: int,
) -> None:
    ingester = make_ingester()
    ingester.step()  # makes the group
    send(redis_client, *(progress(number, number) for number in range(1, 36)))
    monkeypatch.setattr(ingester, "_share", 10)  # as many entries a read
    monkeypatch.setattr(ingester, "_batch", 40)
    monkeypatch.setattr(ingest, "MOST_BYTES_MORE", more_bytes)
    assert ingester.step() == at_once
    drain(ingester)
    assert models.Progress.objects.count() == 35


@pytest.mark.guarantee("G-EVENT-1")
def test_an_event_that_is_no_batch_is_stored_once_too(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    started = event(EventKind.STARTED, 1)
    send(redis_client, started, started)
    drain(make_ingester())
    send(redis_client, started)  # long after it was stored
    drain(make_ingester())
    assert models.Event.objects.count() == 1
    assert not models.DeadLetter.objects.exists()


@pytest.mark.guarantee("G-EVENT-1")
def test_an_ingester_killed_before_it_acknowledges_loses_and_doubles_nothing(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    send(redis_client, *(progress(number, number) for number in range(1, 51)))
    assert killed_at(fail_points.BEFORE_ACK, lambda: drain(make_ingester("dies")))
    assert models.Progress.objects.count() == 50
    assert pending(redis_client) == 50
    drain(make_ingester("dies"))  # started again under its name
    assert models.Progress.objects.count() == 50
    assert not models.DeadLetter.objects.exists()
    assert pending(redis_client) == 0


def test_two_ingesters_at_once_store_everything_once(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    send(redis_client, *(progress(number, number) for number in range(1, 1001)))
    stop = threading.Event()
    ingesters = [make_ingester("one", 37), make_ingester("two", 41)]

    def work(ingester: ingest.Ingester) -> None:
        try:
            ingester.run(stop)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(ingester,)) for ingester in ingesters]
    for thread in threads:
        thread.start()
    limit = threading.Event()
    for _ in range(600):
        if sum(ingester.stored for ingester in ingesters) >= 1000:
            break
        limit.wait(0.1)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert models.Progress.objects.count() == 1000
    assert [
        (row.kind, row.first, row.last) for row in models.Received.objects.order_by("kind")
    ] == [
        ("batch", 1, 1000),
        ("seq", 1, 1000),
    ]


def test_an_ingester_pauses_only_once_a_stream_has_no_more_to_read(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    ingester = make_ingester("one", ingest.BATCH)
    ingester.step()  # makes the group
    send(redis_client, *(progress(number, number) for number in range(1, 601)))

    class FirstPause(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            self.set()
            return True

    ingester.run(FirstPause())
    assert ingester.stored == 600


@pytest.mark.parametrize(
    ("held_s", "vendor", "rests_s"),
    [
        (0.05, "sqlite", 0.0),  # a full batch on a quiet host
        (0.6, "sqlite", 0.3),
        (30.0, "sqlite", ingest.LONGEST_REST_S),
        (30.0, "postgresql", 0.0),  # it wakes those who wait
    ],
)
def test_after_a_long_write_the_lock_is_left_to_others(
    held_s: float, vendor: str, rests_s: float
) -> None:
    assert ingest.rest_s(held_s, vendor) == rests_s


def test_with_a_backlog_and_long_writes_an_ingester_pauses_between_them(
    redis_client: redis.Redis, make_ingester: MakeIngester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "rest_s", lambda held_s, vendor: 0.3)
    ingester = make_ingester("one", 10)
    ingester.step()  # makes the group
    send(redis_client, *(progress(number, number) for number in range(1, 31)))

    class FirstPause(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == 0.3
            self.set()
            return True

    ingester.run(FirstPause())
    assert ingester.stored == 10


def test_what_a_dead_ingester_held_is_claimed_by_its_peer(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    redis_client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    send(redis_client, *(progress(number, number) for number in range(1, 11)))
    redis_client.xreadgroup(GROUP, "dead", {STREAM: ">"}, count=7)  # and then it was killed
    drain(make_ingester())
    assert models.Progress.objects.count() == 10
    assert pending(redis_client) == 0


def test_what_a_living_peer_holds_is_left_to_it(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    redis_client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    send(redis_client, progress(1, 1), progress(2, 2))
    redis_client.xreadgroup(GROUP, "peer", {STREAM: ">"}, count=1)
    redis_client.set(f"{STREAM}:ingester:peer", "now", ex=10)
    drain(make_ingester())
    assert list(models.Progress.objects.values_list("batch", flat=True)) == [2]
    assert pending(redis_client) == 1


def test_an_ingester_killed_between_commit_and_acknowledgement_loses_and_doubles_nothing(
    redis_client: redis.Redis, make_ingester: MakeIngester, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_ingester("first")
    first.step()  # makes its group
    send(redis_client, *(progress(number, number) for number in range(1, 6)))
    monkeypatch.setattr(first._client, "xack", _killed)
    with pytest.raises(KeyboardInterrupt):
        first.step()
    assert models.Progress.objects.count() == 5
    assert pending(redis_client) == 5
    redis_client.delete(f"{STREAM}:ingester:first")  # expires by itself after ten seconds
    drain(make_ingester("second"))
    assert models.Progress.objects.count() == 5
    assert pending(redis_client) == 0


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_database_that_refuses_for_a_while_costs_nothing(
    redis_client: redis.Redis, make_ingester: MakeIngester, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingester = make_ingester()
    ingester.step()  # makes its group
    send(redis_client, *(progress(number, number) for number in range(1, 6)))
    with monkeypatch.context() as broken:
        broken.setattr(ingest, "store", _locked)
        with pytest.raises(OperationalError):
            ingester.step()
    send(redis_client, progress(6, 6))
    drain(ingester)
    assert models.Progress.objects.count() == 6
    assert pending(redis_client) == 0


def _locked(*_: object) -> None:
    raise OperationalError("database is locked")


def test_a_redis_that_is_killed_and_comes_back_loses_nothing(
    valkey: ValkeyServer, redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    send(redis_client, progress(1, 1))
    ingester = make_ingester()
    drain(ingester)
    send(redis_client, progress(2, 2))
    valkey.kill()
    with pytest.raises(redis.RedisError):
        ingester.step()
    valkey.start()
    drain(ingester)
    assert models.Progress.objects.count() == 2


def test_after_a_loss_of_redis_data_the_group_begins_at_the_first_entry(
    valkey: ValkeyServer, redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    send(redis_client, progress(1, 1))
    ingester = make_ingester()
    drain(ingester)
    valkey.kill()
    valkey.wipe()
    valkey.start()
    send(redis_client, progress(2, 2), progress(3, 3))
    drain(ingester)
    assert sorted(models.Progress.objects.values_list("batch", flat=True)) == [1, 2, 3]


def test_what_cannot_be_read_is_dead_lettered_and_stops_nothing(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    redis_client.xadd(STREAM, {FIELD: b"not json"})
    redis_client.xadd(STREAM, {"other": "field"})
    send(
        redis_client,
        progress(1, 1),
        event(EventKind.IDLE, 2, at="yesterday"),
        event(EventKind.HEARTBEAT, 3, body={"mode": "odd"}),
        progress(4, 4),
    )
    drain(make_ingester())
    assert sorted(models.Progress.objects.values_list("batch", flat=True)) == [1, 4]
    reasons = sorted(models.DeadLetter.objects.values_list("reason", flat=True))
    assert len(reasons) == 4
    assert any("has no field" in reason for reason in reasons)
    assert any("yesterday" in reason for reason in reasons)
    # The two that had a number did arrive: there is no gap to look for.
    assert models.Received.objects.filter(kind="seq").values_list("first", "last").get() == (1, 4)
    assert pending(redis_client) == 0


def test_a_row_that_the_database_refuses_is_dead_lettered_alone(
    redis_client: redis.Redis, make_ingester: MakeIngester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A value that no check of ours would catch.
    monkeypatch.setattr(store, "sound_progress", lambda body, **_: body)
    monkeypatch.setattr(store, "count", lambda value: value)
    huge = progress(2, 2)
    huge.body["numInputRows"] = 2**63
    send(redis_client, progress(1, 1), huge, progress(3, 3))
    drain(make_ingester())
    assert sorted(models.Progress.objects.values_list("batch", flat=True)) == [1, 3]
    assert "numInputRows" in bytes(models.DeadLetter.objects.get().data).decode()


def test_events_that_may_change_a_decision_reconcile_their_driver_and_others_do_not(
    redis_client: redis.Redis, make_ingester: MakeIngester, nudged: list[int]
) -> None:
    ingester = make_ingester()
    send(redis_client, heartbeat(1), event(EventKind.STARTED, 2))
    drain(ingester)
    assert nudged == [1]
    send(redis_client, progress(3, 1))
    drain(ingester)
    assert nudged == [1, 1]
    send(redis_client, progress(4, 2), heartbeat(5))
    drain(ingester)
    assert nudged == [1, 1]
    exit_report = event(EventKind.DRIVER_EXIT, 0, query=None, run=None, body={"last_seq": 5})
    send(redis_client, exit_report)
    drain(ingester)
    assert nudged == [1, 1, 1]
    assert models.Event.objects.filter(kind="driver_exit", seq=0).count() == 1


def test_what_changed_is_published_for_open_pages(
    redis_client: redis.Redis, make_ingester: MakeIngester, settings: object
) -> None:
    from django.conf import settings as configured

    with redis_client.pubsub() as channel:  # type: ignore[no-untyped-call]
        channel.subscribe(configured.CHANGED_CHANNEL)
        channel.get_message(timeout=5)
        send(redis_client, progress(1, 1))
        drain(make_ingester())
        assert channel.get_message(timeout=5)["data"] == b"query:42"
        send(redis_client, event(EventKind.STATUS, 2, query=None, run=None))
        drain(make_ingester())
        assert channel.get_message(timeout=5)["data"] == b"driver:1"  # and no batch's before it


def test_a_batch_of_nobodys_is_kept_as_an_event(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    send(redis_client, progress(1, 1, query=None, run=None))
    drain(make_ingester())
    assert models.Progress.objects.count() == 0
    assert models.Event.objects.get().kind == "progress"


def test_a_stream_that_cannot_be_kept_short_keeps_the_others_from_nothing(
    make_ingester: MakeIngester, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[str] = []

    def keep(_: object, state: SimpleNamespace, *__: object) -> None:
        came.append(state.name)
        if state.name == "b":
            raise redis.ResponseError("WRONGTYPE")

    found = [SimpleNamespace(name=name) for name in "abc"]
    monkeypatch.setattr("listeners.streams.look", lambda *_: found)
    monkeypatch.setattr(ingest.Ingester, "_keep", keep)
    make_ingester().step()
    assert came == ["a", "b", "c"]
    assert [one.about for one in current(datetime.now(UTC))] == ["the stream b"]


def test_an_ingester_says_that_it_lives_and_takes_the_sign_back_when_it_leaves(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    ingester, stop = make_ingester("one"), threading.Event()
    key = f"{STREAM}:ingester:one"
    ingester.step()
    assert 0 < int(redis_client.ttl(key)) <= 10
    stop.set()
    ingester.run(stop)
    assert not redis_client.exists(key)


def test_an_event_whose_time_is_none_is_a_dead_letter_and_the_others_are_stored(
    redis_client: redis.Redis, make_ingester: MakeIngester
) -> None:
    """Its row can be stored; the query's latest line cannot be brought up to it."""
    send(redis_client, progress(1, 1), replace(progress(2, 2), at="soon"), progress(3, 3))
    ingester = make_ingester()
    ingester.step()  # makes the group
    while ingester.step():
        pass
    assert list(models.Progress.objects.order_by("batch").values_list("batch", flat=True)) == [1, 3]
    assert "soon" in models.DeadLetter.objects.get().reason
