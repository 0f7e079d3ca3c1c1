"""What belongs to accounts: sessions, teams and grants, roles, tokens, saved views, kept
responses.

This module is the SESSION_ENGINE setting. A session ends when it is idle for longer than the idle
timeout, and in any case at its maximum age.

Also recent wrong tokens by IP address, counted across all web processes.
"""

import uuid
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils import timezone
from knox.models import AbstractAuthToken

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


class GroupRole(models.Model):
    """A group in the identity provider, and the role that its members get. [P]"""

    group = models.CharField(max_length=255, unique=True)  # exactly as the provider writes it
    role = models.CharField(max_length=20)  # one of queries.roles.Role
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)  # user name

    class Meta:
        ordering: ClassVar = ["group"]

    def __str__(self) -> str:
        return f"{self.group}: {self.role}"


class Team(models.Model):
    """Users who can act on the same applications."""

    name = models.CharField(max_length=63, unique=True)
    created_at = models.DateTimeField()
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="teams")

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class Grant(models.Model):
    """An account's grants in addition to its role; an account without a row has none."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="grant"
    )
    all_teams = models.BooleanField(default=False)  # can act on every team's applications
    write_python = models.BooleanField(default=False)  # can bring code into drivers

    def __str__(self) -> str:
        return f"grants of {self.user.get_username()}"


class KeptAnswer(models.Model):
    """One key of one user: the request and its response, stored for a day."""

    user = models.CharField(max_length=150)  # user name
    key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64)  # of method, address and body
    status = models.IntegerField(null=True)  # null while it is being answered
    headers = models.JSONField(default=dict)  # Location, ETag
    body = models.JSONField(null=True)  # secrets masked
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "key"], name="kept_answer_key")
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.user}"


class Scope(StrEnum):
    """A token's maximum rights; its user's role limits them further."""

    READ = "read"
    OPERATE = "operate"
    AUTHOR = "author"
    ADMIN = "admin"


class AccessToken(AbstractAuthToken):  # type: ignore[misc]  # knox has no types
    """A token that acts for a user, within its limits, until it expires or is revoked."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=80)  # its purpose: "deploy job"
    created_by = models.CharField(max_length=150, default="")  # user name of its creator
    scope = models.CharField(max_length=8, default=Scope.READ, choices=[(s, s) for s in Scope])
    #: If set, the token acts on this team's applications only; null: on its user's. A token is
    #: deleted with its team, because without the limit it would grant access to more.
    team = models.ForeignKey("queries.Team", null=True, on_delete=models.CASCADE, related_name="+")
    #: Whether it is restricted to `applications`. This is a separate column, because a list that
    #: has become empty must not mean "all".
    is_listed = models.BooleanField(default=False)
    applications = models.ManyToManyField("queries.Application", related_name="+")
    last_used_at = models.DateTimeField(null=True)  # to the minute

    class Meta:
        ordering: ClassVar = ["-created"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user.get_username()}"


class TokenGuess(models.Model):
    """One wrong token from one IP address; repeating it does not count as another guess."""

    address = models.CharField(max_length=45)
    name = models.CharField(max_length=16)  # a keyed digest: the text may be a password
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["address", "name"], name="one_row_a_guess")
        ]

    def __str__(self) -> str:
        return f"a wrong token from {self.address}"


class SavedView(models.Model):
    """A user's filters and grouping of the query list, under a name. [P]"""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views"
    )
    name = models.CharField(max_length=80)
    address = models.CharField(max_length=1000)  # query string of the list's address
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "name"], name="saved_view_name")
        ]
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name
