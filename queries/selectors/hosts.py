"""Hosts: their applications, heartbeats and disk space."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Case, Q, QuerySet, Value, When
from django.db.models.functions import Now

from headgate_server import places
from queries.checkpoints.logs import CheckpointLogs, NotLocal
from queries.code_roots import digest_of, files_of
from queries.domain.checkpoints.ownership import local_path
from queries.domain.hosts import SILENT_AFTER
from queries.domain.readings import Dated
from queries.domain.states import OPEN_DRIVER_STATES, STOPPED_PHASES, Desired, DriverKind, Phase
from queries.models.applications import Application, Script
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Host
from queries.models.history import Operation
from queries.storage.remote_checkpoint import Mirror, MirrorState

#: The code that runs inside a driver, and the formats it exchanges with the control plane.
PARTS = (
    *("queries/runtime", "queries/domain", "listeners/spark", "headgate_ground"),
    "headgate_async",
)


@cache
def release() -> str:
    """Return the digest of this release's driver code, as of the start of this process."""
    roots = tuple(str(places.ROOT / part) for part in PARTS)
    return digest_of(list(files_of(roots)))


#: How long a worker that is asked to read a checkpoint may take to say anything: it writes at once
#: that a storage JVM must start.
UNANSWERED_AFTER = timedelta(seconds=30)
#: A page that waits for a mirror has it read every 10 s, so an older problem may be over.
PROBLEM_FRESH = timedelta(seconds=30)


def on_this_host(prefix: str = "") -> Q:
    """Return the condition that an application is placed on this host, or not placed yet.

    `prefix` is the lookup path to the application: "query__application__".
    """
    return Q(**{f"{prefix}host__in": ("", settings.HEADGATE_HOST)})


def at_work() -> QuerySet[Application]:
    """Return the applications on this host, or without a host, that may have something to do.

    They have a driver here, or a query that should run or has not come to rest. Thousands of other
    applications may be idle.
    """
    drivers = Driver.objects.filter(host=settings.HEADGATE_HOST, state__in=OPEN_DRIVER_STATES)
    living = Query.objects.filter(archived_at=None).order_by()
    subqueries = [
        drivers.order_by().values("application"),
        living.filter(desired=Desired.RUNNING).values("application"),
        living.filter(phase__in=sorted(set(Phase) - STOPPED_PHASES)).values("application"),
        Script.objects.filter(desired=Desired.RUNNING).order_by().values("application"),
    ]
    busy = reduce(or_, (Q(pk__in=application_ids) for application_ids in subqueries))
    return Application.objects.filter(on_this_host(), busy, archived_at=None)


def looked_after(prefix: str = "") -> Q:
    """Return the condition that this host monitors an application's sources.

    This host monitors the sources of applications placed on it; the first live host also monitors
    those of applications without a host.
    """
    this_host = settings.HEADGATE_HOST
    first = min({*hosts_with_heartbeat(), this_host}) == this_host
    return Q(**{f"{prefix}host__in": ("", this_host) if first else (this_host,)})


def hosts_with_heartbeat() -> frozenset[str]:
    """Return the hosts with a heartbeat within the limit, including this one."""
    live = Host.objects.filter(seen_at__gte=Now() - SILENT_AFTER)
    return frozenset(live.values_list("name", flat=True))


def is_silent(host: str) -> bool:
    """Return whether another host is known to be silent."""
    return _may_judge() and host not in hosts_with_heartbeat()


#: What a user can do about a silent host.
WAIT_OR_DECLARE = "Wait for that host, or declare it gone on the application's page."
#: … and about the only one, which cannot be declared gone.
WAIT_FOR_WORKER = (
    "Wait until the worker has caught up. If it has stopped, start it: Settings → System shows "
    "its state."
)


@dataclass(frozen=True, slots=True)
class AwayHost:
    """The silent host of an application: requests wait for it."""

    name: str
    seen_at: datetime  # its newest heartbeat
    silent_s: float  # since then, by the database's clock
    #: No other host sends heartbeats: a slow or stopped worker or database, not a lost machine.
    alone: bool = False

    @property
    def way_out(self) -> str:
        """Return the remedy for users."""
        return WAIT_FOR_WORKER if self.alone else WAIT_OR_DECLARE


def away(application: Application) -> AwayHost | None:
    """Return the silent host that has an application's driver or files; None if there is none."""
    open_drivers = application.drivers.filter(
        kind=DriverKind.SERVICE, state__in=sorted(OPEN_DRIVER_STATES)
    )
    name = open_drivers.values_list("host", flat=True).first() or application.host
    silent = Host.objects.filter(name=name, seen_at__lt=Now() - SILENT_AFTER)
    row = silent.annotate(now=Now()).first()
    if row is None or row.seen_at is None:
        return None
    silent_s = (row.now - row.seen_at).total_seconds()
    return AwayHost(row.name, row.seen_at, silent_s, alone=not another_is_heard_of(row.name))


def home_of(host: str) -> str:
    """Return a host's HEADGATE_HOME; this host's own for "" or a host that has not reported one.

    Hosts may have different values.
    """
    if host in ("", settings.HEADGATE_HOST):
        return str(settings.HEADGATE_HOME)
    reported_home = Host.objects.filter(name=host).values_list("home", flat=True).first()
    return reported_home or str(settings.HEADGATE_HOME)


def host_of(application: str) -> str:
    """Return the host of the existing application with this name; "" if it is not placed."""
    rows = Application.objects.filter(name=application, archived_at=None)
    return rows.values_list("host", flat=True).first() or ""


def below_home(folder: str, host: str) -> str:
    """Translate a folder in this host's settings to another host; a URL is not changed."""
    own_home = str(settings.HEADGATE_HOME)
    inside = folder == own_home or folder.startswith(f"{own_home}/")
    return f"{home_of(host)}{folder.removeprefix(own_home)}" if inside else folder


def way_to(host: str) -> str:
    """Return the sentence that explains how to reach files on another host."""
    row = Host.objects.filter(name=host, seen_at__lt=Now() - SILENT_AFTER).first()
    if row is None or row.seen_at is None:
        return f"Open Headgate on host {host}."
    return (
        f"Host {host} has not responded since {row.seen_at:%H:%M:%S} UTC. Wait for it, or "
        "declare it gone on the application's page and then reset the query to start it on "
        "another host."
    )


def another_is_heard_of(than: str) -> bool:
    """Return whether another host has been sending its heartbeats on time for long enough."""
    long_ago = Now() - SILENT_AFTER
    steady_hosts = Host.objects.filter(seen_at__gte=long_ago, steady_since__lte=long_ago)
    return steady_hosts.exclude(name=than).exists()


def leads() -> bool:
    """Return whether this host's worker runs the ticks of the whole installation.

    The leader is the first host, by name, whose worker holds its claim and has a heartbeat. If
    there is none, each worker leads: on a busy host, a late heartbeat must not stop the only one.
    For some seconds, two may lead, which is harmless.
    """
    claiming_hosts = Host.objects.filter(seen_at__gte=Now() - SILENT_AFTER).exclude(claim="")
    first = claiming_hosts.order_by("name").values_list("name", flat=True).first()
    return first in (None, settings.HEADGATE_HOST)


def to_look_after() -> Q:
    """Return the condition that an application's host is this one, unset, or known to be silent."""
    return on_this_host() | ~Q(host__in=hosts_with_heartbeat()) if _may_judge() else on_this_host()


def _may_judge() -> bool:
    """Return whether this host's own heartbeats have been on time for long enough.

    If the database did not accept this worker's heartbeats, it did not accept those of other
    workers either.
    """
    long_ago = Now() - SILENT_AFTER
    own = Host.objects.filter(name=settings.HEADGATE_HOST, seen_at__gte=long_ago)
    return own.filter(steady_since__lte=long_ago).exists()


def elsewhere(application: Application) -> str:
    """Return the host of an application's files; "" if they are on this one."""
    return "" if application.host in ("", settings.HEADGATE_HOST) else application.host


class OnAnotherHost(NotLocal):
    """The error that a checkpoint's files are on another host."""

    def __init__(self, location: str, host: str) -> None:
        Exception.__init__(
            self, f"{location} is on host {host}; only the worker there can read it."
        )
        self.host = host


def logs_at(location: str, *, host: str | None = None) -> CheckpointLogs:
    """Return the logs of a query's checkpoint; raise `NotLocal` if its files are not on this host.

    A checkpoint's host is that of its query's application; if `host` is None, it is looked up.
    """
    if host is None:
        checkpoints = Checkpoint.objects.filter(location=location).order_by("-pk")
        host = checkpoints.values_list("query__application__host", flat=True).first()
    foreign = host and host != settings.HEADGATE_HOST
    if host and foreign and local_path(location) is not None:
        raise OnAnotherHost(location, host)
    return CheckpointLogs.at(location)


def mirror_of(location: str) -> Mirror:
    """Return this host's mirror of a checkpoint that is not on a local disk."""
    name = hashlib.sha256(location.encode()).hexdigest()[:32]
    return Mirror(Path(settings.MIRRORS_DIR) / name)


def about_mirror(
    location: str, application: Application, *, now: datetime, what: str = "checkpoint"
) -> MirrorState:
    """Return when this host's mirror of a location was read, or why it was not, if that is unusual.

    Only the worker on this host can read it, to a folder that this process must share with it.
    """
    mirror = mirror_of(location)
    about, since = mirror.about(), mirror.unanswered_since()
    if since is None or now - since < UNANSWERED_AFTER:
        problem = Dated(about.problem, about.tried_at or now)
        return replace(about, problem=problem.at(now, fresh_for=PROBLEM_FRESH))
    this_host, away_host = settings.HEADGATE_HOST, elsewhere(application)
    why = (
        f"The worker on host {this_host} was asked to read the {what}, but nothing has arrived in "
        f"{settings.MIRRORS_DIR} since {since:%H:%M:%S} UTC. The worker is busy, or this web "
        "process does not share that folder with it."
        if this_host in hosts_with_heartbeat()
        else f"Only a worker can read the {what}, and none on host {this_host} responds."
    )
    way_out = way_to(away_host) if away_host else "Open Headgate on the worker's host."
    return replace(about, problem=f"{why} {way_out}")


def read_at_of(location: str) -> datetime | None:
    """Return when this host's mirror of a checkpoint was read; None if it is read directly."""
    return None if local_path(location) is not None else mirror_of(location).about().read_at


def logs_to_show(location: str) -> tuple[CheckpointLogs, MirrorState | None]:
    """Return a checkpoint's logs for a page, and when they were read if they are a mirror.

    Raises `NotLocal` if they are on another host, or have not been read yet.
    """
    if local_path(location) is not None:
        return logs_at(location), None
    mirror = mirror_of(location)
    about = mirror.about()
    if about.read_at is None:
        raise NotLocal(location)
    return CheckpointLogs(mirror.checkpoint), about


def drivers_on_this_host(ids: set[int]) -> set[int]:
    """Return those drivers whose files are on this host; those without a row are included."""
    foreign = Driver.objects.filter(pk__in=ids).exclude(host=settings.HEADGATE_HOST)
    return ids - set(foreign.values_list("pk", flat=True))


@dataclass(frozen=True, slots=True)
class SilentHost:
    """A silent host that drivers or queries depend on."""

    name: str
    seen_at: datetime | None  # its newest heartbeat; None: never
    drivers: int  # open ones
    queries: int  # that should run


def silent_hosts() -> tuple[list[str], list[SilentHost]]:
    """Return the hosts with a heartbeat, and the silent ones.

    A silent host is included only if drivers or queries that should run are on it.
    """
    fresh = Q(seen_at__gte=Now() - SILENT_AFTER)
    rows = Host.objects.annotate(heard=Case(When(fresh, then=True), default=False))
    hosts = {row.name: row for row in rows}
    live = [name for name, row in hosts.items() if row.heard]
    drivers = Driver.objects.filter(state__in=sorted(OPEN_DRIVER_STATES)).exclude(host__in=live)
    wanted = Query.objects.filter(
        archived_at=None, desired=Desired.RUNNING, application__archived_at=None
    ).exclude(application__host__in=[*live, ""])
    placements = drivers.order_by().values_list(Value("driver"), "host")
    all_of = list(
        placements.union(
            wanted.order_by().values_list(Value("query"), "application__host"), all=True
        )
    )
    silent = [
        SilentHost(
            name,
            hosts[name].seen_at if name in hosts else None,
            drivers=all_of.count(("driver", name)),
            queries=all_of.count(("query", name)),
        )
        for name in sorted({host for _, host in all_of})
    ]
    return live, silent


def queue_of_application(application_id: int) -> str:
    """Return the queue whose worker acts for an application (`queue_of`)."""
    return _queue_of(Application.objects.filter(pk=application_id))


def queue_of_driver(driver_id: int) -> str:
    """Return the queue whose worker acts for a driver (`queue_of`)."""
    return _queue_of(Driver.objects.filter(pk=driver_id))


def queue_of_operation(operation_id: int) -> str:
    """Return the queue whose worker takes the steps of an operation (`queue_of`)."""
    own = Operation.objects.filter(pk=operation_id).exclude(host="")
    return _queue_of(own if own.exists() else Application.objects.filter(operations=operation_id))


def _queue_of(placed: QuerySet[Any]) -> str:
    """Return the queue of the host on which a row is placed.

    If there is no host, or it is silent, this is the common queue: nothing empties a silent host's
    queue, and the other hosts report that it is silent. This takes only one database query, because
    a start waits for it.
    """
    live_hosts = Host.objects.filter(
        name__in=placed.values("host"), seen_at__gte=Now() - SILENT_AFTER
    )
    name = live_hosts.values_list("name", flat=True).first()
    return f"{settings.QUEUE}.{name}" if name else settings.QUEUE


#: A small file system is full from this share of its size: a limit in MB would never be met there.
LEAST_FREE = 0.1


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of one folder; sizes are bytes."""

    path: str
    mount: str  # the folder at which it is mounted
    device: int
    size: int
    free: int  # for accounts other than root
    holds_more: bool = True  # False: it has no inode left for another file or folder

    @property
    def low(self) -> bool:
        """Return whether it has too little space, or no inode."""
        return bool(self.missing) or not self.holds_more

    @property
    def missing(self) -> int:
        """Return how many bytes must be freed until it is no longer reported; 0 if none."""
        return max(0, min(settings.DISK_WARNING_MB * 1_000_000, self._share) - self.free)

    @property
    def _share(self) -> int:
        return int(self.size * LEAST_FREE)

    @property
    def sentence(self) -> str:
        """Return the path, the file system, and the free and missing space."""
        text = (
            f"{self.path} is on the file system mounted at {self.mount}: {_mb(self.free)} of "
            f"{_mb(self.size)} are free"
        )
        if self.missing:
            text += f", {_mb(self.missing)} too little"
        return f"{text}." if self.holds_more else f"{text}, but no inode: it has too many files."


def disk_of(path: str) -> Disk | None:
    """Return the file system of a folder or file, or of its nearest parent that exists.

    None if it cannot be read, or if nothing can be written to it: read-only mounts count as always
    full.
    """
    at = os.path.realpath(path)
    while not os.path.lexists(at) and at != os.sep:
        at = os.path.dirname(at)
    try:
        file_system, device = os.statvfs(at), os.stat(at).st_dev
        while not os.path.ismount(at):
            at = os.path.dirname(at)
    except OSError:
        return None
    if file_system.f_flag & os.ST_RDONLY or not file_system.f_blocks:
        return None
    unit = file_system.f_frsize
    holds_more = bool(
        file_system.f_favail or not file_system.f_files
    )  # some file systems count none
    return Disk(
        path, at, device, file_system.f_blocks * unit, file_system.f_bavail * unit, holds_more
    )


def home_disk() -> Disk | None:
    """Return the file system of HEADGATE_HOME, which has its own part in the health."""
    return disk_of(str(settings.HEADGATE_HOME))


def low_disks(paths: Iterable[str]) -> Iterator[Disk]:
    """Yield each file system with too little space, other than that of HEADGATE_HOME, once."""
    home = home_disk()
    devices = {home.device} if home else set()
    for path in paths:
        disk = disk_of(path)
        if disk is not None and disk.device not in devices:
            devices.add(disk.device)
            if disk.low:
                yield disk


def fullest(paths: Iterable[str]) -> Disk | None:
    """Return the file system of these folders with the least free space; None without any."""
    disks = [disk for path in paths if (disk := disk_of(path)) is not None]
    return min(disks, key=lambda disk: (disk.holds_more, disk.free), default=None)


def _mb(size: int) -> str:
    return f"{size / 1_000_000:,.0f} MB"
