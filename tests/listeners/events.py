"""Events as drivers send them."""

from datetime import timedelta
from typing import Any

import redis

from headgate_ground.wire import FIELD, EventKind, HeartbeatBody, QueueCounters, WireEvent, sealed
from tests.listeners.rows import START

STREAM = "events"
KEY = b"the key of driver 1"


def progress(seq: int, batch: int, **columns: Any) -> WireEvent:
    """Return the event of one executed batch."""
    at = (START + timedelta(seconds=seq)).isoformat(timespec="milliseconds")
    body = {
        "runId": "spark-run",
        "timestamp": at,
        "batchId": batch,
        "batchDuration": 800,
        "numInputRows": 10,
        "inputRowsPerSecond": 10.5,
        "processedRowsPerSecond": 12.5,
        "durationMs": {"addBatch": 700},
        "eventTime": {"watermark": "2013-01-01T08:30:00.000Z"},
        "stateOperators": [{"numRowsTotal": 3}, {"numRowsTotal": 4}],
    }
    return event(
        EventKind.PROGRESS, seq, batch=batch, spark_run_id="spark-run", body=body, **columns
    )


def event(kind: EventKind, seq: int, **columns: Any) -> WireEvent:
    """Return an event of query 42, run 5, unless `columns` say otherwise."""
    at = (START + timedelta(seconds=seq)).isoformat(timespec="milliseconds")
    defaults = {"driver": 1, "epoch": 7, "at": at, "query": 42, "run": 5}
    return WireEvent(**{**defaults, "seq": seq, "kind": kind, **columns})


def heartbeat(seq: int, *, streams: int = 0, ours: int | None = 0, outbox: int = 0) -> WireEvent:
    """Return a heartbeat whose counters stand at these figures."""
    beat = HeartbeatBody(
        mode="private",
        streams=QueueCounters(streams, 0, 5, 1.0),
        ours=None if ours is None else QueueCounters(ours, 0, 10_000, 1.0),
        listeners=(),
        last_seq=seq - 1,
        unsent=0,
        outbox_dropped=outbox,
        missing_batches=0,
        repaired=0,
    )
    return event(EventKind.HEARTBEAT, seq, query=None, run=None, body=beat.body())


def send(client: redis.Redis, *events: WireEvent, key: bytes = KEY) -> None:
    """Put events into the stream, sealed."""
    for one in events:
        client.xadd(STREAM, {FIELD: sealed(one.encode(), key)})
