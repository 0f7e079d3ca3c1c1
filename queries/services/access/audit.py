"""The audit log: the origin of a request, one entry per action, chained after the commit;
export, proof.

Services take the actor and the time as arguments. Only the audit log and the rate limits need the
origin, so it is not passed through every call. Commands and tasks have no requester.

All its clients then count as one address: ten wrong tokens or passwords of one slow down all, they
share the limit of connections, and the audit log names the proxy. Only requests of signed-in users
are considered, because anyone can send X-Forwarded-For.

1. `record_act` inserts a sealed entry in the action's own transaction, so that either both exist or
   neither does.
2. After the commit, the entry gets its number and its MAC. Only this step locks the head of the
   chain, for milliseconds, so no action waits for another's transaction, and two writers can never
   continue from the same entry. If a process dies between these steps, the next process chains the
   entries that it left.
3. Entries older than `HEADGATE_AUDIT_DAYS` are removed up to an anchor, which stores the number and
   the MAC from which the remaining entries continue.
"""

import logging
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError, connection, transaction
from django.db.models import Max
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.crypto import salted_hmac

from queries.domain.access import BEGINNING, Act, Broken, Key, Mark, is_sealed, walk
from queries.domain.system import Part, ok, problem
from queries.models.access.audit import AuditAnchor, AuditEntry, AuditHead, missing_guards
from queries.selectors.access import exported
from queries.services.changes import Prepared


@dataclass(frozen=True, slots=True)
class Asker:
    """The client that sent a request."""

    address: str = ""
    browser: str = ""  # its User-Agent
    token: str = ""  # its name; "" for a session
    token_id: str = ""
    bulk: bool = False  # part of a bulk action or a deploy


_asker: ContextVar[Asker | None] = ContextVar("asker", default=None)


def asker() -> Asker | None:
    """Return the current request's asker; None outside a request."""
    return _asker.get()


@contextmanager
def asked_by(one: Asker) -> Iterator[None]:
    """Set `one` as the asker while a request is served."""
    before = _asker.get()
    _asker.set(one)
    try:
        yield
    finally:
        _asker.set(before)


@contextmanager
def in_bulk() -> Iterator[None]:
    """Count operations requested within this context as part of one bulk action."""
    with asked_by(replace(_asker.get() or Asker(), bulk=True)):
        yield


def note_token(token: Any) -> None:
    """Record the access token that authenticated the current request."""
    here = _asker.get()
    if here is not None:
        _asker.set(replace(here, token=token.name, token_id=str(token.uuid)))


PROXIES = "proxies"
#: How long a proxy is reported after its last request; a process forgets it when it ends.
_REPORTED_FOR = timedelta(hours=1)


class _Undeclared:
    """The undeclared proxy seen last by this process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._address = ""
        self._since: datetime | None = None
        self._last: datetime | None = None

    def note(self, address: str, now: datetime) -> None:
        """Record a request that arrived through an undeclared proxy."""
        with self._guard:
            if address != self._address or self._since is None:
                self._address, self._since = address, now
            self._last = now

    def seen(self, now: datetime) -> tuple[str, datetime] | None:
        """Return the proxy's address and since when it is known; None if there is none."""
        with self._guard:
            if self._since is None or self._last is None or now - self._last > _REPORTED_FOR:
                self._since = None
                return None
            return self._address, self._since


_undeclared = _Undeclared()


def note_proxy(meta: Mapping[str, Any], *, now: datetime) -> None:
    """Record the sender of a signed-in user's request if it forwards it without being declared.

    The address of a declared proxy's client has been taken from the header (`installation.asgi`).
    """
    address, forwarded = str(meta.get("REMOTE_ADDR") or ""), meta.get("HTTP_X_FORWARDED_FOR")
    if address and forwarded and address not in (one.strip() for one in forwarded.split(",")):
        _undeclared.note(address, now)


def proxies_part(now: datetime) -> Part:
    """Return whether requests come through a proxy that is not declared."""
    found = _undeclared.seen(now)
    if found is None:
        return ok(PROXIES, "No request came through an undeclared proxy.")
    address, since = found
    return problem(
        PROXIES,
        f"Requests come through a proxy at {address} that is not declared, so all its clients "
        "count as one address: the wrong tokens and passwords of one slow down all. Add the proxy "
        "to HEADGATE_TRUSTED_PROXIES and restart.",
        since,
    )


logger = logging.getLogger(__name__)

#: Entries chained or removed per transaction, which takes some tens of milliseconds.
SLICE, REMOVED_AT_ONCE = 100, 1000
_LONGEST = 500  # characters per text in `details`


def key(secret_key: str | None = None) -> Key:
    """Return the audit log's key, derived from this SECRET_KEY or an earlier one."""
    purpose = "headgate.audit"
    return Key(salted_hmac(purpose, "", secret=secret_key, algorithm="sha256").digest())


def record_act(
    kind: Act, /, *, actor: str, now: datetime, subject: str = "", **details: Any
) -> None:
    """Insert an entry into the audit log, in the action's own transaction.

    `details` can contain strings, integers, flags, None, and lists of them; never a secret.
    """
    act = sealed_act(kind, actor=actor, now=now, subject=subject, **details)
    insert_acts(Prepared([act]))


def sealed_act(
    kind: Act, /, *, actor: str, now: datetime, subject: str = "", **details: Any
) -> AuditEntry:
    """Return an entry to insert later, built in advance to keep that transaction short."""
    here = asker() or Asker()
    entry = AuditEntry(
        at=now,
        kind=kind,
        subject=_clean(subject, 255),
        actor=_clean(actor, 150),
        token=_clean(here.token, 80),
        token_id=here.token_id,
        address=_clean(here.address, 45),
        details={name: _plain(value) for name, value in details.items()},
        key=key().name,
    )
    entry.seal = key().seal(entry.content())
    return entry


def insert_acts(entries: Prepared[AuditEntry]) -> None:
    """Insert entries in their actions' transaction; they are chained after it."""
    with transaction.atomic():
        entries.insert()
        for _ in range(0, len(entries.rows), SLICE):
            transaction.on_commit(chain_entries, robust=True)


def note_act(kind: Act, /, *, actor: str, now: datetime, subject: str = "", **details: Any) -> None:
    """Record a rejected action; if the database fails, only log the failure.

    The action stays rejected either way. What is allowed must not happen without an entry: use
    `record_act`.
    """
    try:
        record_act(kind, actor=actor, now=now, subject=subject, **details)
    except DatabaseError:
        logger.exception("not recorded in the audit log: %s by %r", kind, actor)


def chain_entries() -> int:
    """Number entries that are not chained yet, at most `SLICE`; return how many.

    An entry without a valid seal was not written by Headgate: it is never chained, and `manage.py
    verify_audit` reports it.
    """
    with transaction.atomic():
        head = AuditHead.objects.select_for_update().get(pk=1)
        number, mac = head.number, head.mac
        rows: Any = AuditEntry.objects.filter(number=None).order_by("pk").iterator()
        with closing(rows):
            waiting = list(islice(_sealed(rows), SLICE))
        for entry in waiting:
            number += 1
            mac = key().link(mac, number, entry.seal)
            AuditEntry.objects.filter(pk=entry.pk).update(number=number, mac=mac)
        if waiting:
            AuditHead.objects.filter(pk=1).update(number=number, mac=mac)
    return len(waiting)


def _sealed(entries: Iterable[AuditEntry]) -> Iterable[AuditEntry]:
    ours = key()
    for entry in entries:
        if entry.key == ours.name and is_sealed(entry.content(), entry.seal, ours):
            yield entry


def prune_audit_log(*, now: datetime) -> int:
    """Remove entries older than the audit log's retention period; return how many.

    Each slice is one transaction: an anchor, then the entries up to it. The newest entry is always
    retained.
    """
    before = now - timedelta(days=settings.AUDIT_RETENTION_DAYS)
    removed = 0
    while count := _prune_slice(before, now):
        removed += count
    if removed:
        record_act(Act.LOG_PRUNED, actor="", now=now, entries=removed)
    return removed


def _prune_slice(before: datetime, now: datetime) -> int:
    with transaction.atomic():
        head = AuditHead.objects.select_for_update().get(pk=1)  # one worker at a time
        oldest = AuditEntry.objects.filter(number__lt=head.number).order_by("number")
        # Stop at the first entry to keep: entries are numbered in commit order, not by time.
        *_, last = (None, *takewhile(lambda entry: entry.at < before, oldest[:REMOVED_AT_ONCE]))
        if last is None or last.number is None:
            return 0
        anchor = AuditAnchor(number=last.number, mac=last.mac, at=now, key=key().name)
        anchor.seal = key().seal(anchor.content())
        anchor.save(force_insert=True)
        count, _ = AuditEntry.objects.filter(number__lte=last.number).delete()
        return count


def _plain(value: Any) -> Any:
    """Return a value in the form in which both databases return it."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return _clean(str(value), _LONGEST)


def _clean(text: str, longest: int) -> str:
    """Return a string without NULs and lone surrogates, so that every database accepts it."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:longest]


JSON_LINES = "application/x-ndjson"


def export_audit_log(
    request: HttpRequest, *, actor: str, now: datetime, after: int = 0
) -> StreamingHttpResponse:
    """Stream the entries after number `after` as JSON lines, fetching about 1,000 at a time.

    The export is recorded before anything is sent.
    """
    record_act(Act.EXPORTED, actor=actor, now=now, subject="audit log", what="log", since=after)
    # Under ASGI, Django would read a plain iterator into memory completely first.
    in_a_loop = isinstance(request, ASGIRequest)
    lines = _asked_for_in_a_loop(after) if in_a_loop else _asked_for(after)
    answer = StreamingHttpResponse(lines, content_type=JSON_LINES)
    answer["Cache-Control"] = "no-store"
    return answer


def _asked_for(after: int) -> Iterator[str]:
    while (found := exported(after))[0]:
        lines, after = found
        yield lines


async def _asked_for_in_a_loop(after: int) -> AsyncIterator[str]:
    while (found := await sync_to_async(exported)(after))[0]:
        lines, after = found
        yield lines


#: An entry still unchained after this long was not written by Headgate, or chaining has stopped.
CHAINED_WITHIN = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Proof:
    """The number of verified entries, and the head that the next proof must include."""

    head: Mark
    entries: int
    begins_after: int  # number of the newest anchor; 0 if nothing was ever removed
    waiting: int  # recent entries that are not chained yet


def prove(*, now: datetime, earlier: Mark = BEGINNING, old_keys: Sequence[str] = ()) -> Proof:
    """Verify the complete log; raise `Broken` at the first entry that was altered.

    `earlier` is a head from an earlier export. `old_keys` are previous values of SECRET_KEY.
    """
    keys = {one.name: one for one in (key(), *map(key, old_keys))}
    if missing := missing_guards(connection):
        raise Broken(0, f"triggers are missing ({', '.join(missing)}); run manage.py migrate")
    while True:
        begin = _anchor(keys)
        try:
            return _walked(begin, now, earlier, keys)
        except Broken:
            if _anchor(keys) == begin:  # else old entries have been removed since
                raise


def _walked(begin: Mark, now: datetime, earlier: Mark, keys: dict[str, Key]) -> Proof:
    """Verify the entries chained so far, without a lock: other processes keep writing."""
    last = AuditEntry.objects.aggregate(last=Max("number"))["last"] or 0
    found = AuditHead.objects.filter(pk=1).first()  # after the last entry, so never behind it
    if found is None:
        raise Broken(0, "the head of the chain is missing")
    head = found.mark()
    if last > head.number:
        raise Broken(head.number + 1, "was not written by Headgate: it follows the last entry")
    rows = AuditEntry.objects.filter(number__lte=head.number).order_by("number", "pk")
    stored: Any = rows.iterator(chunk_size=2000)
    with closing(stored):
        links = (row.link() for row in stored)
        end = walk(links, begin=begin, head=head, keys=keys, earlier=earlier)
    return Proof(end, end.number - begin.number, begin.number, _waiting(keys, now))


def _anchor(keys: dict[str, Key]) -> Mark:
    """Return where the log begins; raise `Broken` for an anchor not written by Headgate."""
    begin = BEGINNING
    for row in AuditAnchor.objects.order_by("number"):
        sealed_by = keys.get(row.key)
        if sealed_by is None or not is_sealed(row.content(), row.seal, sealed_by):
            raise Broken(row.number, "the anchor after it was not made by Headgate")
        begin = row.mark()
    return begin


def _waiting(keys: dict[str, Key], now: datetime) -> int:
    """Return the number of unchained entries; raise `Broken` for one that will never be chained."""
    waiting = 0
    for row in AuditEntry.objects.filter(number=None).order_by("pk"):
        sealed_by = keys.get(row.key)
        if sealed_by is None or not is_sealed(row.content(), row.seal, sealed_by):
            raise Broken(0, f"a row without a number (id {row.pk}) was not written by Headgate")
        if row.at < now - CHAINED_WITHIN:
            raise Broken(0, f"a row without a number (id {row.pk}) was not chained in time")
        waiting += 1
    return waiting
