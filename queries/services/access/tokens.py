"""Tokens for CI: manage them, authenticate with them, and limit requests per minute.

Wrong tokens are counted per IP address, each distinct token once: a script that keeps using one
expired token is not blocked, but an address that tries many tokens is, except with valid ones.
Like wrong passwords, they are counted in the database, so the limit holds across all web processes.

Requests are counted in the audit log, which records every request with its user and token, is
shared by all web processes, and works without Redis, so that operators are not blocked when Redis
is down. Only requests from pages and REST count. Commands, tasks, and an operation's own steps do
not. A bulk action counts once, whatever it starts, and has its own limit.

Admins create tokens in the console, over REST or from the command line. A token's owner or an admin
can revoke it.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import DatabaseError, transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac
from knox.auth import TokenAuthentication
from pydantic import Field
from rest_framework.exceptions import AuthenticationFailed, Throttled

from queries.domain.access import Act
from queries.domain.definitions.spec import Longest, StrictForm
from queries.domain.errors import Invalid, Problem, TooMany
from queries.domain.states import READING_VERBS, Verb
from queries.models.access.accounts import AccessToken, Scope, Team, TokenGuess
from queries.models.access.audit import AuditEntry
from queries.models.applications import Application
from queries.models.history import Operation
from queries.roles import VIEW, limit_to
from queries.selectors.access import team_named
from queries.selectors.console import owner_named, tokens_seen_by
from queries.services.access.admin_objects import AdminObject
from queries.services.access.admin_objects import Verb as AdminObjectsVerb
from queries.services.access.audit import asker, note_proxy, record_act

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
        """Return (user, token) for a token's value; raise `AuthenticationFailed` if it is wrong.

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


WINDOW = timedelta(minutes=1)
#: The setting that limits each kind of action, and the noun for its requests.
_LIMITS = {
    Act.OPERATION: ("OPERATIONS_PER_MINUTE", "operations"),
    Act.PROBE: (
        "PROBES_PER_MINUTE",
        "preflights, state inspections, record look-ups, snapshots and clones",
    ),
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


#: How many days a token is valid by default, and at most.
DEFAULT_DAYS = 90
LONGEST_DAYS = 366
#: A token's scope if none is given.
DEFAULT_SCOPE = Scope.AUTHOR
#: Scopes that cannot be restricted to a team or applications, and why.
_UNLIMITED = {
    Scope.READ: "cannot be limited to applications: everyone who can read can read all of them.",
    Scope.ADMIN: "cannot be limited to applications: an admin assigns rights on all of them.",
}


class TokenCreate(StrictForm):
    """A new token: its user, its purpose, its limits, its lifetime.

    name: What the token is for.
    scope: The token's maximum rights; its user's role limits them further.
    team: The token can act only on its applications; for the operate and author scopes.
    applications: The token can act only on these; for the operate and author scopes.
    """

    user: Annotated[str, Longest(150)]
    name: Annotated[str, Longest(80)]
    days: Annotated[int, Field(ge=1, le=LONGEST_DAYS)] = DEFAULT_DAYS
    scope: Scope = DEFAULT_SCOPE
    team: Annotated[str, Longest(63)] = ""
    applications: Annotated[list[Annotated[str, Longest(80)]], Longest(100)] = Field(
        default_factory=list
    )


def create_token(
    *,
    user: AbstractBaseUser,
    name: str,
    actor: str,
    now: datetime,
    days: int = DEFAULT_DAYS,
    scope: str = DEFAULT_SCOPE,
    team: str = "",
    applications: Sequence[str] = (),
) -> tuple[AccessToken, str]:
    """Return a new token's row and its secret value, which is shown only once.

    The token expires after `days` (1 to 366). It has its user's rights, limited to its scope and,
    if given, to the team's applications and those in `applications`. Raises `Invalid` for invalid
    arguments.
    """
    problems = _limit_problems(scope, limited=bool(team or applications))
    chosen, listed = _limits(team, applications, problems)
    if not name.strip() or len(name) > 80:
        problems.append(
            Problem(
                "name", name[:200], "must have 1 to 80 characters.", "Enter what the token is for."
            )
        )
    if not 1 <= days <= LONGEST_DAYS:
        problems.append(
            Problem(
                "days",
                str(days),
                f"is not between 1 and {LONGEST_DAYS}.",
                "Replace the token before it expires.",
            )
        )
    if problems:
        raise Invalid(problems)
    with transaction.atomic():
        row, text = AccessToken.objects.create(
            user=user,
            expiry=timedelta(days=days),
            name=name.strip(),
            created_by=actor,
            scope=scope,
            team=chosen,
            is_listed=bool(listed),
        )
        row.applications.set(listed)
        about = {**_about(row), "days": days, "scope": str(row.scope)}
        record_act(Act.TOKEN_CREATED, actor=actor, now=now, subject=row.name, **about)
    return row, text


def _limit_problems(scope: str, *, limited: bool) -> list[Problem]:
    if scope not in set(Scope):
        return [
            Problem("scope", scope[:200], "is not a valid scope.", f"Choose {', '.join(Scope)}.")
        ]
    if limited and scope in _UNLIMITED:
        way_out = "Remove team and applications, or choose operate or author."
        return [Problem("scope", scope, _UNLIMITED[Scope(scope)], way_out)]
    return []


def _limits(
    team: str, applications: Sequence[str], problems: list[Problem]
) -> tuple[Team | None, list[Application]]:
    """Return the team and the applications; add a problem for each name that does not exist."""
    team_row = None
    try:
        team_row = team_named(team) if team else None
    except Invalid as error:
        problems += error.problems
    living = Application.objects.filter(archived_at=None, name__in=list(applications))
    listed = list(living)
    existing_names = {row.name for row in listed}
    problems += [
        Problem("applications", name[:200], "is not an existing application.", "Check the names.")
        for name in applications
        if name not in existing_names
    ]
    return team_row, listed


def revoke_token(token: AccessToken, *, actor: str, now: datetime) -> None:
    """Revoke your own token; admins can revoke any token."""
    with transaction.atomic():
        about = _about(token)
        token.delete()
        record_act(Act.TOKEN_REVOKED, actor=actor, now=now, subject=token.name, **about)


def _about(token: AccessToken) -> dict[str, str]:
    return {"user": token.user.get_username(), "token_uuid": str(token.uuid)}


def create_token_for(form: Mapping[str, Any], **by: Any) -> tuple[AccessToken, str]:
    """Create a token for a user; its secret value is returned only once."""
    return create_token(**{**form, "user": owner_named(form["user"])}, **by)


def listed_tokens(user: Any) -> QuerySet[AccessToken]:
    """List your tokens; an admin sees all tokens, or those of `user`."""
    return tokens_seen_by(user)


TOKENS = AdminObject(
    "tokens/<uuid:uuid>/",
    "Token",
    listed_tokens,
    "Return a token, without its text.",
    create=AdminObjectsVerb("create_token", create_token_for, TokenCreate),
    remove=AdminObjectsVerb("revoke_token", revoke_token, permission=VIEW),
    permission=VIEW,
    shown_once="token",
    missing="The token does not exist, or it is not yours.",
    filters=(("user", "user__username", "Only this user's tokens; admins only."),),
)


def forget_expired_tokens(*, now: datetime) -> int:
    """Delete expired tokens; return how many."""
    deleted: int = AccessToken.objects.filter(expiry__lt=now).delete()[0]
    return deleted
