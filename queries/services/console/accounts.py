"""Who may do what: accounts and their roles. Only an admin calls these."""

import secrets
from datetime import datetime

from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import transaction

from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.roles import Role, role_of
from queries.selectors.access.group_roles import comes_by_single_sign_on
from queries.selectors.console.accounts import sessions_of

#: Random bytes of a first password; 18 make 24 characters.
PASSWORD_BYTES = 18


def create_user(*, username: str, role: Role | None) -> tuple[User, str]:
    """Create an account and return it with its random password, which is shown only now."""
    name = username.strip()
    if not name or len(name) > 150 or not all(c.isalnum() or c in "@.+-_" for c in name):
        way_out = "Use 1 to 150 letters, digits and @ . + - _"
        raise Invalid([Problem("username", name[:200], "is not a valid name.", way_out)])
    with transaction.atomic():
        if User.objects.filter(username__iexact=name).exists():
            raise Invalid([Problem("username", name, "is taken.", "Choose another.")])
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        user = User.objects.create_user(name, password=password)
        give_role(user, role)
    return user, password


def set_role(*, user: User, role: Role | None) -> None:
    """Give a user this role alone; None takes every role away.

    Raises `NotAllowed` where no admin would be left, or the role comes from groups.
    """
    _is_local(user)
    with transaction.atomic():
        if role is not Role.ADMIN:
            _keep_an_admin(user)
        give_role(user, role)


def reset_password(*, user: User) -> str:
    """Give a user a new random password and return it; raise `NotAllowed` where it has none."""
    _is_local(user)
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    user.set_password(password)
    user.save(update_fields=["password"])
    return password


def set_active(*, user: User, active: bool) -> None:
    """Activate an account, or deactivate it with its sessions and tokens; its history stays."""
    with transaction.atomic():
        if not active:
            _keep_an_admin(user)
        user.is_active = active
        user.save(update_fields=["is_active"])


def give_role(user: User, role: Role | None) -> None:
    """Give a user this role alone, as whoever calls has decided."""
    groups = {name: Group.objects.get_or_create(name=name)[0] for name in Role}
    user.groups.remove(*groups.values())
    if role is not None:
        user.groups.add(groups[role])


def _is_local(user: User) -> None:
    if comes_by_single_sign_on(user):
        raise NotAllowed(
            f"{user.username} comes by single sign-on.",
            way_out="Its role follows from its groups, and it has no password here.",
        )


def _keep_an_admin(leaving: User) -> None:
    if role_of(leaving) is not Role.ADMIN:
        return
    if leaving.is_superuser and leaving.is_active:
        raise NotAllowed(
            f"{leaving.username} is a superuser and stays an admin.",
            way_out="It was created with `manage.py` and can only be changed there.",
        )
    others = User.objects.filter(is_active=True).exclude(pk=leaving.pk)
    if not any(role_of(other) is Role.ADMIN for other in others):
        raise NotAllowed(
            f"{leaving.username} is the last admin.", way_out="Make another user an admin first."
        )


def forget_expired_sessions(*, now: datetime) -> int:
    """Delete sessions that have expired; return how many. Each sign-in that is begun makes one."""
    deleted: int = Session.objects.filter(expire_date__lt=now).delete()[0]
    return deleted


def sign_out_elsewhere(*, user: User, but: str, now: datetime) -> int:
    """End a user's sessions but one; return how many ended. Tokens are no sessions, and stay."""
    others = [row.pk for row in sessions_of(user, now=now) if row.pk != but]
    Session.objects.filter(pk__in=others).delete()
    return len(others)
