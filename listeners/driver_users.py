"""A Redis user for each driver: it can append to its own event stream and read its length.

The user can also read whether the driver's epoch has been revoked, and nothing else.

The ingester creates the users, including after a Redis restart that lost them, and deletes those of
drivers that have ended. If Redis itself refuses to create users, events wait in the drivers'
spools, and repairs store them from there.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis
from django.conf import settings

from controlplane import senders
from headgate_ground.wire import REVOKED, sealed
from listeners import streams

#: Seconds for which Redis keeps a revocation that is not repeated.
_REVOCATION_TTL_S = 86_400


class UsersRejected(Exception):
    """Redis does not let the user in REDIS_URL create users; the message says what to do."""


def address(driver: int, epoch: int) -> str:
    """Return the Redis URL with the driver's own user.

    Returns REDIS_URL itself if HEADGATE_DRIVER_REDIS_USERS is off.
    """
    if not settings.DRIVER_REDIS_USERS:
        return str(settings.REDIS_URL)
    parts = urlsplit(settings.REDIS_URL)
    host = parts.netloc.rpartition("@")[2]
    password = senders.redis_password(driver, epoch)
    netloc = f"{_name(epoch)}:{password}@{host}"
    return urlunsplit(parts._replace(netloc=netloc))


def keep(
    client: Any, living: Mapping[int, int], revoked: Mapping[int, int] | None = None
) -> frozenset[int]:
    """Ensure that Redis has users for exactly the live drivers, whose epochs are given by id.

    Drivers in `revoked` keep the user to which `revoke` has reduced them. Returns the epochs of
    drivers whose rights were revoked by `shut_out`. Raises `redis.RedisError` if Redis is not
    responding, and `Refused` if it does not create users.
    """
    if not settings.DRIVER_REDIS_USERS:
        return frozenset()
    try:
        # "user NAME on|off …"
        existing = {words[1]: words[2] for words in (line.split() for line in client.acl_list())}
        ours = {name for name in existing if name.startswith(_prefix())}
        revoked_names = {_name(epoch) for epoch in (revoked or {}).values()}
        wanted = {
            _name(epoch): (driver, epoch)
            for driver, epoch in living.items()
            if _name(epoch) not in revoked_names
        }
        for name in wanted.keys() - ours:
            driver, epoch = wanted[name]
            _make(client, name, epoch, senders.redis_password(driver, epoch))
        if superfluous := sorted(ours - wanted.keys() - revoked_names):
            client.acl_deluser(*superfluous)
    except redis.ResponseError as error:
        raise UsersRejected(
            "Redis users for drivers cannot be created, so their events wait in their spools: "
            f"{error}. Allow the user in REDIS_URL to run ACL, or set "
            "HEADGATE_DRIVER_REDIS_USERS=0."
        ) from error
    return frozenset(epoch for name, (_, epoch) in wanted.items() if existing.get(name) == "off")


def revoke(client: Any, revoked: Mapping[int, int]) -> None:
    """Tell drivers, given by id with their epochs, to exit; let them read only this message.

    The revocation is a sealed value in Redis, never a missing value, so that no driver exits
    because Redis has lost its data. Repeat the call regularly in case that happens.
    """
    with client.pipeline(transaction=False) as pipeline:
        for driver, epoch in revoked.items():
            word = sealed(REVOKED, senders.event_key(driver, epoch))
            pipeline.set(revocation_of(epoch), word, ex=_REVOCATION_TTL_S)
            if settings.DRIVER_REDIS_USERS:
                password = senders.redis_password(driver, epoch)
                pipeline.execute_command(*_user(_name(epoch), password, *_read(epoch)))
        pipeline.execute()


def shut_out(client: Any, epoch: int) -> None:
    """Revoke a live driver's rights until it ends, and close its connections."""
    name = _name(epoch)
    client.execute_command("ACL", "SETUSER", name, "off")
    client.execute_command("CLIENT", "KILL", "USER", name)


def stream_of(epoch: int) -> str:
    """Return the name of the stream to which a driver writes."""
    common: str = settings.EVENT_STREAM
    return streams.of_driver(common, epoch) if settings.DRIVER_REDIS_USERS else common


def revocation_of(epoch: int) -> str:
    """Return the Redis key that tells a driver whether its epoch has been revoked."""
    return f"{settings.EVENT_STREAM}:revoked:{epoch}"


def _make(client: Any, name: str, epoch: int, password: str) -> None:
    commands = ["+xadd", "+xlen"]
    rights = (f"~{stream_of(epoch)}", *commands, *_read(epoch))
    client.execute_command(*_user(name, password, *rights))


def _read(epoch: int) -> tuple[str, ...]:
    """Return the rights that a user needs to read its revocation."""
    return f"%R~{revocation_of(epoch)}", "+get"


def _user(name: str, password: str, *rights: str) -> tuple[str, ...]:
    """Return the command that creates a user with exactly these rights."""
    select = ["+select"] if _database() else []
    return "ACL", "SETUSER", name, "reset", "on", f">{password}", *rights, *select


def _database() -> int:
    """Return the database number in REDIS_URL."""
    parts: dict[str, Any] = redis.connection.parse_url(settings.REDIS_URL)  # type: ignore[no-untyped-call]
    return int(parts.get("db") or 0)


def _name(epoch: int) -> str:
    return f"{_prefix()}{epoch}"


def _prefix() -> str:
    return f"{settings.QUEUE}-driver-"
