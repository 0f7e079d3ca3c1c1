"""Look up the drivers that send events, for `listeners`.

The tables belong to `queries`, which `listeners` is not allowed to import; a setting specifies the
module.
"""

from collections.abc import Collection, Mapping
from typing import Any

from django.conf import settings
from django.utils.crypto import salted_hmac
from django.utils.module_loading import import_string


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


def _secret(purpose: str, driver: int, epoch: int) -> bytes:
    return salted_hmac(purpose, f"{driver}:{epoch}", algorithm="sha256").digest()
