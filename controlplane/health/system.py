"""The system's own health: each part by name, with a sentence and since when.

Health checks and every page read it, so it is computed at most every `FRESH_FOR_S`, and each
check has a limit: a Redis that hangs must not hang the page that says so.
"""

import shutil
import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Max

from controlplane.health.parts import Part, State, clock, first_line, ok, problem, unknown
from controlplane.health.processes import redis_and_processes
from controlplane.health.work import backlog, loops
from controlplane.machine import claims

FRESH_FOR_S = 1.5
#: Drivers send a heartbeat every few seconds; older data is mentioned on the page.
DATA_LATE_AFTER_S = 30

SETUP = "setup"  # what people and scripts begin with

#: The parts that `/readyz` requires.
READY_PARTS = ("database", "redis", "worker", "beat", "ingester", SETUP)
#: What it names besides: with one of several hosts silent, the others can be worked with.
TOLD_PARTS = (*READY_PARTS, "hosts")


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
        *redis_and_processes(now),
        _hosts() if database.ok else unknown("hosts", "the database does not respond"),
        _disk(),
        _walls(),
        *(
            part(now) if database.ok else unknown(name, "the database does not respond")
            for name, part in (("data", _data), ("backlog", backlog), ("loops", loops))
        ),
        _setup() if database.ok else unknown(SETUP, "the database does not respond"),
    )


def _database() -> Part:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError as error:
        return problem("database", f"The database does not respond: {first_line(error)}")
    return ok("database", f"{connection.display_name} responds.")


def _setup() -> Part:
    """Judge whether people and scripts can begin: tables, roles, a user, the demo are there."""
    from queries.roles import Role

    try:
        if missing := _missing_migrations():
            what = "migration has" if missing == 1 else "migrations have"
            return problem(SETUP, f"{missing} {what} not been applied. Run `manage.py migrate`.")
        groups = set(Group.objects.values_list("name", flat=True))
        if absent := [role for role in Role if role not in groups]:
            return problem(
                SETUP, f"Roles are missing: {', '.join(absent)}. Run `manage.py migrate`."
            )
        if settings.HOME.preparing.exists() and claims.holder(settings.HOME) is not None:
            return problem(SETUP, "`make run` is still creating the first admin and the demo.")
        if not get_user_model().objects.filter(is_active=True).exists():
            return problem(
                SETUP, "There is no user yet. Create one with `manage.py createsuperuser`."
            )
    except DatabaseError as error:
        return problem(SETUP, f"The database cannot be read: {first_line(error)}")
    return ok(SETUP, "Tables, roles and users are there.")


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


def _hosts() -> Part:
    from queries.selectors.hosts import silent_hosts

    try:
        heard, silent = silent_hosts()
    except DatabaseError as error:
        return problem("hosts", f"The hosts cannot be read: {first_line(error)}")
    if not silent:
        return ok("hosts", f"Signs of life from {', '.join(heard)}." if heard else "None yet.")
    if not heard:  # of the part "worker" it is said already
        return unknown("hosts", "no worker gives signs of life")
    said = [
        f"Host {one.name} has given no sign of life"
        f"{f' since {clock(one.seen_at)}' if one.seen_at else ''}; "
        f"{_count(one.drivers, 'driver')} and {_count(one.queries, 'query', 'queries')} "
        "that should run are there."
        for one in silent
    ]
    known = [one.seen_at for one in silent if one.seen_at]
    return problem("hosts", " ".join(said), min(known, default=None))


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _walls() -> Part:
    from queries.launchers.process.walls.proven import known

    choice = known()
    if choice is None:
        return ok("walls", "The walls of drivers are tried when the worker starts.")
    return (problem if choice.refused else ok)("walls", choice.told)


def _disk() -> Part:
    try:
        free_mb = shutil.disk_usage(settings.HEADGATE_HOME).free // 1_000_000
    except OSError as error:
        return problem("disk", f"The data folder cannot be read: {error.strerror}.")
    if free_mb < settings.DISK_WARNING_MB:
        return problem(
            "disk", f"{free_mb:,} MB are free where the data is stored. Free disk space."
        )
    return ok("disk", f"{free_mb:,} MB are free where the data is stored.")


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
        return problem("data", f"The data's age cannot be read: {first_line(error)}")
    if not ids:
        return ok("data", "No driver has been live long enough; nothing is expected.")
    if newest is None:
        return problem("data", "Drivers are live, but none has reported.")
    age = int((now - newest).total_seconds())
    if newest < late:
        return problem("data", f"The newest report of a driver is {age} s old.", newest)
    return ok("data", f"The newest report of a driver is {max(age, 0)} s old.")
