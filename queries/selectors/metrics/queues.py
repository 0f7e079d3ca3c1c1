"""Read the backlogs in Redis: tasks in Celery's queues, and events not yet ingested."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis
from django.conf import settings

from controlplane import redis_client, signs_of_life
from controlplane.ticks import TickReport
from listeners import streams


@dataclass(frozen=True, slots=True)
class Queues:
    """The backlogs in Redis."""

    tasks: dict[str, int]  # by queue: any worker's, and this host's
    events: int  # entries in all streams, including ingested ones that are kept for a while
    ingest_lag_s: float | None  # None: nobody has read the stream yet
    reports: list[TickReport]  # of the workers' ticks


def look() -> Queues | None:
    """Return the backlogs, or None if Redis is not responding within a second."""
    try:
        with redis_client.client(settings.REDIS_URL, limit_s=redis_client.LOOK_LIMIT_S) as client:
            reports = signs_of_life.reports(client)
            prefix = settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"]
            names = (settings.QUEUE, settings.HOST_QUEUE)
            tasks: dict[str, Any] = {name: client.llen(f"{prefix}{name}") for name in names}
            states = streams.look(client, streams.names_of(client, settings.EVENT_STREAM))
            events = sum(state.entries for state in states)
            return Queues(tasks, events, _ingest_lag_s(client, states), reports)
    except redis.RedisError:
        return None


def _ingest_lag_s(client: redis.Redis, states: Sequence[streams.StreamState]) -> float | None:
    """Return the seconds between the newest entry and the newest ingested one, by their ids.

    This is the maximum over all streams; None if nothing has been ingested from any of them.
    """
    now_ms = time.time() * 1000  # ids use Redis' clock; a driver may set any
    lags = []
    for state in states:
        if delivered_ms := _at_ms(state.delivered or b"0"):
            stream: Any = client.xinfo_stream(state.name)
            newest = min(_at_ms(stream["last-generated-id"]), now_ms)
            lags.append(max(0.0, newest - delivered_ms) / 1000)
    return max(lags, default=None)


def _at_ms(entry: bytes) -> int:
    """Return when an entry was written, in milliseconds: its id starts with that time."""
    return int(entry.split(b"-")[0])
