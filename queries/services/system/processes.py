"""Check Redis, and the processes whose heartbeats are stored there."""

from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from django.conf import settings

from controlplane import redis_client, signs_of_life
from controlplane.signs_of_life import Sign
from controlplane.ticks import LATE_INTERVALS, LateTick, TickReport, late_ticks
from queries.domain.hosts import SILENT_AFTER
from queries.domain.system import Part, clock, first_line, ok, problem, unknown
from queries.services.system.checks import checked
from queries.services.system.parser_life import PARSER, parser_part

#: The watcher checks every 10 s, and may wait for channels in between.
WATCHER_SILENT_AFTER = timedelta(minutes=3)
SWEEP = "sweep"  # the tick without which nothing is supervised


def redis_and_processes(now: datetime) -> tuple[Part, ...]:
    """Check Redis and the parts with heartbeats there, including Spark's parser, in one request."""
    try:
        with redis_client.client(settings.REDIS_URL, limit_s=redis_client.LOOK_LIMIT_S) as client:
            info: Any = client.info()
            signs = signs_of_life.heartbeats(client)
            reports = signs_of_life.reports(client)
            consumers = _consumers(client)
            parser = checked(PARSER, lambda: parser_part(client, now))
    except redis.RedisError as error:
        why = "Redis is not responding"
        return (
            problem("redis", f"{why}: {first_line(error)}"),
            *(unknown(name, why) for name in ("worker", "ticks", "ingester", "watcher", PARSER)),
        )
    return (
        *checked("redis", lambda: redis_part(info)),
        *checked("worker", lambda: worker_part(signs, reports, now)),
        *checked("ticks", lambda: ticks_part(reports, now)),
        *checked("ingester", lambda: ingester_part(signs, consumers, now)),
        *checked("watcher", lambda: watcher_part(signs, now)),
        *parser,
    )


def redis_part(info: dict[str, Any]) -> Part:
    """Check a Redis by its own INFO: it must not evict keys, and must be able to write."""
    version = info.get("valkey_version") or info.get("redis_version", "?")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        return problem(
            "redis",
            f"Its maxmemory-policy is {policy}, which can discard events. "
            "Set maxmemory-policy to noeviction.",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return problem("redis", "It cannot write its append-only file. Is its disk full?")
    return ok("redis", f"Redis {version} responds.")


def worker_part(signs: dict[str, Sign], reports: list[TickReport], now: datetime) -> Part:
    """Check the workers: at least one must run, and sweep on time."""
    worker = signs.get(signs_of_life.WORKER)
    if worker is None:
        return problem("worker", "No worker has sent a heartbeat.")
    if _silent(worker, now):
        return problem("worker", f"No worker heartbeat since {clock(worker.at)}.", worker.at)
    live_hosts = {report.host for report in reports if now - report.at <= SILENT_AFTER}
    if not live_hosts:
        return problem("worker", "A worker is running, but its timers do not report.")
    late = {
        late_tick.host: late_tick
        for late_tick in _late(reports, now)
        if late_tick.tick.name == SWEEP
    }
    if on_time := sorted(live_hosts - late.keys()):
        return ok("worker", f"Sweeps run on {', '.join(on_time)}.")
    first = min(late.values(), key=lambda late_tick: late_tick.since)
    return problem("worker", _sentence(first), first.since)


def ticks_part(reports: list[TickReport], now: datetime) -> Part:
    """Check that no tick of the workers is late; which workers run is another part's."""
    late = sorted(_late(reports, now), key=lambda late_tick: late_tick.since)
    if not late:
        return ok("ticks", "The periodic work of every worker is on time.")
    return problem("ticks", " ".join(map(_sentence, late)), late[0].since)


def _late(reports: list[TickReport], now: datetime) -> list[LateTick]:
    return late_ticks(reports, now=now, silent_after=SILENT_AFTER)


def _sentence(late: LateTick) -> str:
    name = late.tick.name.replace("_", " ").capitalize()
    where = f" on {late.host}" if late.host else ""
    if late.is_running:
        return f"“{name}”{where} has been running since {clock(late.since)} and has not ended."
    return (
        f"“{name}”{where} was due at {clock(late.since)} and has not begun: it is late by more "
        f"than {LATE_INTERVALS} intervals of {late.tick.every_s:g} s."
    )


def ingester_part(signs: dict[str, Sign], consumers: list[datetime], now: datetime) -> Part:
    """Check the ingester by its last read of the event stream or by its own heartbeat."""
    times = [sign.at for name, sign in signs.items() if name == signs_of_life.INGESTER] + consumers
    if not times:
        return problem("ingester", "No ingester is reading events.")
    newest = max(times)
    if now - newest > SILENT_AFTER:
        return problem("ingester", f"No ingester has read events since {clock(newest)}.", newest)
    return ok("ingester", "Events are being read.")


def watcher_part(signs: dict[str, Sign], now: datetime) -> Part:
    """Check the watcher: it is optional, but if it ran before, its loss must be noticed."""
    sign = signs.get(signs_of_life.WATCHER)
    if sign is None:
        return ok(
            "watcher",
            "Not running. `manage.py watch` sends notifications when no worker can do so.",
        )
    if now - sign.at > WATCHER_SILENT_AFTER:
        return problem("watcher", f"No watcher has run since {clock(sign.at)}.", sign.at)
    return ok("watcher", f"The watcher runs on {sign.host}.")


def _consumers(client: redis.Redis) -> list[datetime]:
    """Return when each consumer of the event stream last requested entries."""
    reads = []
    at = datetime.now(UTC)
    try:
        groups: Any = client.xinfo_groups(settings.EVENT_STREAM)
        for group in groups:
            consumers: Any = client.xinfo_consumers(settings.EVENT_STREAM, group["name"])
            reads += [at - timedelta(milliseconds=int(entry["idle"])) for entry in consumers]
    except redis.ResponseError:  # no such stream: nobody has read it yet
        return []
    return reads


def _silent(sign: Sign, now: datetime) -> bool:
    return now - sign.at > SILENT_AFTER
