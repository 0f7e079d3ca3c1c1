"""Who asks, by a token: its limits, its last use, and an end to guessing.

Wrong tokens are counted by the address that they come from, each one once: a script that goes on
with an expired token harms nobody, and whoever tries others is stopped. They are counted in the
database, as wrong passwords are: an address has its guesses once, however many web processes run.
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

from queries.models.access.token_guesses import TokenGuess
from queries.models.tokens import AccessToken
from queries.roles import limit_to

logger = logging.getLogger(__name__)

#: How exact a token's last use is: so often is it written at most.
USED_EVERY = timedelta(minutes=1)
#: So many different wrong tokens of one address within the time; the next request waits.
GUESSES_AT_MOST = 10
GUESSES_WITHIN = timedelta(minutes=10)
#: Guesses of all addresses that are remembered at once, the last ones.
_GUESSES_KEPT = 100_000


def wait_s(address: str, *, now: datetime) -> float:
    """Return for how many seconds no token of an address is looked at; 0: it is."""
    recent = _recent(address, now).order_by("-at").values_list("at", flat=True)
    oldest = recent[GUESSES_AT_MOST - 1 : GUESSES_AT_MOST].first()
    return (oldest + GUESSES_WITHIN - now).total_seconds() if oldest else 0.0


def note_guess(address: str, token: bytes, *, now: datetime) -> None:
    """Count a wrong token, and forget those that count no longer.

    Where it cannot be written, on a full or busy disk, it is not counted.
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
    """A token in the header "Authorization: Token …"."""

    def authenticate(self, request: Any) -> tuple[Any, AccessToken] | None:
        """Return the user, limited to what the token allows, and the token; None without one.

        Raises `Throttled` for an address that has guessed too often.
        """
        self._address = str(request.META.get("REMOTE_ADDR", ""))
        found: tuple[Any, AccessToken] | None = super().authenticate(request)
        if found is None:
            return None
        user, token = found
        limit_to(user, token)
        note_use(token)
        return user, token

    def authenticate_credentials(self, token: bytes) -> Any:
        """Return (user, token) for a token's text; raise `AuthenticationFailed` for a wrong one."""
        if wait := wait_s(self._address, now=timezone.now()):
            raise Throttled(wait, "Too many wrong tokens came from your address.")
        try:
            return super().authenticate_credentials(token)
        except UnicodeDecodeError as error:
            note_guess(self._address, token, now=timezone.now())
            raise AuthenticationFailed("Invalid token.") from error
        except AuthenticationFailed:
            note_guess(self._address, token, now=timezone.now())
            logger.warning("a wrong token came from %s", self._address)
            raise


def note_use(token: AccessToken) -> None:
    """Remember that a token is used now, to the minute; a full or busy disk keeps nobody out."""
    now = timezone.now()
    if token.last_used_at is not None and now - token.last_used_at < USED_EVERY:
        return
    stale = Q(last_used_at=None) | Q(last_used_at__lte=now - USED_EVERY)
    with suppress(DatabaseError), transaction.atomic():
        AccessToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
