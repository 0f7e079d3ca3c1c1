"""A Redis user for each driver: it may add to its own event stream and ask its length, no more.

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
from listeners import streams


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


def keep(client: Any, living: Mapping[int, int]) -> frozenset[int]:
    """Let Redis have exactly the users of the living drivers, whose epochs come by id.

    Returns the epochs of those that are shut out. Raises `redis.RedisError` where Redis does not
    answer, `Refused` where it makes no users.
    """
    if not settings.DRIVER_REDIS_USERS:
        return frozenset()
    try:
        # "user NAME on|off …"
        there = {words[1]: words[2] for words in (line.split() for line in client.acl_list())}
        ours = {name for name in there if name.startswith(_prefix())}
        wanted = {_name(epoch): (driver, epoch) for driver, epoch in living.items()}
        for name in wanted.keys() - ours:
            driver, epoch = wanted[name]
            _make(client, name, epoch, senders.redis_password(driver, epoch))
        if gone := sorted(ours - wanted.keys()):
            client.acl_deluser(*gone)
    except redis.ResponseError as error:
        raise Refused(
            f"Redis makes no users for drivers, whose events wait in their spools: {error}. "
            "Let the user of REDIS_URL run ACL, or set HEADGATE_DRIVER_REDIS_USERS=0."
        ) from error
    return frozenset(epoch for name, (_, epoch) in wanted.items() if there.get(name) == "off")


def shut_out(client: Any, epoch: int) -> None:
    """Take from a living driver what it may do, for as long as it lives, and its connections."""
    name = _name(epoch)
    client.execute_command("ACL", "SETUSER", name, "off")
    client.execute_command("CLIENT", "KILL", "USER", name)


def stream_of(epoch: int) -> str:
    """Return the stream to which a driver writes."""
    common: str = settings.EVENT_STREAM
    return streams.of_driver(common, epoch) if settings.DRIVER_REDIS_USERS else common


def _make(client: Any, name: str, epoch: int, password: str) -> None:
    commands = ["+xadd", "+xlen"]
    if _database():
        commands.append("+select")
    client.execute_command(
        *("ACL", "SETUSER", name, "reset", "on", f">{password}"),
        *(f"~{stream_of(epoch)}", *commands),
    )


def _database() -> int:
    """Return the number of the database that REDIS_URL names."""
    parts: dict[str, Any] = redis.connection.parse_url(settings.REDIS_URL)  # type: ignore[no-untyped-call]
    return int(parts.get("db") or 0)


def _name(epoch: int) -> str:
    return f"{_prefix()}{epoch}"


def _prefix() -> str:
    return f"{settings.QUEUE}-driver-"
