"""Heartbeats of the system's own processes, stored in Redis with their time.

A process that works sends one every few seconds; readers judge by its age. All are in one hash,
so one round trip reads everything.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.conf import settings

WORKER = "worker"  # a worker process has its threads
SWEEP = "sweep"  # a worker has finished a sweep: everything from beat to the database works
BEAT = "beat"  # beat has put a sweep into the queue
INGESTER = "ingester"
WATCHER = "watcher"

#: A hash that nobody has written to for a day is removed. Seconds.
_FORGOTTEN_AFTER_S = 86400


@dataclass(frozen=True, slots=True)
class Sign:
    """The newest heartbeat under one name."""

    at: datetime
    host: str


def _key() -> str:
    return f"{settings.QUEUE}:alive"


def say(client: redis.Redis, name: str, *, now: datetime) -> None:
    """Record a heartbeat. Raises `redis.RedisError`; callers carry on without."""
    sign = json.dumps({"at": now.isoformat(), "host": settings.HEADGATE_HOST})
    pipeline = client.pipeline(transaction=False)
    pipeline.hset(_key(), name, sign)
    pipeline.expire(_key(), _FORGOTTEN_AFTER_S)
    pipeline.execute()


def heard(client: redis.Redis) -> dict[str, Sign]:
    """Return the newest heartbeat by name; entries that cannot be read are left out."""
    raw: Any = client.hgetall(_key())
    signs = {}
    for name, value in raw.items():
        try:
            entry = json.loads(value)
            signs[_text(name)] = Sign(datetime.fromisoformat(entry["at"]), str(entry["host"]))
        except (ValueError, KeyError, TypeError):
            continue
    return signs


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
