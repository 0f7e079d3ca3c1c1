"""Check the health of the system itself: each part by name, with a sentence and a start time.

Health checks and every page read the result, so it is computed at most once every `FRESH_FOR_S`
seconds. Each check has a time limit: a hanging Redis must not block the page that reports it.
"""

import shutil
import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Max

from headgate_server import places
from queries.domain.readings import counted
from queries.domain.system import (
    SETUP,
    Part,
    SystemHealth,
    clock,
    first_line,
    ok,
    problem,
    unknown,
)
from queries.launchers.recorded_isolation import recorded_isolation
from queries.selectors.hosts import home_disk
from queries.services.access import accounts
from queries.services.access.audit import PROXIES, proxies_part
from queries.services.system.parts import (
    ALLOWED_PATHS,
    DATA_DISKS,
    SPARK_UI,
    Check,
    allowed_paths_part,
    backlog,
    checked,
    data_disks,
    loops,
    redis_and_processes,
    spark_ui_part,
)
from queries.services.system.writes import writes

FRESH_FOR_S = 1.5
ROOT_WORKER = "root worker"
#: Drivers send a heartbeat every few seconds; the page mentions data older than this.
DATA_LATE_AFTER_S = 30


def system_health(now: datetime) -> SystemHealth:
    """Return the health of every part, at most `FRESH_FOR_S` seconds old.

    While one thread checks, other threads get the last result instead of waiting.
    """
    return _watch.read(now)


def forget() -> None:
    """Clear the cache; the next call checks again."""
    _watch.forget()


class _Watch:
    """A cache of the last result, and of when each part's problem began."""

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
    """Check every part now."""
    parts: list[Part] = []
    for name, asks_database, look_at in checks(now):
        if asks_database and not parts[0].ok:
            parts.append(unknown(name, "the database is not responding"))
        else:
            parts += checked(name, look_at)
    return tuple(parts)


def checks(now: datetime) -> tuple[tuple[str, bool, Check], ...]:
    """Return every check: its name, whether it uses the database, and the function."""
    return (
        ("database", False, _database),
        ("redis", False, lambda: redis_and_processes(now)),
        ("hosts", True, _hosts),
        ("disk", False, _disk),
        ("isolation", False, _isolation),
        (ROOT_WORKER, True, _root_worker),
        (PROXIES, False, lambda: proxies_part(now)),
        ("data", True, lambda: _data(now)),
        ("backlog", True, lambda: backlog(now)),
        ("loops", True, lambda: loops(now)),
        (ALLOWED_PATHS, True, allowed_paths_part),
        (DATA_DISKS, True, data_disks),
        (SPARK_UI, False, lambda: spark_ui_part(now=now)),
        (SETUP, True, _setup),
    )


def _database() -> Part:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError as error:
        return problem("database", f"The database is not responding: {first_line(error)}")
    if connection.vendor == "sqlite" and (why := writes.problem_with_writes()):
        return problem("database", why)
    return ok("database", f"{connection.display_name} responds.")


def _setup() -> Part:
    """Check whether the setup is complete: tables, roles, a user, the demo."""
    from queries.roles import Role

    try:
        if missing := _missing_migrations():
            what = counted(missing, "migration has,migrations have")
            return _not_set_up(f"{what} not been applied. Run `manage.py migrate`.")
        groups = set(Group.objects.values_list("name", flat=True))
        if absent := [role for role in Role if role not in groups]:
            return _not_set_up(f"Roles are missing: {', '.join(absent)}. Run `manage.py migrate`.")
        if settings.HOME.preparing.exists() and settings.HOME.holder() is not None:
            return _not_set_up("`make run` is still creating the first admin and the demo.")
        if not get_user_model().objects.filter(is_active=True).exists():
            return _not_set_up(
                "There are no users yet. Create one with `manage.py createsuperuser`."
            )
    except DatabaseError as error:
        return problem(SETUP, f"The database cannot be read: {first_line(error)}")
    return ok(SETUP, "Tables, roles and users exist.")


def _not_set_up(sentence: str) -> Part:
    return problem(SETUP, places.with_local_commands(sentence))


def _missing_migrations() -> int:
    """Return how many migrations are missing; once there are none, do not count again."""
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
        live_hosts, silent = silent_hosts()
    except DatabaseError as error:
        return problem("hosts", f"The hosts cannot be read: {first_line(error)}")
    if not silent:
        return ok(
            "hosts", f"Heartbeats from {', '.join(live_hosts)}." if live_hosts else "None yet."
        )
    if not live_hosts:  # the part "worker" already reports that
        return unknown("hosts", "no worker sends heartbeats")
    sentences = [
        f"Host {host.name} has sent no "
        f"heartbeat{f' since {clock(host.seen_at)}' if host.seen_at else ''}; "
        f"{counted(host.drivers, 'driver')} and {counted(host.queries, 'query,queries')} that "
        "should run are on it."
        for host in silent
    ]
    last_heartbeats = [host.seen_at for host in silent if host.seen_at]
    return problem("hosts", " ".join(sentences), min(last_heartbeats, default=None))


def _root_worker() -> Part:
    """Check that no other user brings SQL or code into the drivers of a risky worker."""
    if not (why := accounts.risk()):
        accepted = f"{accounts.SETTING}=1." if settings.ROOT_WORKER else "The worker is not root."
        return ok(ROOT_WORKER, accepted)
    try:
        shared = accounts.shared_with()
    except DatabaseError as error:
        return problem(ROOT_WORKER, f"The accounts cannot be read: {first_line(error)}")
    if not shared:
        return ok(
            ROOT_WORKER, f"The worker {why}; it serves one team, and only admins are authors."
        )
    return problem(
        ROOT_WORKER,
        f"The worker {why}, and {shared} Their SQL and code run with its account. "
        f"{accounts.WAY_OUT}",
    )


def _isolation() -> Part:
    choice = recorded_isolation()
    if choice is None:
        return ok("isolation", "The isolation of drivers is tested when the worker starts.")
    return (problem if choice.refused else ok)("isolation", choice.told)


def _disk() -> Part:
    try:
        free_mb = shutil.disk_usage(settings.HEADGATE_HOME).free // 1_000_000
    except OSError as error:
        return problem("disk", f"The data folder cannot be read: {error.strerror}.")
    if free_mb < settings.DISK_WARNING_MB:
        disk = home_disk()
        return problem(
            "disk",
            f"Only {free_mb:,} MB are free where the data is stored, "
            f"{settings.DISK_WARNING_MB - free_mb:,} MB less than HEADGATE_DISK_WARNING_MB: "
            f"{settings.HEADGATE_HOME}{f', file system {disk.mount}' if disk else ''}. "
            "Free up space there.",
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
        return problem("data", f"The age of the data cannot be read: {first_line(error)}")
    if not ids:
        return ok("data", "No driver has been live long enough to expect a report.")
    if newest is None:
        return problem("data", "Drivers are live, but none has reported.")
    age = int((now - newest).total_seconds())
    if newest < late:
        return problem("data", f"The newest report of a driver is {age} s old.", newest)
    return ok("data", f"The newest report of a driver is {max(age, 0)} s old.")
