"""Authenticate by token: enforce its limits, record its last use, and block guessing.

Wrong tokens are counted per IP address, each distinct token once: a script that keeps using one
expired token is not blocked, but an address that tries many tokens is, except with valid ones.
Like wrong passwords, they are counted in the database, so the limit holds across all web processes.
"""

import logging
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac
from knox.auth import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed, Throttled

from queries.models.tokens import AccessToken, TokenGuess
from queries.roles import limit_to
from queries.services.access.proxies import note_proxy

logger = logging.getLogger(__name__)

#: Resolution of a token's last use: it is written at most this often.
USED_EVERY = timedelta(minutes=1)
#: Distinct wrong tokens allowed per address within the window; the next wrong one must wait.
GUESSES_AT_MOST = 10
GUESSES_WITHIN = timedelta(minutes=10)
#: Guesses remembered across all addresses; the newest are kept.
_GUESSES_KEPT = 100_000


def wait_s(address: str, *, now: datetime) -> float:
    """Return the seconds until this IP address can try a wrong token again; 0 if it can now."""
    recent = _recent(address, now).order_by("-at").values_list("at", flat=True)
    oldest = recent[GUESSES_AT_MOST - 1 : GUESSES_AT_MOST].first()
    return (oldest + GUESSES_WITHIN - now).total_seconds() if oldest else 0.0


def note_guess(address: str, token: bytes, *, now: datetime) -> None:
    """Count a wrong token, and delete expired guesses.

    If the count cannot be written (disk full or busy), the token is not counted.
    """
    name = salted_hmac(__name__, token).hexdigest()[:16]
    if _recent(address, now).filter(name=name).exists():
        return
    with suppress(DatabaseError), transaction.atomic():
        newest = TokenGuess.objects.aggregate(Max("pk"))["pk__max"] or 0
        over = Q(at__lte=now - GUESSES_WITHIN) | Q(pk__lte=newest + 1 - _GUESSES_KEPT)
        TokenGuess.objects.filter(over).delete()
        row = TokenGuess(address=address, name=name, at=now)
        TokenGuess.objects.bulk_create([row], ignore_conflicts=True)


def _recent(address: str, now: datetime) -> QuerySet[TokenGuess]:
    return TokenGuess.objects.filter(address=address, at__gt=now - GUESSES_WITHIN)


class ByToken(TokenAuthentication):  # type: ignore[misc]  # knox has no types
    """Authentication by an "Authorization: Token …" header."""

    def authenticate(self, request: Any) -> tuple[Any, AccessToken] | None:
        """Return the user, restricted to the token's scope, and the token; None without a token.

        Raises `Throttled` for a wrong token from an IP address with too many before.
        """
        self._address = str(request.META.get("REMOTE_ADDR", ""))
        found: tuple[Any, AccessToken] | None = super().authenticate(request)
        if found is None:
            return None
        user, token = found
        limit_to(user, token)
        note_use(token)
        note_proxy(request.META, now=timezone.now())
        return user, token

    def authenticate_credentials(self, token: bytes) -> Any:
        """Return (user, token) for a token's text; raise `AuthenticationFailed` if it is wrong.

        A valid token is accepted whatever else its address sends: a token is too long to be
        guessed, and many clients may share the address.
        """
        try:
            return super().authenticate_credentials(token)
        except UnicodeDecodeError as error:
            self._count(token)
            raise AuthenticationFailed("Invalid token.") from error
        except AuthenticationFailed:
            self._count(token)
            raise

    def _count(self, token: bytes) -> None:
        """Count a wrong token; raise `Throttled` if its address has sent too many before."""
        now = timezone.now()
        if wait := wait_s(self._address, now=now):
            raise Throttled(wait, "Too many invalid tokens from your address.")
        note_guess(self._address, token, now=now)
        logger.warning("received a wrong token from %s", self._address)


def note_use(token: AccessToken) -> None:
    """Record a token's use, to the minute; a full or busy disk does not reject the request."""
    now = timezone.now()
    if token.last_used_at is not None and now - token.last_used_at < USED_EVERY:
        return
    stale = Q(last_used_at=None) | Q(last_used_at__lte=now - USED_EVERY)
    with suppress(DatabaseError), transaction.atomic():
        AccessToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
