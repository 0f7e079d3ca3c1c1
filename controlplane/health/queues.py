"""How much waits in Redis: tasks in Celery's queues, events that the ingester has not taken."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.conf import settings

from controlplane import redis_client
from controlplane.health import signs_of_life
from controlplane.health.processes import LOOK_LIMIT_S


@dataclass(frozen=True, slots=True)
class Queues:
    """What waits in Redis."""

    tasks: dict[str, int]  # by queue: that of any worker, and this host's
    events: int  # entries in the stream, those included that are taken and kept a while
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
            events: Any = client.xlen(settings.EVENT_STREAM)
            return Queues(tasks, events, _ingest_lag_s(client), sweep.at if sweep else None)
    except redis.RedisError:
        return None


def _ingest_lag_s(client: redis.Redis) -> float | None:
    """Return the time between the newest entry and the newest that was taken, by their ids."""
    try:
        stream: Any = client.xinfo_stream(settings.EVENT_STREAM)
        groups: Any = client.xinfo_groups(settings.EVENT_STREAM)
    except redis.ResponseError:  # no such stream: no driver has written yet
        return None
    newest = _at_ms(stream["last-generated-id"])
    taken = max((_at_ms(group["last-delivered-id"]) for group in groups), default=0)
    return (newest - taken) / 1000 if taken else None


def _at_ms(entry: bytes) -> int:
    """Return when an entry was written: its id begins with the time in milliseconds."""
    return int(entry.split(b"-")[0])
