"""Browser sessions of users."""

from collections.abc import Collection
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.utils.crypto import salted_hmac

from queries.models.access.sessions import BrowserSession, living
from queries.roles import Role


def sessions_of(user: User, *, now: datetime) -> QuerySet[BrowserSession]:
    """Return a user's sessions that have not ended, most recently used first."""
    return BrowserSession.objects.filter(living(now), account=user).order_by("-seen_at", "pk")


def name_of(session_key: str) -> str:
    """Return a session's displayed name; its key cannot be shown, because it allows signing in."""
    return salted_hmac("headgate.session.name", session_key, algorithm="sha256").hexdigest()[:16]


def viewing_sessions(keys: Collection[str], *, now: datetime) -> set[str]:
    """Return which of these sessions have not ended and belong to an account that can view."""
    rows = BrowserSession.objects.filter(living(now), pk__in=keys, account__is_active=True)
    has_role = Q(account__is_superuser=True) | Q(account__groups__name__in=list(Role))
    return set(rows.filter(has_role).values_list("pk", flat=True))
