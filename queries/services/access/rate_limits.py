"""Limit how many operations a user or a token can request per minute.

Requests are counted in the audit log, which records every request with its user and token, is
shared by all web processes, and works without Redis, so that operators are not blocked when Redis
is down. Only requests from pages and REST count. Commands, tasks, and steps that an operation takes
itself do not. A bulk action counts once, whatever it starts, and has its own limit.
"""

import math
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from queries.domain.access.acts import Act
from queries.domain.errors import TooMany
from queries.domain.states import READING_VERBS, Verb
from queries.models.access.audit_trail import AuditEntry
from queries.models.history import Operation
from queries.services.access.asker import asker
from queries.services.access.audit_trail import record_act

WINDOW = timedelta(minutes=1)
#: The setting that limits each kind of action, and the noun for its requests.
_LIMITS = {
    Act.OPERATION: ("OPERATIONS_PER_MINUTE", "operations"),
    Act.PROBE: ("PROBES_PER_MINUTE", "preflights, X-rays, record look-ups, snapshots and clones"),
    Act.BULK: ("BULK_PER_MINUTE", "bulk actions"),
    Act.DEPLOY: ("DEPLOYS_PER_MINUTE", "deploys"),
    Act.CODE_UPLOADED: ("UPLOADS_PER_MINUTE", "uploads"),
}
#: A detail found only in the request's entry; the action is recorded again when it ends.
_ONLY_A_REQUEST = {Act.DEPLOY: "waves"}


def record_operation(operation: Operation, *, now: datetime) -> None:
    """Record who requested an operation; raise `TooMany` if the limit is exceeded.

    Call it in the operation's own transaction. A step of another operation is not recorded.
    """
    if operation.parent_id is not None:
        return
    here = asker()
    plain = Act.PROBE if operation.verb in READING_VERBS else Act.OPERATION
    kind = Act.BULK_ITEM if here is not None and here.bulk else plain
    _allow(kind, operation.actor, now)
    about = {"verb": operation.verb, "operation": operation.uuid}
    record_act(kind, actor=operation.actor, now=now, subject=operation.subject, **about)


def begin_bulk(*, verb: Verb, count: int, actor: str, now: datetime) -> None:
    """Record a bulk action on `count` queries; raise `TooMany` if the limit is exceeded.

    Starts and stops made by a deploy are part of it and are not counted.
    """
    here = asker()
    kind = Act.BULK_ITEM if here is not None and here.bulk else Act.BULK
    with transaction.atomic():
        _allow(kind, actor, now)
        record_act(kind, actor=actor, now=now, verb=verb, queries=count)


def record_deploy(*, actor: str, now: datetime, subject: str, waves: int, **about: Any) -> None:
    """Record a requested deploy, in its transaction; raise `TooMany` if the limit is exceeded."""
    _allow(Act.DEPLOY, actor, now)
    record_act(Act.DEPLOY, actor=actor, now=now, subject=subject, waves=waves, **about)


def allow_upload(*, actor: str, now: datetime) -> None:
    """Raise `TooMany` if a user uploads code too often; called before the archive is unpacked."""
    with transaction.atomic():
        _allow(Act.CODE_UPLOADED, actor, now)


def _allow(kind: Act, actor: str, now: datetime) -> None:
    here = asker()
    if here is None or kind not in _LIMITS:
        return
    setting, words = _LIMITS[kind]
    limit = getattr(settings, setting)
    if not limit:
        return
    # Serialize a user's simultaneous requests; otherwise all would see the same count.
    list(User.objects.select_for_update(no_key=True).filter(username=actor).values_list("pk"))
    rows = AuditEntry.objects.filter(
        actor=actor, kind=kind, token_id=here.token_id, at__gt=now - WINDOW
    )
    if mark := _ONLY_A_REQUEST.get(kind):
        rows = rows.filter(details__has_key=mark)
    counted = list(rows.order_by("-at").values_list("at", flat=True)[:limit])
    if len(counted) == limit:
        wait = max(1, math.ceil((counted[-1] + WINDOW - now).total_seconds()))
        whose = "This token has" if here.token_id else "You have"
        raise TooMany(
            f"{whose} requested {limit} {words} within a minute, which is the limit.",
            retry_after_s=wait,
        )
