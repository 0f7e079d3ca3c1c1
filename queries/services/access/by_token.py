"""Who asks, by a token: its limits, its last use, and an end to guessing.

Wrong tokens are counted by the address that they come from, each one once: a script that goes on
with an expired token harms nobody, and whoever tries others is stopped.
"""

import logging
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.db import DatabaseError, transaction
from django.db.models import Q
from django.utils import timezone
from knox.auth import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed, Throttled

from queries.models.tokens import AccessToken
from queries.roles import limit_to

logger = logging.getLogger(__name__)

#: How exact a token's last use is: so often is it written at most.
USED_EVERY = timedelta(minutes=1)
#: So many different wrong tokens of one address within the time; the next request waits.
GUESSES_AT_MOST = 10
GUESSES_WITHIN_S = 600
#: Addresses that are remembered at once, those that guessed last.
_ADDRESSES_AT_MOST = 10_000


class Guesses:
    """The wrong tokens that came from each address, in one web process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: OrderedDict[str, dict[bytes, float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return for how long no token of an address is looked at; 0: it is."""
        now = time.monotonic()
        with self._lock:
            times = sorted(self._recent(address, now).values())
        return times[-GUESSES_AT_MOST] + GUESSES_WITHIN_S - now if _many(times) else 0.0

    def note(self, address: str, token: bytes) -> None:
        """Count a wrong token; one that was wrong before is the same guess."""
        now, name = time.monotonic(), sha256(token).digest()[:8]
        with self._lock:
            guessed = self._recent(address, now)
            if name not in guessed and not _many(guessed):
                guessed[name] = now
            self._of[address] = guessed
            self._of.move_to_end(address)
            while len(self._of) > _ADDRESSES_AT_MOST:
                self._of.popitem(last=False)

    def forget(self) -> None:
        """Begin anew, as a new process does."""
        with self._lock:
            self._of.clear()

    def _recent(self, address: str, now: float) -> dict[bytes, float]:
        known = self._of.get(address, {})
        return {name: at for name, at in known.items() if now - at < GUESSES_WITHIN_S}


def _many(guesses: Any) -> bool:
    return len(guesses) >= GUESSES_AT_MOST


guesses = Guesses()


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
        if wait := guesses.wait_s(self._address):
            raise Throttled(wait, "Too many wrong tokens came from your address.")
        try:
            return super().authenticate_credentials(token)
        except UnicodeDecodeError as error:
            guesses.note(self._address, token)
            raise AuthenticationFailed("Invalid token.") from error
        except AuthenticationFailed:
            guesses.note(self._address, token)
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
