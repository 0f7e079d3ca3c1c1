"""Send a host's heartbeat, and claim the host's name for its only worker.

Two workers with the same host name would take over each other's drivers. The claim is a column of
the Host row that only its holder renews. A worker exits if another live worker holds the claim.
"""

import os
import uuid
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import assert_never

from django.conf import settings
from django.db.models import Case, F, When
from django.db.models.functions import Now

from headgate_ground import identities
from queries.domain.hosts import (
    LATE_AFTER,
    SIGN_EVERY_S,
    ClaimSeen,
    ClaimVerdict,
    Worker,
    judge_claim,
)
from queries.domain.states import DISPATCHED_KINDS, OPEN_DRIVER_STATES
from queries.launchers.configured import launcher
from queries.models.drivers import Driver, Host
from queries.models.lock_waits import again_if_busy
from queries.services.supervision import adoption

#: The functions that `controlplane.hosts` uses.
__all__ = ["SIGN_EVERY_S", "attempt", "release", "renew", "returned", "this_worker"]


@cache
def this_worker() -> Worker:
    """Return the identity of this process."""
    pid = os.getpid()
    return Worker(
        claim=str(uuid.uuid4()),
        boot_id=identities.boot_id(),
        pid_space=identities.pid_space(),
        pid=pid,
        start_time=identities.start_time(pid) or 0,
    )


@dataclass(frozen=True, slots=True)
class ClaimAttempt:
    """The result of one attempt to claim this host's name."""

    observed: ClaimSeen
    free: bool = False  # nobody else holds it; with `take`, this worker does now
    refused: bool = False  # another live worker holds it


def attempt(worker: Worker, first: ClaimSeen | None, *, take: bool) -> ClaimAttempt:
    """Check whether this host's name is free, and with `take`, claim it.

    `first` is the state seen by the first attempt. `free` is False if another worker was faster.
    """
    claim = look(worker)
    match judge_claim(first or claim, claim):
        case ClaimVerdict.TAKE:
            return ClaimAttempt(claim, free=not take or _take(worker, claim))
        case ClaimVerdict.LEAVE:
            return ClaimAttempt(claim, refused=True)
        case ClaimVerdict.WATCH:
            return ClaimAttempt(claim)
        case never:
            assert_never(never)


def look(worker: Worker) -> ClaimSeen:
    """Return the current claim on this host's name."""
    Host.objects.get_or_create(name=settings.HEADGATE_HOST)
    row = Host.objects.annotate(now=Now()).get(name=settings.HEADGATE_HOST)
    now: datetime = row.now
    return ClaimSeen(row.claim, row.seen_at, now, dead=_is_dead(row, worker))


def _is_dead(row: Host, worker: Worker) -> bool:
    """Return whether the claim's process can be checked from here, and is gone."""
    if (row.boot_id, row.pid_space) != (worker.boot_id, worker.pid_space) or row.pid is None:
        return False
    return not identities.is_alive(row.pid, row.start_time)


def _take(worker: Worker, claim: ClaimSeen) -> bool:
    """Claim this host's name; return False if another worker was faster."""
    won = Host.objects.filter(name=settings.HEADGATE_HOST, claim=claim.claim).update(
        claim=worker.claim,
        boot_id=worker.boot_id,
        pid_space=worker.pid_space,
        pid=worker.pid,
        start_time=worker.start_time,
        home=str(settings.HEADGATE_HOME),
        seen_at=Now(),
        steady_since=Now(),
    )
    return bool(won)


def renew(worker: Worker) -> bool:
    """Renew the heartbeat and show it to this host's drivers; False if the name was taken."""
    mine = Host.objects.filter(name=settings.HEADGATE_HOST, claim=worker.claim)
    late = When(seen_at__lt=Now() - LATE_AFTER, then=Now())
    steady = Case(late, default=F("steady_since"))
    renewed = again_if_busy(lambda: mine.update(seen_at=Now(), steady_since=steady))
    if renewed:
        local_drivers = Driver.objects.filter(
            host=settings.HEADGATE_HOST, state__in=OPEN_DRIVER_STATES
        )
        services = local_drivers.filter(kind__in=DISPATCHED_KINDS)  # probes own no checkpoint
        launcher().show_heartbeat(services.values_list("application__name", "epoch"))
    return bool(renewed)


def returned() -> None:
    """End drivers given up while this worker was frozen or cut off; call this before `renew`."""
    adoption.end_strays(launcher=launcher())


def release(worker: Worker) -> None:
    """Release the name; the host counts as silent once its last heartbeat is old enough."""
    Host.objects.filter(name=settings.HEADGATE_HOST, claim=worker.claim).update(claim="")
