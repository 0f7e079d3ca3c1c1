"""End sessions and the pages open in them."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from controlplane.nudge import changed
from queries.domain.access.acts import Act
from queries.domain.errors import Missing
from queries.models.access.sessions import BrowserSession, living
from queries.selectors.access.sessions import name_of, sessions_of
from queries.services.access.audit_trail import record_act


def note_use(session_key: str, *, now: datetime) -> None:
    """Extend a session's idle timeout."""
    BrowserSession.objects.filter(session_key=session_key).update(seen_at=now)


def end_session(*, user: User, name: str, actor: str, now: datetime) -> None:
    """End the user's session with this displayed name; raise `Missing` if there is none."""
    for row in sessions_of(user, now=now):
        if name_of(row.session_key) == name:
            _end(user, [row.session_key], actor, now)
            return
    raise Missing("This browser is no longer signed in.")


def end_sessions(*, user: User, actor: str, now: datetime, but: str = "") -> int:
    """End a user's sessions, except `but` if given; return how many. Tokens are not sessions."""
    keys = [row.session_key for row in sessions_of(user, now=now) if row.session_key != but]
    if keys:
        _end(user, keys, actor, now)
    return len(keys)


def _end(user: User, keys: list[str], actor: str, now: datetime) -> None:
    with transaction.atomic():
        BrowserSession.objects.filter(pk__in=keys).delete()
        record_act(
            Act.SESSIONS_ENDED, actor=actor, now=now, subject=user.username, sessions=len(keys)
        )
        end_streams(user)


def end_streams(user: User) -> None:
    """Make every web process close a user's live pages; pages that are still allowed reconnect.

    Without Redis, each web process notices within 5 s that a session has ended.
    """
    changed(f"person:{user.pk}")


def forget_expired_sessions(*, now: datetime) -> int:
    """Delete expired sessions; return how many. Every attempted sign-in creates one."""
    return int(BrowserSession.objects.exclude(living(now)).delete()[0])
