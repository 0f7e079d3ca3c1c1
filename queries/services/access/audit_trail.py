"""Write the audit log: one entry per action, chained after the commit, pruned up to anchors.

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
from collections.abc import Iterable
from contextlib import closing
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils.crypto import salted_hmac

from queries.domain.access.acts import Act
from queries.domain.access.chain import Key, is_sealed
from queries.models.access.audit_trail import AuditAnchor, AuditEntry, AuditHead
from queries.services.access.asker import Asker, asker
from queries.services.prepared_rows import Prepared

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

    `details` can hold texts, integers, flags, None, and lists of them; never a secret.
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
    """Return a text without NULs and lone surrogates, so that every database accepts it."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:longest]
