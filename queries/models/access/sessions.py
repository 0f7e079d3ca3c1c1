"""Browser sessions: Django's sessions, with details for their owner.

This module is the SESSION_ENGINE setting. A session ends when it is idle for longer than the idle
timeout, and in any case at its maximum age.
"""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils import timezone

#: Keys in a session's data besides Django's: set at sign-in.
SIGNED_IN_AT, ADDRESS, BROWSER = "signed_in_at", "address", "browser"
LONGEST_BROWSER = 300  # characters


class BrowserSession(AbstractBaseSession):
    """A browser in which a user is signed in, or has started to sign in."""

    account = models.ForeignKey("auth.User", null=True, on_delete=models.CASCADE)
    signed_in_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)  # of its last request, to the minute
    address = models.CharField(max_length=45, default="")  # client address at sign-in
    browser = models.CharField(max_length=LONGEST_BROWSER, default="")  # its User-Agent

    class Meta(AbstractBaseSession.Meta):
        pass

    @classmethod
    def get_session_store_class(cls) -> type["SessionStore"]:
        """Return the class that reads and writes these rows."""
        return SessionStore


def living(now: datetime) -> models.Q:
    """Return the condition for sessions that have not ended under either limit."""
    idle = now - timedelta(minutes=settings.SESSION_IDLE_MIN)
    return models.Q(expire_date__gt=now, seen_at__gt=idle)


class SessionStore(DatabaseStore):
    """Sessions in the database with an idle timeout and a maximum age."""

    seen_at: datetime | None = None  # when the row was last written; None until it is read

    @classmethod
    def get_model_class(cls) -> type[BrowserSession]:
        """Return the table."""
        return BrowserSession

    def load(self) -> dict[str, Any]:
        """Return the session's data; {} if it has ended."""
        return self._read(self._rows().first() if self.session_key else None)

    async def aload(self) -> dict[str, Any]:
        """Return the session's data; {} if it has ended."""
        return self._read(await self._rows().afirst() if self.session_key else None)

    def _rows(self) -> models.QuerySet[BrowserSession]:
        rows = BrowserSession.objects.filter(living(timezone.now()), session_key=self.session_key)
        return rows.order_by("session_key")

    def _read(self, row: BrowserSession | None) -> dict[str, Any]:
        if row is None:
            self._session_key = None
            return {}
        self.seen_at = row.seen_at
        contents: dict[str, Any] = self.decode(row.session_data)
        return contents

    def create_model_instance(self, data: dict[str, Any]) -> BrowserSession:
        """Return the row for these data."""
        return self._described(super().create_model_instance(_begun(data)), data)

    async def acreate_model_instance(self, data: dict[str, Any]) -> BrowserSession:
        """Return the row for these data."""
        return self._described(await super().acreate_model_instance(_begun(data)), data)

    def _described(self, row: Any, data: dict[str, Any]) -> BrowserSession:
        """Fill in the columns next to the data; a session being written counts as just seen."""
        row.account_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
        row.signed_in_at = datetime.fromisoformat(data[SIGNED_IN_AT])
        # `set_expiry` may have set an earlier end, as single sign-on does.
        longest = row.signed_in_at + timedelta(seconds=settings.SESSION_COOKIE_AGE)
        row.expire_date = min(row.expire_date, longest)
        row.seen_at = timezone.now()
        row.address, row.browser = data.get(ADDRESS, ""), data.get(BROWSER, "")
        session: BrowserSession = row
        return session

    @classmethod
    def clear_expired(cls) -> None:
        """Delete the sessions that have ended."""
        BrowserSession.objects.exclude(living(timezone.now())).delete()


def _begun(data: dict[str, Any]) -> dict[str, Any]:
    """Ensure that the data contain the sign-in time, which later writes preserve."""
    data.setdefault(SIGNED_IN_AT, timezone.now().isoformat())
    return data
