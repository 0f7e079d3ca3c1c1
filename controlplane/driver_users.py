"""A Redis user for each driver: it may add to the event stream and ask its length, nothing else.

The ingester makes them, again after each Redis that comes back without them, and removes those of
drivers that have ended. Where Redis itself refuses to make users, drivers' events wait in their
spools, and repairs bring them in from there.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis
from django.conf import settings

from controlplane import senders


class Refused(Exception):
    """Redis does not let REDIS_URL's user make users; the message has the way out."""


def address(driver: int, epoch: int) -> str:
    """Return the URL of Redis with the driver's own user in it.

    It is REDIS_URL's own where HEADGATE_DRIVER_REDIS_USERS is off.
    """
    if not settings.DRIVER_REDIS_USERS:
        return str(settings.REDIS_URL)
    parts = urlsplit(settings.REDIS_URL)
    host = parts.netloc.rpartition("@")[2]
    password = senders.redis_password(driver, epoch)
    netloc = f"{_name(epoch)}:{password}@{host}"
    return urlunsplit(parts._replace(netloc=netloc))


def keep(client: Any, living: Mapping[int, int]) -> None:
    """Let Redis have exactly the users of the living drivers, whose epochs come by id.

    Raises `redis.RedisError` where Redis does not answer, `Refused` where it makes no users.
    """
    if not settings.DRIVER_REDIS_USERS:
        return
    try:
        there = client.acl_users()
        ours = {name for name in there if name.startswith(_prefix())}
        wanted = {_name(epoch): (driver, epoch) for driver, epoch in living.items()}
        for name in wanted.keys() - ours:
            _make(client, name, senders.redis_password(*wanted[name]))
        if gone := sorted(ours - wanted.keys()):
            client.acl_deluser(*gone)
    except redis.ResponseError as error:
        raise Refused(
            f"Redis makes no users for drivers, whose events wait in their spools: {error}. "
            "Let the user of REDIS_URL run ACL, or set HEADGATE_DRIVER_REDIS_USERS=0."
        ) from error


def _make(client: Any, name: str, password: str) -> None:
    commands = ["+xadd", "+xlen"]
    if _database():
        commands.append("+select")
    client.execute_command(
        *("ACL", "SETUSER", name, "reset", "on", f">{password}"),
        *(f"~{settings.EVENT_STREAM}", *commands),
    )


def _database() -> int:
    """Return the number of the database that REDIS_URL names."""
    parts: dict[str, Any] = redis.connection.parse_url(settings.REDIS_URL)  # type: ignore[no-untyped-call]
    return int(parts.get("db") or 0)


def _name(epoch: int) -> str:
    return f"{_prefix()}{epoch}"


def _prefix() -> str:
    return f"{settings.QUEUE}-driver-"
