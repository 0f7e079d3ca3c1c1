"""Store heartbeats of the system's own processes in Redis, with their times.

A working process sends a heartbeat every few seconds; readers check its age. All heartbeats are
stored in one hash, so that one round trip reads them all.
"""

import json
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.conf import settings

from controlplane.redis_client import connection

logger = logging.getLogger(__name__)

WORKER = "worker"  # a worker process has started its threads
SWEEP = "sweep"  # a worker finished a sweep: all from beat to database works
BEAT = "beat"  # beat has queued a sweep
INGESTER = "ingester"
WATCHER = "watcher"

#: Seconds without a write after which the hash is deleted.
_FORGOTTEN_AFTER_S = 86400


@dataclass(frozen=True, slots=True)
class Sign:
    """The newest heartbeat under one name."""

    at: datetime
    host: str


def _key() -> str:
    return f"{settings.QUEUE}:alive"


def say(client: redis.Redis, name: str, *, now: datetime) -> None:
    """Record a heartbeat; raise `redis.RedisError` on failure, which callers ignore."""
    sign = json.dumps({"at": now.isoformat(), "host": settings.HEADGATE_HOST})
    pipeline = client.pipeline(transaction=False)
    pipeline.hset(_key(), name, sign)
    pipeline.expire(_key(), _FORGOTTEN_AFTER_S)
    pipeline.execute()


def try_to_say(name: str, *, now: datetime) -> None:
    """Record a heartbeat through this process's client; a failure is only logged."""
    try:
        say(connection(), name, now=now)
    except redis.RedisError as error:  # the missing heartbeat is itself the message
        logger.debug("heartbeat of %s not sent: %s", name, error)
    except Exception:  # loop boundary: the next heartbeat may succeed
        logger.exception("heartbeat of %s not sent", name)


def heard(client: redis.Redis) -> dict[str, Sign]:
    """Return the newest heartbeat by name; unreadable entries are omitted."""
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
