"""Requests that are sent twice: by an Idempotency-Key, the second gets the answer of the first.

A key is taken before the request is served. Only an answer that has changed something is kept, and
without its secrets; any other frees the key, so that a corrected body may use it again.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.db import IntegrityError, transaction

from queries.domain.errors import Conflict, Invalid, Problem
from queries.domain.masking import mask
from queries.models.manifests.kept_answers import KeptAnswer

#: How long an answer is kept.
KEPT = timedelta(hours=24)
#: A request that is served for longer has died with its process; the longest wait is a minute.
_SERVED_WITHIN = timedelta(minutes=10)
_LONGEST_KEY = 255
_REMOVED_AT_ONCE = 1000


class _Served(Conflict):
    """The same request is being answered."""

    retry_after_s = 1


def digest_of(method: str, address: str, body: Any) -> str:
    """Return what tells one request from another; raise TypeError for a body that is no JSON.

    A body that is read as a stream is given by the digest of what it holds.
    """
    text = json.dumps([method, address, body], sort_keys=True)
    return sha256(text.encode()).hexdigest()


def take_key(*, user: str, key: str, digest: str, now: datetime) -> KeptAnswer:
    """Return the row of a key: with its answer where the same request has had one.

    Raises `Invalid` for a key that is none, `Conflict` for one that another request has, and while
    the same request is being answered.
    """
    if not (0 < len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable()):
        way_out = f"Use 1 to {_LONGEST_KEY} printable characters, such as a UUID."
        raise Invalid([Problem("Idempotency-Key", key[:200], "is not a key.", way_out)])
    KeptAnswer.objects.filter(user=user, key=key, created_at__lte=now - KEPT).delete()
    try:
        with transaction.atomic():
            return KeptAnswer.objects.create(user=user, key=key, digest=digest, created_at=now)
    except IntegrityError:
        row = KeptAnswer.objects.filter(user=user, key=key).first()
    if row is None:
        raise _Served(f"The key {key} was freed just now.", way_out="Send it again.")
    if row.digest != digest:
        raise Conflict(
            f"The key {key} belongs to another request, of {row.created_at:%H:%M:%S} UTC.",
            way_out="Use a new key for a new request; a repeated one must be the same.",
        )
    if row.status is None and row.created_at > now - _SERVED_WITHIN:
        raise _Served(way_out="Wait for it, or send it again later.")
    if row.status is None:
        raise Conflict(
            "The same request was not answered: its process has ended meanwhile.",
            way_out="Look at what it should have changed, then send it with a new key.",
        )
    return row


def keep_answer(row: KeptAnswer, *, status: int, headers: Mapping[str, str], body: Any) -> None:
    """Keep the answer of a request, with its secrets masked."""
    kept = {"status": status, "headers": dict(headers), "body": mask(body)}
    KeptAnswer.objects.filter(pk=row.pk).update(**kept)


def free_key(row: KeptAnswer) -> None:
    """Let a key be used again: its request has changed nothing."""
    KeptAnswer.objects.filter(pk=row.pk).delete()


def forget_answers(*, now: datetime) -> int:
    """Remove the answers that are older than they are kept; return how many."""
    removed = 0
    while True:
        old = KeptAnswer.objects.filter(created_at__lte=now - KEPT).order_by("pk")
        ids = list(old.values_list("pk", flat=True)[:_REMOVED_AT_ONCE])
        if not ids:
            return removed
        removed += KeptAnswer.objects.filter(pk__in=ids).delete()[0]
