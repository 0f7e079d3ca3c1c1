"""How much waits in Redis: tasks in Celery's queues, events that the ingester has not taken."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.conf import settings

from controlplane import redis_client
from controlplane.health import signs_of_life
from controlplane.health.processes import LOOK_LIMIT_S
from listeners import streams


@dataclass(frozen=True, slots=True)
class Queues:
    """What waits in Redis."""

    tasks: dict[str, int]  # by queue: that of any worker, and this host's
    events: int  # entries in all streams, those included that are taken and kept a while
    ingest_lag_s: float | None  # None: nobody has read the stream yet
    last_sweep: datetime | None


def look() -> Queues | None:
    """Return what waits, or None where Redis does not respond within a second."""
    try:
        with redis_client.client(settings.REDIS_URL, limit_s=LOOK_LIMIT_S) as client:
            sweep = signs_of_life.heard(client).get(signs_of_life.SWEEP)
            prefix = settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"]
            names = (settings.QUEUE, settings.HOST_QUEUE)
            tasks: dict[str, Any] = {name: client.llen(f"{prefix}{name}") for name in names}
            states = streams.look(client, streams.found(client, settings.EVENT_STREAM))
            events = sum(state.entries for state in states)
            return Queues(tasks, events, _ingest_lag_s(client, states), sweep.at if sweep else None)
    except redis.RedisError:
        return None


def _ingest_lag_s(client: redis.Redis, states: Sequence[streams.State]) -> float | None:
    """Return the time between the newest entry and the newest that was taken, by their ids.

    That of the stream which waits longest; None where nothing was taken of any.
    """
    now_ms = time.time() * 1000  # ids are Redis' clock; a driver may give its own any
    lags = []
    for state in states:
        if taken := _at_ms(state.delivered or b"0"):
            stream: Any = client.xinfo_stream(state.name)
            newest = min(_at_ms(stream["last-generated-id"]), now_ms)
            lags.append(max(0.0, newest - taken) / 1000)
    return max(lags, default=None)


def _at_ms(entry: bytes) -> int:
    """Return when an entry was written: its id begins with the time in milliseconds."""
    return int(entry.split(b"-")[0])
