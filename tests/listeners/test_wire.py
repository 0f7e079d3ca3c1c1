"""The form that driver and ingester share: what goes in comes out, what is odd is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_ground.wire import (
    MOST_BYTES,
    DriverTrouble,
    EventKind,
    HeartbeatBody,
    ListenerTimes,
    QueryPulse,
    QueueCounters,
    WireEvent,
    is_sealed,
    sealed,
)

_numbers = st.integers(min_value=0, max_value=2**63 - 1)
_texts = st.text(max_size=40)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_events = st.builds(
    WireEvent,
    driver=_numbers,
    epoch=_numbers,
    seq=_numbers,
    at=_texts,
    kind=st.sampled_from(EventKind),
    query=st.none() | _numbers,
    run=st.none() | _numbers,
    spark_run_id=st.none() | _texts,
    batch=st.none() | _numbers,
    repaired=st.booleans(),
    body=st.dictionaries(_texts, _json, max_size=4),
)

_SOUND: dict[str, Any] = json.loads(
    WireEvent(driver=1, epoch=2, seq=3, at="2026-03-01T12:00:00Z", kind=EventKind.IDLE).encode()
)


@given(_events)
def test_every_event_survives_the_way(event: WireEvent) -> None:
    assert WireEvent.decode(event.encode()) == event


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"v": 2}, "event version 2 is not 1"),
        ({"kind": "gossip"}, "'gossip' is not a valid EventKind"),
        ({"more": 1}, "not an event"),
        ({"driver": "1"}, "driver is not a whole number"),
        ({"epoch": True}, "epoch is not a whole number"),
        ({"seq": -1}, "seq is not a whole number"),
        ({"seq": 2**63}, "seq is not a whole number"),
        ({"query": "42"}, "query is neither a whole number nor null"),
        ({"run": 1.5}, "run is neither a whole number nor null"),
        ({"batch": []}, "batch is neither a whole number nor null"),
        ({"at": 5}, "at is not text"),
        ({"spark_run_id": 5}, "spark_run_id is neither text nor null"),
        ({"body": []}, "body is not a JSON object"),
    ],
)
def test_what_is_not_an_event_is_refused_with_the_reason(
    change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        WireEvent.decode(json.dumps({**_SOUND, **change}).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]", b"1", b"{}", b"0" * 64 + b"[]"])
def test_what_is_not_even_a_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has a reason of its own
        WireEvent.decode(data)


_BEAT = HeartbeatBody(
    mode="fallback",
    streams=QueueCounters(dropped=3, size=1, capacity=5, processing_p95_ms=2.5),
    ours=None,
    listeners=(ListenerTimes("mine:Slow", 4, 1, "ValueError: no", 3000.0, 3100.0, True),),
    last_seq=9,
    unsent=0,
    outbox_dropped=0,
    missing_batches=2,
    repaired=2,
    jvm_alive=True,
    queries=(QueryPulse(5, True, "2026-03-02T12:00:00+00:00"), QueryPulse(6, False)),
)


@pytest.mark.parametrize("beat", [_BEAT, replace(_BEAT, streams=None, listeners=())])
def test_a_heartbeat_survives_the_way(beat: HeartbeatBody) -> None:
    event = WireEvent(driver=1, epoch=2, seq=3, at="", kind=EventKind.HEARTBEAT, body=beat.body())
    assert HeartbeatBody.read(WireEvent.decode(event.encode()).body) == beat


def test_a_heartbeat_of_a_release_before_knows_nothing_of_jvm_and_queries() -> None:
    body = _BEAT.body()
    del body["jvm_alive"], body["queries"]
    beat = HeartbeatBody.read(body)
    assert (beat.jvm_alive, beat.queries) == (None, ())


@pytest.mark.parametrize(
    "body", [{}, {**_BEAT.body(), "mood": "good"}, {"streams": 5}, {"queries": [5]}]
)
def test_what_is_not_a_heartbeat_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a heartbeat"):
        HeartbeatBody.read(body)


def test_a_heartbeat_says_what_the_driver_passes_over() -> None:
    beat = replace(_BEAT, troubles=(DriverTrouble("status.json", "OSError: no space", 3),))
    assert HeartbeatBody.read(json.loads(json.dumps(beat.body()))) == beat
    before = {name: value for name, value in beat.body().items() if name != "troubles"}
    assert HeartbeatBody.read(before).troubles == ()
    with pytest.raises(ValueError, match="not a heartbeat"):
        HeartbeatBody.read({**before, "troubles": [{"about": "status.json"}]})


# --- seals --------------------------------------------------------------------------------
_keys = st.binary(min_size=32, max_size=32)


@given(_events, _keys)
def test_a_sealed_event_is_read_like_a_bare_one(event: WireEvent, key: bytes) -> None:
    entry = sealed(event.encode(), key)
    assert WireEvent.decode(entry) == event
    assert is_sealed(entry, key)


@given(_events, _keys, _keys)
def test_no_other_key_seals_it(event: WireEvent, key: bytes, other: bytes) -> None:
    entry = sealed(event.encode(), key)
    assert is_sealed(entry, other) is (key == other)


@given(_events, _keys, st.data())
def test_nothing_in_it_can_be_changed(event: WireEvent, key: bytes, data: st.DataObject) -> None:
    entry = sealed(event.encode(), key)
    place = data.draw(st.integers(0, len(entry) - 1))
    changed = bytes([entry[place] ^ 1])
    assert not is_sealed(entry[:place] + changed + entry[place + 1 :], key)
    assert not is_sealed(event.encode(), key)


# --- size ---------------------------------------------------------------------------------
def _large(**body: Any) -> WireEvent:
    return WireEvent(driver=1, epoch=2, seq=3, at="", kind=EventKind.PROGRESS, body=body)


def test_what_fits_is_not_cut() -> None:
    event = _large(batchId=5, exception="x" * 1000)
    assert event.cut() == event


@pytest.mark.guarantee("G-DRIVER-5")
def test_the_largest_parts_of_an_event_are_cut_and_named() -> None:
    event = _large(
        batchId=5,
        timestamp="2026-03-01T12:00:00Z",
        observedMetrics={"mine": "x" * 8_000_000},
        exception="y" * 2_000_000,
        sources=[{"numInputRows": 3}],
    ).cut()
    assert len(event.encode()) <= MOST_BYTES
    assert event.body == {
        "batchId": 5,
        "timestamp": "2026-03-01T12:00:00Z",
        "exception": "y" * 10_000,
        "sources": [{"numInputRows": 3}],
        "cut": ["exception", "observedMetrics"],
    }


def test_a_cut_ends_where_nothing_is_left_to_cut() -> None:
    event = replace(_large(one=[1, 2, 3]), at="z" * 500).cut(100)
    assert event.body == {"cut": ["one"]}
