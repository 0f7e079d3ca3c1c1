"""Store heartbeats of the system's own processes in Redis, with their times.

A working process sends a heartbeat every few seconds; readers check its age. All heartbeats are
stored in one hash, so that one round trip reads them all.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.conf import settings

from controlplane.servers import connection
from controlplane.ticks import TickReport, TickRun

logger = logging.getLogger(__name__)

WORKER = "worker"  # a worker process has started its threads
INGESTER = "ingester"
WATCHER = "watcher"

#: Seconds between two reports of a worker's ticks.
REPORT_EVERY_S = 2.0
#: Seconds without a write after which the hash is deleted.
_FORGOTTEN_AFTER_S = 86400


@dataclass(frozen=True, slots=True)
class Sign:
    """The newest heartbeat under one name."""

    at: datetime
    host: str


def _key() -> str:
    return f"{settings.QUEUE}:alive"


def _ticks_key() -> str:
    return f"{settings.QUEUE}:ticks"


def record_heartbeat(client: redis.Redis, name: str, *, now: datetime) -> None:
    """Record a heartbeat; raise `redis.RedisError` on failure, which callers ignore."""
    sign = json.dumps({"at": now.isoformat(), "host": settings.HEADGATE_HOST})
    _write(client, _key(), name, sign)


def report(client: redis.Redis, ticks: TickReport) -> None:
    """Record the times of a worker's ticks, in place of its last report."""
    runs = {
        name: (run.started.isoformat(), run.ended.isoformat() if run.ended else None)
        for name, run in ticks.runs.items()
    }
    form = {"at": ticks.at.isoformat(), "begun": ticks.begun.isoformat(), "runs": runs}
    _write(client, _ticks_key(), ticks.host, json.dumps(form))


def _write(client: redis.Redis, key: str, name: str, text: str) -> None:
    pipeline = client.pipeline(transaction=False)
    pipeline.hset(key, name, text)
    pipeline.expire(key, _FORGOTTEN_AFTER_S)
    pipeline.execute()


def try_to_record_heartbeat(name: str, *, now: datetime) -> None:
    """Record a heartbeat through this process's client; a failure is only logged."""
    _try(name, lambda client: record_heartbeat(client, name, now=now))


def try_to_report(ticks: TickReport) -> None:
    """Record a worker's ticks through this process's client; a failure is only logged."""
    _try("ticks", lambda client: report(client, ticks))


def _try(name: str, send: Callable[[redis.Redis], None]) -> None:
    try:
        send(connection())
    except redis.RedisError as error:  # the missing heartbeat is itself the message
        logger.debug("heartbeat of %s not sent: %s", name, error)
    except Exception:  # loop boundary: the next heartbeat may succeed
        logger.exception("heartbeat of %s not sent", name)


def heartbeats(client: redis.Redis) -> dict[str, Sign]:
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


def reports(client: redis.Redis) -> list[TickReport]:
    """Return the newest report of each host's worker, old ones too; unreadable ones are omitted."""
    raw: Any = client.hgetall(_ticks_key())
    tick_reports = []
    for host, value in raw.items():
        try:
            form = json.loads(value)
            runs = {
                name: TickRun(_moment(started), _moment(ended) if ended else None)
                for name, (started, ended) in form["runs"].items()
            }
            at, begun = _moment(form["at"]), _moment(form["begun"])
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        tick_reports.append(TickReport(_text(host), at, begun, runs))
    return tick_reports


_moment = datetime.fromisoformat


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
