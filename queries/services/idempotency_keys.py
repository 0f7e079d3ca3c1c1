"""Repeated requests: the response kept for an idempotency key, and creating what already exists.

A key is taken before the request is served. A response is stored, with secrets masked, only if the
request changed something; any other response frees the key, so that a corrected request can use it
again.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import IntegrityError, transaction

from headgate_ground.masking import mask
from queries.domain.code.references import ref_of, with_commit
from queries.domain.definitions import parsing
from queries.domain.definitions.locations import NotALocation, with_s3a
from queries.domain.errors import Conflict, Invalid, Problem
from queries.domain.validation.skipped import unchecked_sql
from queries.models.access.accounts import KeptAnswer
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.selectors.access import insist
from queries.services.local_roots import canonical_checkpoint

#: How long an answer is kept.
RETENTION = timedelta(hours=24)
#: A request being served for longer has died with its process; the longest wait is a minute.
_SERVED_WITHIN = timedelta(minutes=10)
LONGEST_KEY = 255
_REMOVED_AT_ONCE = 1000


class _Served(Conflict):
    """The same request is still being processed."""

    retry_after_s = 1


def digest_of(method: str, address: str, body: Any) -> str:
    """Return a request's digest; raise TypeError for a body that is not JSON.

    A body that is read as a stream is given as the digest of its content.
    """
    text = json.dumps([method, address, body], sort_keys=True)
    return sha256(text.encode()).hexdigest()


def take_key(*, user: str, key: str, digest: str, now: datetime) -> KeptAnswer:
    """Return a key's row, with the response if the same request was served before.

    Raises `Invalid` for an invalid key, and `Conflict` if a different request has used the key or
    the same request is still being served.
    """
    if not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        way_out = f"Use 1 to {LONGEST_KEY} printable characters, such as a UUID."
        raise Invalid([Problem("Idempotency-Key", key[:200], "is not a valid key.", way_out)])
    KeptAnswer.objects.filter(user=user, key=key, created_at__lte=now - RETENTION).delete()
    try:
        with transaction.atomic():
            return KeptAnswer.objects.create(user=user, key=key, digest=digest, created_at=now)
    except IntegrityError:
        row = KeptAnswer.objects.filter(user=user, key=key).first()
    if row is None:
        raise _Served(f"The key {key} was just released.", way_out="Send the request again.")
    if row.digest != digest:
        raise Conflict(
            f"The key {key} was used by another request at {row.created_at:%H:%M:%S} UTC.",
            way_out="Use a new key for a new request; a repeated request must be identical.",
        )
    if row.status is None and row.created_at > now - _SERVED_WITHIN:
        raise _Served(way_out="Wait for the response, or send the request again later.")
    if row.status is None:
        raise Conflict(
            "An earlier attempt at this request was not completed because its process ended.",
            way_out="Check whether its changes were made, then send the request with a new key.",
        )
    return row


def keep_answer(row: KeptAnswer, *, status: int, headers: Mapping[str, str], body: Any) -> None:
    """Store the response to a request, with its secrets masked."""
    response = {"status": status, "headers": dict(headers), "body": mask(body)}
    KeptAnswer.objects.filter(pk=row.pk).update(**response)


def free_key(row: KeptAnswer) -> None:
    """Free a key whose request did not change anything."""
    KeptAnswer.objects.filter(pk=row.pk).delete()


def forget_answers(*, now: datetime) -> int:
    """Delete responses past their retention period; return how many."""
    removed = 0
    while True:
        old = KeptAnswer.objects.filter(created_at__lte=now - RETENTION).order_by("pk")
        ids = list(old.values_list("pk", flat=True)[:_REMOVED_AT_ONCE])
        if not ids:
            return removed
        removed += KeptAnswer.objects.filter(pk__in=ids).delete()[0]


User = AbstractBaseUser | AnonymousUser


def same_query(user: User, sent: dict[str, Any]) -> Query | None:
    """Return the existing query that exactly matches a create request; None if there is none.

    Raises `Forbidden` if the user may not act on it.
    """
    row = Query.objects.filter(name=sent["name"], archived_at=None)
    query = row.select_related("application__team").first()
    if query is None or not _same(parsing.parse_query, sent["spec"], query):
        return None
    host, wanted = query.application, sent.get("application_spec")
    if sent["application"] != ("" if host.own and not sent["application"] else host.name):
        return None
    if wanted is not None and not _same(parsing.parse_application, wanted, host):
        return None
    if sent["checkpoint"]:
        try:
            location = canonical_checkpoint(sent["checkpoint"])
        except NotALocation:
            return None
        if not Checkpoint.objects.filter(query=query, location=location).exists():
            return None
    if sent["team"] and sent["team"] != (host.team.name if host.team else ""):
        return None
    insist(user, [host])
    return query


def refuse_unchecked(query: Query) -> None:
    """Raise `Invalid` if the SQL of a query's newest revision has not been checked."""
    if problems := unchecked_sql(query.revisions.order_by("-number")[0].skipped):
        raise Invalid(problems)


def same_application(user: User, sent: dict[str, Any]) -> Application | None:
    """Return the existing application that exactly matches a create request; see `same_query`."""
    rows = Application.objects.filter(name=sent["name"], archived_at=None, own=False)
    row = rows.select_related("team").first()
    if row is None or not _same(parsing.parse_application, sent["spec"], row):
        return None
    if sent["team"] and sent["team"] != (row.team.name if row.team else ""):
        return None
    insist(user, [row])
    return row


def _same(parse: Any, spec: Any, owner: Query | Application) -> bool:
    newest = owner.revisions.order_by("-number")[0].spec
    asked, code = ref_of(spec), newest.get("code") or {}
    if asked is not None and (code.get("git"), code.get("ref")) == (asked.git, asked.ref):
        spec = with_commit(spec, code["commit"])  # resolved at that time, not looked up again
    try:
        spec = with_s3a(spec, [])
        return bool(parsing.as_json(parse(spec)) == parsing.as_json(parse(newest)))
    except Invalid:
        return False
