"""Verify the audit log: no entry was altered, and none is missing at the end."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Max

from queries.domain.access.chain import BEGINNING, Broken, Key, Mark, is_sealed, walk
from queries.models.access.audit_guard import missing_guards
from queries.models.access.audit_trail import AuditAnchor, AuditEntry, AuditHead
from queries.services.access.audit_trail import key

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
    """Verify the whole log; raise `Broken` at the first entry that was altered.

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
