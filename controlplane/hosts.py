"""What the wiring looks up: a row's queue, a host's holder, drivers that send, the launcher.

`queries.launchers.configured` adds the type; `listeners`, which is not allowed to import `queries`,
reads drivers' spools through this launcher.

The tables belong to `queries`, which `listeners` is not allowed to import; settings specify the
modules, in the same way as the launcher (`controlplane.hosts`).
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connections
from django.utils.crypto import salted_hmac
from django.utils.module_loading import import_string


@cache
def launcher() -> Any:
    """Return this process's launcher; HEADGATE_LAUNCHER sets its kind."""
    return import_string(settings.LAUNCHERS[settings.LAUNCHER])()


def drivers(ids: Collection[int]) -> Mapping[int, Any]:
    """Return `listeners.senders.EventSender` by driver id; drivers that have no row are omitted."""
    senders: Mapping[int, Any] = import_string(f"{settings.SENDER_SELECTORS}.drivers")(ids)
    return senders


def runs(ids: Collection[int]) -> Mapping[int, tuple[int, int]]:
    """Return each run's driver and query, by run id; runs that have no row are omitted."""
    drivers_and_queries: Mapping[int, tuple[int, int]] = import_string(
        f"{settings.SENDER_SELECTORS}.runs"
    )(ids)
    return drivers_and_queries


def living() -> Mapping[int, int]:
    """Return the epochs of the drivers that are currently allowed to send, by id."""
    epochs: Mapping[int, int] = import_string(f"{settings.SENDER_SELECTORS}.living")()
    return epochs


def revoked() -> Mapping[int, int]:
    """Return the epochs of the drivers that must exit, wherever they run, by id."""
    epochs: Mapping[int, int] = import_string(f"{settings.SENDER_SELECTORS}.revoked")()
    return epochs


def event_key(driver: int, epoch: int) -> bytes:
    """Return the 32-byte key that seals a driver's events.

    The key is derived from SECRET_KEY, so it is never stored in the database or in a backup of it.
    With a new SECRET_KEY, live drivers' events are rejected until the drivers are restarted.
    """
    return _secret("headgate.driver.events", driver, epoch)


def redis_password(driver: int, epoch: int) -> str:
    """Return the password of a driver's own Redis user."""
    return _secret("headgate.driver.redis", driver, epoch).hex()


def pod_token(driver: int, epoch: int) -> str:
    """Return the token with which a driver's pod uses its channel (`queries.views.pods`)."""
    return _secret("headgate.driver.channel", driver, epoch).hex()


def _secret(purpose: str, driver: int, epoch: int) -> bytes:
    return salted_hmac(purpose, f"{driver}:{epoch}", algorithm="sha256").digest()


logger = logging.getLogger(__name__)

#: Exit code of a worker whose host name another one holds: EX_UNAVAILABLE in sysexits.h.
NAME_IN_USE = 69
_LOOK_EVERY_S = 0.5
_DATABASE_AGAIN_S = 1.0
#: A worker whose heartbeats were missing for longer may have been declared gone: `SILENT_AFTER`.
_AWAY_S = 15.0
#: Errors of a kept connection, which may have been closed by the other end.
DATABASE_ERRORS = (DatabaseError, InterfaceError)


def queue_of(kind: str, row_id: int) -> str:
    """Return the queue of the worker that acts for an "application", "driver" or "operation"."""
    queue: str = import_string(f"{settings.HOST_SELECTORS}.queue_of_{kind}")(row_id)
    return queue


def heard_of() -> frozenset[str]:
    """Return the hosts with a heartbeat within the limit."""
    hosts: frozenset[str] = import_string(f"{settings.HOST_SELECTORS}.hosts_with_heartbeat")()
    return hosts


def leads() -> bool:
    """Return whether this host's worker runs the ticks of the whole installation."""
    is_leader: bool = import_string(f"{settings.HOST_SELECTORS}.leads")()
    return is_leader


def drivers_here(ids: set[int]) -> set[int]:
    """Return the drivers whose files are on this host."""
    drivers: set[int] = import_string(f"{settings.HOST_SELECTORS}.drivers_on_this_host")(ids)
    return drivers


class NameTaken(Exception):
    """Another worker acts for this host's name; the message explains this to an operator."""

    def __init__(self) -> None:
        super().__init__(
            f"Another worker already acts for host {settings.HEADGATE_HOST}, so this one "
            "exits. Give each host's worker its own HEADGATE_HOST, or stop the other one."
        )


class HostName:
    """This host's name, held by this process from `take` until `release`."""

    def __init__(self) -> None:
        self._service: Any = import_module(settings.HOST_SERVICE)
        self._worker = self._service.this_worker()
        self._over = threading.Event()

    def take(self) -> None:
        """Claim the name; raise `NameTaken` if another live worker holds it.

        A claim whose process is known to be gone is taken over immediately; a claim from another
        machine or container is watched until it is renewed, or has not been renewed for 15 s. Waits
        for a database that is not responding.
        """
        self._until_free(take=True)

    def refuse_another(self) -> None:
        """Check in the same way as `take`, but leave the name to the worker that starts next."""
        self._until_free(take=False)

    def _until_free(self, *, take: bool) -> None:
        first = None
        while True:
            try:
                attempt = self._service.attempt(self._worker, first, take=take)
                first = first or attempt.observed
                if attempt.free:
                    return
                if attempt.refused:
                    raise NameTaken
                wait = _LOOK_EVERY_S
            except DatabaseError as error:
                logger.warning("host %s not claimed yet: %s", settings.HEADGATE_HOST, error)
                wait = _DATABASE_AGAIN_S
            finally:
                connections.close_all()
            self._over.wait(wait)

    def keep(self, lost: Callable[[NameTaken], None]) -> None:
        """Send a heartbeat every 2 s from a thread; call `lost` if another worker has it."""
        threading.Thread(
            target=self._renew, args=(lost,), name="host-signs-of-life", daemon=True
        ).start()

    def release(self) -> None:
        """Release the name, so that the next worker does not have to wait."""
        self._over.set()
        try:
            self._service.release(self._worker)
        except DatabaseError as error:
            logger.warning("host %s not released: %s", settings.HEADGATE_HOST, error)
        finally:
            connections.close_all()

    def _renew(self, lost: Callable[[NameTaken], None]) -> None:
        """Renew the claim through one connection, because opening another one takes too long."""
        signed = time.clock_gettime(time.CLOCK_BOOTTIME)  # includes time that the machine sleeps
        try:
            while not self._over.wait(self._service.SIGN_EVERY_S):
                try:
                    if time.clock_gettime(time.CLOCK_BOOTTIME) - signed > _AWAY_S:
                        self._service.returned()
                    if not self._service.renew(self._worker) and not self._over.is_set():
                        lost(NameTaken())
                        return
                    signed = time.clock_gettime(time.CLOCK_BOOTTIME)
                except DATABASE_ERRORS as error:  # its silence is itself the message
                    logger.warning("no heartbeat of %s written: %s", settings.HEADGATE_HOST, error)
                    connections.close_all()  # the next heartbeat opens a new one
        finally:
            connections.close_all()
