"""Tokens for CI: given by an admin on page, by REST or by command; revoked by owner or admin."""

from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from queries.domain.access.acts import Act
from queries.domain.errors import Invalid, Problem
from queries.models.tokens import AccessToken
from queries.services.access.audit_trail import record_act

#: How many days a token is valid by default, and at most.
DEFAULT_DAYS = 90
LONGEST_DAYS = 366


def create_token(
    *, user: AbstractBaseUser, name: str, actor: str, now: datetime, days: int = DEFAULT_DAYS
) -> tuple[AccessToken, str]:
    """Return a new token's row and its text, which cannot be read again afterwards.

    It expires after `days` (1 to 366). Raises `Invalid` for an invalid name or duration.
    """
    problems = []
    if not name.strip() or len(name) > 80:
        problems.append(
            Problem(
                "name", name[:200], "must have 1 to 80 characters.", "Say what the token is for."
            )
        )
    if not 1 <= days <= LONGEST_DAYS:
        problems.append(
            Problem(
                "days",
                str(days),
                f"is not between 1 and {LONGEST_DAYS}.",
                "Renew it before it expires.",
            )
        )
    if problems:
        raise Invalid(problems)
    with transaction.atomic():
        row, text = AccessToken.objects.create(
            user=user, expiry=timedelta(days=days), name=name.strip(), created_by=actor
        )
        about = {**_about(row), "days": days}
        record_act(Act.TOKEN_CREATED, actor=actor, now=now, subject=row.name, **about)
    return row, text


def revoke_token(*, token: AccessToken, actor: str, now: datetime) -> None:
    """Revoke a token at once."""
    with transaction.atomic():
        about = _about(token)
        token.delete()
        record_act(Act.TOKEN_REVOKED, actor=actor, now=now, subject=token.name, **about)


def _about(token: AccessToken) -> dict[str, str]:
    return {"user": token.user.get_username(), "token_uuid": str(token.uuid)}


def forget_expired_tokens(*, now: datetime) -> int:
    """Delete expired tokens; return how many."""
    deleted: int = AccessToken.objects.filter(expiry__lt=now).delete()[0]
    return deleted
