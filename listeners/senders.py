"""Who may send: a Redis user for each driver, and the seal of its events.

The user can also read whether the driver's epoch has been revoked, and nothing else.

The ingester creates the users, including after a Redis restart that lost them, and deletes those of
drivers that have ended. If Redis itself refuses to create users, events wait in the drivers'
spools, and repairs store them from there.

Otherwise anyone with access to Redis, or to a spool folder, could send events for any query.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

import redis
from django.conf import settings

from controlplane import hosts
from headgate_ground.spool import Spooled
from headgate_ground.tolerant import is_number
from headgate_ground.wire import REVOKED, EventKind, WireEvent, is_sealed, sealed
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
    password = hosts.redis_password(driver, epoch)
    netloc = f"{_name(epoch)}:{password}@{host}"
    return urlunsplit(parts._replace(netloc=netloc))


def keep(
    client: Any, living: Mapping[int, int], revoked: Mapping[int, int] | None = None
) -> frozenset[int]:
    """Ensure that Redis has users for exactly the live drivers, whose epochs are given by id.

    Drivers in `revoked` keep the user to which `revoke` has reduced them. Returns the epochs of
    drivers whose rights were revoked by `shut_out`. Raises `redis.RedisError` if Redis is not
    responding, and `UsersRejected` if it does not create users.
    """
    if not settings.DRIVER_REDIS_USERS:
        return frozenset()
    try:
        # "user NAME on|off …"
        users = {words[1]: words[2] for words in (line.split() for line in client.acl_list())}
        ours = {name for name in users if name.startswith(_prefix())}
        revoked_names = {_name(epoch) for epoch in (revoked or {}).values()}
        wanted = {
            _name(epoch): (driver, epoch)
            for driver, epoch in living.items()
            if _name(epoch) not in revoked_names
        }
        for name in wanted.keys() - ours:
            driver, epoch = wanted[name]
            _make(client, name, epoch, hosts.redis_password(driver, epoch))
        if superfluous := sorted(ours - wanted.keys() - revoked_names):
            client.acl_deluser(*superfluous)
    except redis.ResponseError as error:
        raise UsersRejected(
            "Redis users for drivers cannot be created, so their events wait in their spools: "
            f"{error}. Allow the user in REDIS_URL to run ACL, or set "
            "HEADGATE_DRIVER_REDIS_USERS=0."
        ) from error
    return frozenset(epoch for name, (_, epoch) in wanted.items() if users.get(name) == "off")


def revoke(client: Any, revoked: Mapping[int, int]) -> None:
    """Tell drivers, given by id with their epochs, to exit; let them read only this message.

    The revocation is a sealed value in Redis, never a missing value, so that no driver exits
    because Redis has lost its data. Repeat the call regularly in case that happens.
    """
    with client.pipeline(transaction=False) as pipeline:
        for driver, epoch in revoked.items():
            word = sealed(REVOKED, hosts.event_key(driver, epoch))
            pipeline.set(revocation_of(epoch), word, ex=_REVOCATION_TTL_S)
            if settings.DRIVER_REDIS_USERS:
                password = hosts.redis_password(driver, epoch)
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
    """Return the Redis key that revokes a driver's epoch."""
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


logger = logging.getLogger(__name__)

Value = TypeVar("Value")

_REMEMBERED = 10_000  # drivers, and runs, cached
_MOST_RUNS = 1_000  # per heartbeat; a driver has some tens of queries


@dataclass(frozen=True, slots=True)
class EventSender:
    """A driver, according to its row."""

    epoch: int
    key: bytes  # seals its events


class SenderLookup(Protocol):
    """Look-ups in the control plane's tables (`controlplane.hosts`)."""

    def drivers(self, ids: Collection[int]) -> Mapping[int, EventSender]:
        """Return the drivers by id; drivers without a row are omitted."""

    def runs(self, ids: Collection[int]) -> Mapping[int, tuple[int, int]]:
        """Return each run's driver and query, by run id; runs that have no row are omitted."""


class Senders:
    """Verifies events; looks up drivers and runs that are not cached yet, only once."""

    def __init__(self, lookup: SenderLookup) -> None:
        self._lookup = lookup
        self._drivers: OrderedDict[int, EventSender] = OrderedDict()
        self._runs: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def refusals(self, events: Sequence[tuple[WireEvent, bytes]]) -> list[str]:
        """Return why each event, given with its entry, is rejected; "" if the event is trusted."""
        self._learn(event for event, _ in events)
        return [self._refusal(event, entry) for event, entry in events]

    def _learn(self, events: Iterable[WireEvent]) -> None:
        drivers: set[int] = set()
        runs: set[int] = set()
        for event in events:
            drivers.add(event.driver)
            named = _runs_of(event)
            if len(named) <= _MOST_RUNS:
                runs |= named
        if new := drivers - self._drivers.keys():
            _remember(self._drivers, self._lookup.drivers(new))
        if new := runs - self._runs.keys():
            _remember(self._runs, self._lookup.runs(new))

    def _refusal(self, event: WireEvent, entry: bytes) -> str:
        sender = self._drivers.get(event.driver)
        if sender is None:
            return f"there is no driver number {event.driver}"
        if event.epoch != sender.epoch:
            return f"driver number {event.driver} has epoch {sender.epoch}, not {event.epoch}"
        if not is_sealed(entry, sender.key):
            return f"it is not sealed by driver {event.epoch}"
        named = _runs_of(event)
        if len(named) > _MOST_RUNS:
            return f"it names {len(named)} runs, more than {_MOST_RUNS}"
        for run in sorted(named):
            driver, query = self._runs.get(run, (None, None))
            if driver != event.driver:
                return f"run number {run} does not belong to driver {event.epoch}"
            if event.run == run and event.query != query:
                return f"run number {run} does not belong to query number {event.query}"
        if event.run is None and event.query is not None:
            return "it is about a query but contains no run"
        return ""


def _runs_of(event: WireEvent) -> set[int]:
    """Return the runs that an event is about; a heartbeat lists them in its body."""
    runs = set() if event.run is None else {event.run}
    if event.kind is EventKind.HEARTBEAT:
        for part in ("queries", "task_times"):
            part_body = event.body.get(part)
            for entry in part_body if isinstance(part_body, list) else ():
                if isinstance(entry, dict) and is_number(entry.get("run")):
                    runs.add(entry["run"])
    return runs


def _remember(memory: OrderedDict[int, Value], entries: Mapping[int, Value]) -> None:
    memory.update(entries)
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)


def believed_only(spooled: Spooled, lookup: SenderLookup) -> Spooled:
    """Yield `spooled` without untrusted lines, because anyone could write to a spool folder."""
    senders = Senders(lookup)

    def lines(epoch: int, first: int) -> Iterator[tuple[int, bytes]]:
        for seq, entry in spooled(epoch, first):
            try:
                event = WireEvent.decode(entry)
                if (event.epoch, event.seq) != (epoch, seq):
                    raise ValueError(f"it is event {event.seq} of driver {event.epoch}")
                if refusal := senders.refusals([(event, entry)])[0]:
                    raise ValueError(refusal)
            except ValueError as error:
                logger.warning("skipping line %s of driver %s's spool: %s", seq, epoch, error)
                continue
            yield seq, entry

    return lines
