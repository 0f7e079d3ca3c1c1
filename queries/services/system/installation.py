"""Stop and resume a host, declare it gone, and refuse to start with former host accounts.

Drivers' files belong to those accounts. Drivers no longer run as them, so the files are out of
reach until an admin has given them to the worker's account. Starting drivers anyway would mean
starting them without their former isolation.

The desired states of its queries do not change, and other hosts continue.
"""

import json
import os
import pwd
import shlex
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import F

from controlplane.nudge import changed, reconcile_soon
from queries.domain.checkpoints.ownership import local_path
from queries.domain.definitions.locations import local_path as locations_local_path
from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.domain.states import OPEN_DRIVER_STATES, DriverKind, OperationOutcome, Reason, Verb
from queries.models.applications import Application
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Host
from queries.models.history import Operation
from queries.selectors.hosts import another_is_heard_of, at_work, away
from queries.selectors.secrets import all_given_roots
from queries.services.changes import record
from queries.services.local_roots import root_location
from queries.services.supervision.operation_rows import new_operation, schedule_reconcile

MODE = "accounts"  # of HEADGATE_ISOLATION
FILE = "accounts.json"  # which application had which account


def refusal() -> str:
    """Return why no worker may start here, with the commands that fix it; "" if it may."""
    file = settings.HEADGATE_HOME / FILE
    if not os.path.lexists(file) and settings.ISOLATION != MODE:
        return ""
    return "\n".join(
        [
            "This worker does not start: drivers no longer run under host accounts of their own "
            "(HEADGATE_ISOLATION=accounts), and it starts none with less isolation than that.",
            "1. Give the accounts' files to the worker's account. As root, on this host:",
            *(f"     {line}" for line in _commands(file)),
            "2. Set HEADGATE_ISOLATION to bubblewrap (docs/isolation.md lists what that needs), "
            "and remove HEADGATE_WALLS_ACCOUNTS.",
            "3. Start the worker again.",
        ]
    )


def _commands(file: Path) -> Iterator[str]:
    """Yield the commands, for the accounts that exist and for files of those that do not.

    `chown --from` changes only what belongs to an account, and `-h` no target of a link, so neither
    a link nor another name of a file, which a driver may have left, takes a file from others.
    """
    ours, group = os.geteuid(), os.getegid()
    folders = shlex.join(_folders())
    names = _accounts(file)
    accounts = [
        entry
        for entry in pwd.getpwall()
        if entry.pw_name in (names or ()) and entry.pw_uid not in (0, ours)
    ]
    for entry in accounts:
        yield f"pkill -KILL -u {entry.pw_uid}  # drivers that still run as {entry.pw_name}"
        yield f"chown -R -h --from={entry.pw_uid} {ours}:{group} {folders}"
        yield f"chown -R -h --from=:{entry.pw_gid} :{group} {folders}"
    if names is None:
        yield f"find {folders} ! -user {ours}  # {FILE} is unreadable: chown what accounts had"
    elif len(accounts) < len(names):
        missing = sorted(names - {entry.pw_name for entry in accounts})
        yield f"find {folders} -nouser  # chown what {', '.join(missing)} had: no such account"
    yield shlex.join(["chmod", "700", str(settings.HEADGATE_HOME)])
    yield shlex.join(["rm", "-f", str(file)])


def _accounts(file: Path) -> set[str] | None:
    """Return the names of the accounts that applications had; None if the file is unreadable."""
    try:
        return {str(name) for name in json.loads(file.read_text(encoding="utf-8")).values()}
    except FileNotFoundError:
        return None if os.path.lexists(file) else set()
    except (OSError, ValueError, AttributeError):
        return None


def _folders() -> list[str]:
    """Return the local folders that may contain drivers' files, without nested ones and "/"."""
    folders = {settings.HEADGATE_HOME, settings.CHECKPOINTS_DIR}
    roots = list(settings.ALLOWED_PATHS)
    with suppress(DatabaseError):  # else the commands do without what only the database knows
        roots += [
            root for application_roots in all_given_roots().values() for root in application_roots
        ]
        locations = Checkpoint.objects.values_list("location", flat=True).distinct()
        folders |= {
            Path(path).parent for path in map(locations_local_path, locations) if path is not None
        }
    local = (locations_local_path(root_location(root)) for root in roots)
    folders |= {Path(path) for path in local if path is not None}
    folders = {Path(os.path.realpath(path)) for path in folders} - {Path("/")}
    return sorted(
        str(path)
        for path in folders
        if not any(path.is_relative_to(other) for other in folders - {path})
    )


def request_shutdown(*, now: datetime) -> None:
    """End every driver of this host without changing any query's desired state."""
    Host.objects.get_or_create(name=settings.HEADGATE_HOST)
    Host.objects.filter(name=settings.HEADGATE_HOST, stopping_since=None).update(stopping_since=now)
    _wake_all(now)
    for pk in at_work().values_list("pk", flat=True):
        reconcile_soon(pk)


def resume(*, now: datetime) -> None:
    """After `request_shutdown`, let supervision start the queries that should run."""
    Host.objects.filter(name=settings.HEADGATE_HOST).update(stopping_since=None)
    _wake_all(now)


def _wake_all(now: datetime) -> None:
    application_ids = list(at_work().values_list("pk", flat=True))
    Application.objects.filter(pk__in=application_ids).update(
        reconcile_after=now, version=F("version") + 1
    )


def declare_host_gone(
    *, application: Application, host: str, actor: str, now: datetime
) -> Operation:
    """Declare the application's driver on a silent host dead, on a user's responsibility.

    1. The epochs of its open driver are revoked: reconcile ends the driver as UNKNOWN, with its
       runs. A driver that is still alive reads the revocation in Redis and exits. Without access to
       Redis, it may keep writing until its host's worker is back, which ends it before doing
       anything else.
    2. Checkpoints in local files stay on that host: their queries wait for the host, or are reset.
       If all checkpoints are in shared storage, another host takes over the application.

    Raises `Invalid` if the application is not on `host`. Raises `NotAllowed` if that host has a
    heartbeat, or has not yet been silent for `HOST_GONE_AFTER_S` while another host was seen.
    """
    with transaction.atomic():
        row = Application.objects.select_for_update().get(pk=application.pk)
        driver = row.drivers.filter(
            kind=DriverKind.SERVICE, state__in=sorted(OPEN_DRIVER_STATES)
        ).first()
        _refuse_to_give_up(row, driver, host)
        operation = new_operation(Verb.DECLARE_GONE, row, None, row.generation, actor, now)
        operation.outcome, operation.ended_at = OperationOutcome.DONE, now
        operation.result = _effects_of_declaration(row, driver, host)
        operation.save(update_fields=["outcome", "ended_at", "result"])
        if driver is not None:
            fields = {"end_wanted": Reason.HOST_GONE, "end_wanted_at": now}
            Driver.objects.filter(pk=driver.pk).update(**fields)
            about = {"application": row, "driver": driver, "actor": actor, "operation": operation}
            record("driver", driver.state, driver.state, Reason.HOST_GONE, now=now, **about)
        schedule_reconcile(row.pk, now)
        changed(f"application:{row.pk}")
        return operation


def _refuse_to_give_up(row: Application, driver: Driver | None, host: str) -> None:
    placed = driver.host if driver else row.host
    if not placed or host != placed:
        way_out = f"It is on host {placed}." if placed else "It has not run on any host."
        raise Invalid([Problem("host", host, f"is not the host of {row.name}.", way_out)])
    silent = away(row)
    after = f"It can be declared gone after {settings.HOST_GONE_AFTER_S} s of silence."
    if silent is None:
        raise NotAllowed(f"Host {host} is sending heartbeats.", way_out=after)
    if silent.silent_s < settings.HOST_GONE_AFTER_S:
        raise NotAllowed(f"Host {host} has been silent for {silent.silent_s:.0f} s.", way_out=after)
    if not another_is_heard_of(host):
        raise NotAllowed(
            f"No other host sends heartbeats, so there is no evidence that {host} is gone.",
            way_out="Start a worker on another host first, with its own HEADGATE_HOST.",
        )


def _effects_of_declaration(row: Application, driver: Driver | None, host: str) -> dict[str, Any]:
    """Return the effects of a declaration on an application's driver and checkpoints."""
    checkpoints = Checkpoint.objects.filter(query__application=row, retired_at=None).order_by(
        "location"
    )
    places = list(checkpoints.values_list("query__name", "location"))
    stay = [name for name, location in places if local_path(location) is not None]
    return {
        "host": host,
        "driver": driver.epoch if driver else None,
        "stay": stay,  # with the host, until it is back or they are reset
        "move": [] if stay else [name for name, _ in places],  # another host takes them over
    }
