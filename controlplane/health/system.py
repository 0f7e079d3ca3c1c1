"""The system's own health: each part by name, with a sentence and since when.

Health checks and every page read it, so it is computed at most every `FRESH_FOR_S`, and each
check has a limit: a Redis that hangs must not hang the page that says so.
"""

import shutil
import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import redis
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Max

from controlplane import redis_client
from controlplane.health import signs_of_life
from controlplane.health.signs_of_life import Sign
from controlplane.machine import claims
from queries.domain.masking import mask_text

if TYPE_CHECKING:
    from listeners.loops.backlogs import Backlog
    from listeners.loops.troubles import Shown

FRESH_FOR_S = 1.5
LOOK_LIMIT_S = 1.0  # for each answer of Redis
#: A heartbeat older than this means that the process does not work. Beat sends a sweep every
#: 2 s, a worker a heartbeat every 2 s; seven of them may be late or lost.
SILENT_AFTER_S = 15
#: Drivers send a heartbeat every few seconds; older data is mentioned on the page.
DATA_LATE_AFTER_S = 30

SETUP = "setup"  # what people and scripts begin with

#: The parts that `/readyz` requires.
READY_PARTS = ("database", "redis", "worker", "beat", "ingester", SETUP)
#: What it names besides: with one of several hosts silent, the others can be worked with.
TOLD_PARTS = (*READY_PARTS, "hosts")


class State(StrEnum):
    """The state of a part."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"  # it cannot be checked, because another part is down


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the system."""

    name: str
    state: State
    sentence: str
    since: datetime | None  # since when there is a problem, as far as known

    @property
    def ok(self) -> bool:
        """Tell whether the part works."""
        return self.state == State.OK


@dataclass(frozen=True, slots=True)
class SystemHealth:
    """All parts as they were at `at`."""

    at: datetime
    parts: tuple[Part, ...]

    @property
    def ok(self) -> bool:
        """Tell whether every part works."""
        return all(part.ok for part in self.parts)

    @property
    def ready(self) -> bool:
        """Tell whether people and scripts can begin to define, start and watch queries."""
        return all(part.ok for part in self.parts if part.name in READY_PARTS)

    @property
    def problems(self) -> tuple[Part, ...]:
        """Return the parts that have a problem of their own, worst first as listed."""
        return tuple(part for part in self.parts if part.state == State.PROBLEM)


def system_health(now: datetime) -> SystemHealth:
    """Return the health of every part, at most `FRESH_FOR_S` old.

    While one thread checks, others get the last answer instead of waiting.
    """
    return _watch.read(now)


def forget() -> None:
    """Drop what was remembered; the next call checks again."""
    _watch.forget()


class _Watch:
    """Remember the last answer, and since when each part has had its problem."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: SystemHealth | None = None
        self._looked_at = 0.0  # monotonic
        self._since: dict[str, datetime] = {}

    def read(self, now: datetime) -> SystemHealth:
        last = self._last
        if last is not None and time.monotonic() - self._looked_at < FRESH_FOR_S:
            return last
        if last is not None and not self._lock.acquire(blocking=False):
            return last
        if last is None:
            self._lock.acquire()
        try:
            self._last = self._remember(SystemHealth(now, look(now)))
            self._looked_at = time.monotonic()
            return self._last
        finally:
            self._lock.release()

    def forget(self) -> None:
        with self._lock:
            self._last = None
            self._since.clear()

    def _remember(self, health: SystemHealth) -> SystemHealth:
        parts = []
        for part in health.parts:
            if part.ok:
                self._since.pop(part.name, None)
            else:
                since = self._since.setdefault(part.name, part.since or health.at)
                part = replace(part, since=since)
            parts.append(part)
        return SystemHealth(health.at, tuple(parts))


_watch = _Watch()


def look(now: datetime) -> tuple[Part, ...]:
    """Look at every part now."""
    database = _database()
    return (
        database,
        *_redis_and_processes(now),
        _hosts() if database.ok else _unknown("hosts", "the database does not respond"),
        _disk(),
        *(
            part(now) if database.ok else _unknown(name, "the database does not respond")
            for name, part in (("data", _data), ("backlog", _backlog), ("loops", _loops))
        ),
        _setup() if database.ok else _unknown(SETUP, "the database does not respond"),
    )


def _ok(name: str, sentence: str) -> Part:
    return Part(name, State.OK, sentence, None)


def _problem(name: str, sentence: str, since: datetime | None = None) -> Part:
    return Part(name, State.PROBLEM, sentence, since)


def _unknown(name: str, why: str) -> Part:
    return Part(name, State.UNKNOWN, f"Not known: {why}.", None)


def _database() -> Part:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError as error:
        return _problem("database", f"The database does not respond: {_first_line(error)}")
    return _ok("database", f"{connection.display_name} responds.")


def _setup() -> Part:
    """Judge whether people and scripts can begin: tables, roles, a user, the demo are there."""
    from queries.roles import Role

    try:
        if missing := _missing_migrations():
            what = "migration has" if missing == 1 else "migrations have"
            return _problem(SETUP, f"{missing} {what} not been applied. Run `manage.py migrate`.")
        groups = set(Group.objects.values_list("name", flat=True))
        if absent := [role for role in Role if role not in groups]:
            return _problem(
                SETUP, f"Roles are missing: {', '.join(absent)}. Run `manage.py migrate`."
            )
        if settings.HOME.preparing.exists() and claims.holder(settings.HOME) is not None:
            return _problem(SETUP, "`make run` is still creating the first admin and the demo.")
        if not get_user_model().objects.filter(is_active=True).exists():
            return _problem(
                SETUP, "There is no user yet. Create one with `manage.py createsuperuser`."
            )
    except DatabaseError as error:
        return _problem(SETUP, f"The database cannot be read: {_first_line(error)}")
    return _ok(SETUP, "Tables, roles and users are there.")


def _missing_migrations() -> int:
    """Return how many migrations the database lacks; once it is 0 it is not counted again."""
    global _migrated
    if _migrated:
        return 0
    executor = MigrationExecutor(connection)
    missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    _migrated = missing == 0
    return missing


_migrated = False


def _redis_and_processes(now: datetime) -> tuple[Part, ...]:
    try:
        with redis_client.client(settings.REDIS_URL, limit_s=LOOK_LIMIT_S) as client:
            info: Any = client.info()
            signs = signs_of_life.heard(client)
            consumers = _consumers(client)
    except redis.RedisError as error:
        why = "Redis does not respond"
        return (
            _problem("redis", f"{why}: {_first_line(error)}"),
            *(_unknown(name, why) for name in ("worker", "beat", "ingester")),
        )
    return (
        redis_part(info),
        worker_part(signs, now),
        beat_part(signs, now),
        ingester_part(signs, consumers, now),
    )


def redis_part(info: dict[str, Any]) -> Part:
    """Judge a Redis by its own INFO: it must evict nothing and be able to write."""
    version = info.get("valkey_version") or info.get("redis_version", "?")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        return _problem(
            "redis",
            f"Its maxmemory-policy is {policy}, which can discard events. "
            "Set maxmemory-policy to noeviction.",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return _problem("redis", "It cannot write its append-only file. Is its disk full?")
    return _ok("redis", f"Redis {version} responds.")


def worker_part(signs: dict[str, Sign], now: datetime) -> Part:
    """Judge the workers: one must run, and sweeps must finish."""
    worker, sweep = signs.get(signs_of_life.WORKER), signs.get(signs_of_life.SWEEP)
    if worker is None:
        return _problem("worker", "No worker has sent a heartbeat.")
    if _silent(worker, now):
        return _problem("worker", f"No worker heartbeat since {_clock(worker.at)}.", worker.at)
    beat = signs.get(signs_of_life.BEAT)
    if beat is None or _silent(beat, now):
        return _ok("worker", "A worker is running, but beat sends it no sweeps.")
    if sweep is None:
        return _problem("worker", "A worker is running, but has not finished a sweep yet.")
    if _silent(sweep, now):
        return _problem("worker", f"No sweep has been finished since {_clock(sweep.at)}.", sweep.at)
    return _ok("worker", f"Sweeps are done on {sweep.host}.")


def beat_part(signs: dict[str, Sign], now: datetime) -> Part:
    """Judge beat by the last sweep that it put into the queue."""
    beat = signs.get(signs_of_life.BEAT)
    if beat is None:
        return _problem("beat", "Beat has sent no heartbeat.")
    if _silent(beat, now):
        return _problem("beat", f"Beat has sent no sweep since {_clock(beat.at)}.", beat.at)
    return _ok("beat", "Beat sends sweeps.")


def ingester_part(signs: dict[str, Sign], consumers: list[datetime], now: datetime) -> Part:
    """Judge the ingester by its last read of the event stream, or by its own heartbeat."""
    seen = [sign.at for name, sign in signs.items() if name == signs_of_life.INGESTER] + consumers
    if not seen:
        return _problem("ingester", "No ingester reads the events.")
    newest = max(seen)
    if (now - newest).total_seconds() > SILENT_AFTER_S:
        return _problem("ingester", f"No ingester has read since {_clock(newest)}.", newest)
    return _ok("ingester", "Events are read.")


def _consumers(client: redis.Redis) -> list[datetime]:
    """Return when each consumer of the event stream last asked for entries."""
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


def _hosts() -> Part:
    from queries.selectors.hosts import silent_hosts

    try:
        heard, silent = silent_hosts()
    except DatabaseError as error:
        return _problem("hosts", f"The hosts cannot be read: {_first_line(error)}")
    if not silent:
        return _ok("hosts", f"Signs of life from {', '.join(heard)}." if heard else "None yet.")
    if not heard:  # of the part "worker" it is said already
        return _unknown("hosts", "no worker gives signs of life")
    said = [
        f"Host {one.name} has given no sign of life"
        f"{f' since {_clock(one.seen_at)}' if one.seen_at else ''}; "
        f"{_count(one.drivers, 'driver')} and {_count(one.queries, 'query', 'queries')} "
        "that should run are there."
        for one in silent
    ]
    known = [one.seen_at for one in silent if one.seen_at]
    return _problem("hosts", " ".join(said), min(known, default=None))


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _disk() -> Part:
    try:
        free_mb = shutil.disk_usage(settings.HEADGATE_HOME).free // 1_000_000
    except OSError as error:
        return _problem("disk", f"The data folder cannot be read: {error.strerror}.")
    if free_mb < settings.DISK_WARNING_MB:
        return _problem(
            "disk", f"{free_mb:,} MB are free where the data is stored. Free disk space."
        )
    return _ok("disk", f"{free_mb:,} MB are free where the data is stored.")


def _data(now: datetime) -> Part:
    from listeners.models import Heartbeat
    from queries.domain.states import DriverKind, DriverState
    from queries.models.drivers import Driver

    late = now - timedelta(seconds=DATA_LATE_AFTER_S)
    try:
        live = Driver.objects.filter(  # probe drivers report to nobody
            kind=DriverKind.SERVICE, state=DriverState.LIVE, state_since__lt=late
        )
        ids = list(live.values_list("pk", flat=True))
        heartbeats = Heartbeat.objects.filter(driver__in=ids)
        newest: datetime | None = heartbeats.aggregate(at=Max("received_at"))["at"] if ids else None
    except DatabaseError as error:
        return _problem("data", f"The data's age cannot be read: {_first_line(error)}")
    if not ids:
        return _ok("data", "No driver has been live long enough; nothing is expected.")
    if newest is None:
        return _problem("data", "Drivers are live, but none has reported.")
    age = int((now - newest).total_seconds())
    if newest < late:
        return _problem("data", f"The newest report of a driver is {age} s old.", newest)
    return _ok("data", f"The newest report of a driver is {max(age, 0)} s old.")


def _backlog(now: datetime) -> Part:
    from listeners.loops.backlogs import backlogs

    try:
        found = backlogs()
    except DatabaseError as error:
        return _problem("backlog", f"The backlog cannot be read: {_first_line(error)}")
    return backlog_part(found, now)


def backlog_part(found: "list[Backlog]", now: datetime) -> Part:
    """Judge how far the bulk work is behind: how many rows, and the age of the oldest."""
    behind = [one for one in found if one.rows and one.since is not None]
    told = "; ".join(_behind(one, now) for one in behind)
    late = [one for one in behind if one.since is not None and now - one.since > one.late_after]
    stuck = [one for one in found if one.ran_at and now - one.ran_at > one.silent_after]
    if late:
        since = min(one.since for one in late if one.since is not None)
        return _problem("backlog", f"{_capital(told)}. It is worked off in slices.", since)
    if stuck:
        oldest = min(one.ran_at for one in stuck if one.ran_at is not None)
        names = ", ".join(one.title for one in stuck)
        return _problem("backlog", f"No run of {names} has ended since {_clock(oldest)}.", oldest)
    return _ok("backlog", f"{_capital(told)}." if told else "No bulk work is behind.")


def _behind(one: "Backlog", now: datetime) -> str:
    plural = "batches" if one.unit == "batch" else f"{one.unit}s"
    noun = one.unit if one.rows == 1 else plural
    assert one.since is not None, "only such are told"
    return f"{one.title}: {one.rows:,} {noun} behind, the oldest {_span(now - one.since)}"


def _loops(now: datetime) -> Part:
    from listeners.loops.troubles import current, of_drivers

    try:
        found = [*current(now), *of_drivers(now)]
    except DatabaseError as error:
        return _problem("loops", f"What is passed over cannot be read: {_first_line(error)}")
    return loops_part(found)


def loops_part(found: "list[Shown]") -> Part:
    """Judge what loops pass over: an element that is not served while the others are."""
    if not found:
        return _ok("loops", "Nothing is passed over.")
    first = min(found, key=lambda one: one.since)
    more = f" And {len(found) - 1:,} more." if len(found) > 1 else ""
    times = "once" if first.times == 1 else f"{first.times:,} times"
    return _problem(
        "loops",
        f"{_capital(first.loop)}: {first.about} {'is set aside' if first.set_aside else 'fails'}, "
        f"{times} since {_clock(first.since)}: {mask_text(first.cause)}.{more} "
        "Everything else is served.",
        first.since,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _span(passed: timedelta) -> str:
    """Return a length of time with its unit, rounded down: "45 s", "14 min", "3 h", "2 days"."""
    seconds = max(0, int(passed.total_seconds()))
    for most, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds // unit:,} {name}"
    return f"{seconds // 86_400:,} days"


def _silent(sign: Sign, now: datetime) -> bool:
    return (now - sign.at).total_seconds() > SILENT_AFTER_S


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"


def _first_line(error: Exception) -> str:
    lines = mask_text(str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__
