"""Which hosts give signs of life; what is placed where. Ages are by the database's clock."""

from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

from django.conf import settings
from django.db.models import Case, Q, QuerySet, Value, When
from django.db.models.functions import Now

from queries.checkpoints.logs import CheckpointLogs, NotLocal
from queries.domain.checkpoints.lock_files import local_path
from queries.domain.states import OPEN_DRIVER_STATES, STOPPED_PHASES, Desired, Phase
from queries.domain.supervision.hosts import SILENT_AFTER
from queries.models.applications import Application, Script
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.models.hosts import Host


def placed_here(prefix: str = "") -> Q:
    """Return the condition that an application is placed on this host, or on none yet.

    `prefix` leads to the application: "query__application__".
    """
    return Q(**{f"{prefix}host__in": ("", settings.HEADGATE_HOST)})


def at_work() -> QuerySet[Application]:
    """Return the applications of this host, or of none, that may have something to do.

    They have a driver here, or a query that should run or is not at rest. Thousands may have none.
    """
    drivers = Driver.objects.filter(host=settings.HEADGATE_HOST, state__in=OPEN_DRIVER_STATES)
    living = Query.objects.filter(archived_at=None).order_by()
    found = [
        drivers.order_by().values("application"),
        living.filter(desired=Desired.RUNNING).values("application"),
        living.filter(phase__in=sorted(set(Phase) - STOPPED_PHASES)).values("application"),
        Script.objects.filter(desired=Desired.RUNNING).order_by().values("application"),
    ]
    busy = reduce(or_, (Q(pk__in=each) for each in found))
    return Application.objects.filter(placed_here(), busy, archived_at=None)


def looked_after(prefix: str = "") -> Q:
    """Return the condition that this host looks after an application's sources.

    It does so for those placed here; for those placed nowhere the first living host does.
    """
    here = settings.HEADGATE_HOST
    first = min({*heard_of(), here}) == here
    return Q(**{f"{prefix}host__in": ("", here) if first else (here,)})


def heard_of() -> frozenset[str]:
    """Return the hosts with a sign of life within the limit, this one among them."""
    found = Host.objects.filter(seen_at__gte=Now() - SILENT_AFTER)
    return frozenset(found.values_list("name", flat=True))


def is_silent(host: str) -> bool:
    """Tell whether another host is known to give no sign of life."""
    return _may_judge() and host not in heard_of()


def to_look_after() -> Q:
    """Return the condition that an application's host is this one, none, or known to be silent."""
    return placed_here() | ~Q(host__in=heard_of()) if _may_judge() else placed_here()


def _may_judge() -> bool:
    """Tell whether this host's own signs of life have come in time for long enough.

    A database that did not take this worker's signs did not take the others' either.
    """
    long_ago = Now() - SILENT_AFTER
    own = Host.objects.filter(name=settings.HEADGATE_HOST, seen_at__gte=long_ago)
    return own.filter(steady_since__lte=long_ago).exists()


def elsewhere(application: Application) -> str:
    """Return the host that an application's files are on, "" where they are on this one."""
    return "" if application.host in ("", settings.HEADGATE_HOST) else application.host


class OnAnotherHost(NotLocal):
    """The checkpoint's files are on another host."""

    def __init__(self, location: str, host: str) -> None:
        Exception.__init__(self, f"{location} is on host {host}; only its worker can read it.")
        self.host = host


def logs_at(location: str, *, host: str | None = None) -> CheckpointLogs:
    """Return the logs of a query's checkpoint; raise `NotLocal` where this host has no such file.

    The host of a checkpoint is that of its query's application; None: look it up.
    """
    if host is None:
        held = Checkpoint.objects.filter(location=location).order_by("-pk")
        host = held.values_list("query__application__host", flat=True).first()
    foreign = host and host != settings.HEADGATE_HOST
    if host and foreign and local_path(location) is not None:
        raise OnAnotherHost(location, host)
    return CheckpointLogs.at(location)


def drivers_here(ids: set[int]) -> set[int]:
    """Return those of some drivers whose files are on this host; a driver without a row is too."""
    foreign = Driver.objects.filter(pk__in=ids).exclude(host=settings.HEADGATE_HOST)
    return ids - set(foreign.values_list("pk", flat=True))


@dataclass(frozen=True, slots=True)
class SilentHost:
    """A host that something depends on and that gives no sign of life."""

    name: str
    seen_at: datetime | None  # its newest sign of life; None: never
    drivers: int  # open ones
    queries: int  # that should run


def silent_hosts() -> tuple[list[str], list[SilentHost]]:
    """Return the hosts that give signs of life, and those that give none.

    Of the latter only those that run, or should run, something.
    """
    fresh = Q(seen_at__gte=Now() - SILENT_AFTER)
    rows = Host.objects.annotate(heard=Case(When(fresh, then=True), default=False))
    seen = {row.name: row for row in rows}
    heard = [name for name, row in seen.items() if row.heard]
    drivers = Driver.objects.filter(state__in=sorted(OPEN_DRIVER_STATES)).exclude(host__in=heard)
    wanted = Query.objects.filter(
        archived_at=None, desired=Desired.RUNNING, application__archived_at=None
    ).exclude(application__host__in=[*heard, ""])
    found = drivers.order_by().values_list(Value("driver"), "host")
    all_of = list(
        found.union(wanted.order_by().values_list(Value("query"), "application__host"), all=True)
    )
    silent = [
        SilentHost(
            name,
            seen[name].seen_at if name in seen else None,
            drivers=all_of.count(("driver", name)),
            queries=all_of.count(("query", name)),
        )
        for name in sorted({host for _, host in all_of})
    ]
    return heard, silent


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
    """Return the own queue of the host that a row is placed on.

    The common one for no host and for a silent one: nobody empties the queue of a silent host;
    the others say that it is silent. One read: a start waits for it.
    """
    heard = Host.objects.filter(name__in=placed.values("host"), seen_at__gte=Now() - SILENT_AFTER)
    name = heard.values_list("name", flat=True).first()
    return f"{settings.QUEUE}.{name}" if name else settings.QUEUE
