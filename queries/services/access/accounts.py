"""Manage accounts and their roles. Only admins may call these functions."""

import secrets
from datetime import datetime

from django.contrib.auth.models import Group, User
from django.db import transaction

from queries.domain.access.acts import Act
from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.roles import Role, highest_role, role_of
from queries.selectors.access.group_roles import comes_by_single_sign_on
from queries.services.access.audit_trail import record_act
from queries.services.access.root_worker import refuse_author
from queries.services.access.sessions import end_sessions, end_streams

#: Random bytes in an initial password; 18 bytes encode to 24 characters.
PASSWORD_BYTES = 18


def create_user(*, username: str, role: Role | None, actor: str, now: datetime) -> tuple[User, str]:
    """Create an account and return it with its random password, which is shown only once.

    Raises `Invalid` for the name, and `Conflict` for an author (`root_worker`).
    """
    name = username.strip()
    if not name or len(name) > 150 or not all(c.isalnum() or c in "@.+-_" for c in name):
        way_out = "Use 1 to 150 letters, digits and @ . + - _"
        raise Invalid([Problem("username", name[:200], "is not a valid name.", way_out)])
    with transaction.atomic():
        if User.objects.filter(username__iexact=name).exists():
            raise Invalid([Problem("username", name, "is already in use.", "Choose another name.")])
        if role is Role.AUTHOR:
            refuse_author(name)
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        user = User.objects.create_user(name, password=password)
        give_role(user, role)
        record_act(Act.USER_CREATED, actor=actor, now=now, subject=name, role=role)
    return user, password


def set_role(*, user: User, role: Role | None, actor: str, now: datetime) -> None:
    """Give a user exactly one role; None removes every role. Open pages show this immediately.

    Raises `NotAllowed` if no admin would remain, or if the role comes from groups; `Conflict` for
    an author beside a risky worker (`root_worker`).
    """
    _is_local(user)
    with transaction.atomic():
        if role is not Role.ADMIN:
            _keep_an_admin(user)
        before = highest_role(user)
        if role is Role.AUTHOR:
            refuse_author(user.username, before)
        give_role(user, role)
        about = {"before": before, "after": role or "none"}
        record_act(Act.ROLE_GIVEN, actor=actor, now=now, subject=user.username, **about)
        end_streams(user)


def reset_password(*, user: User, actor: str, now: datetime) -> str:
    """Give a user a new random password and return it; end the user's existing sessions.

    Raises `NotAllowed` for an account without a password (single sign-on).
    """
    _is_local(user)
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    with transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        record_act(Act.PASSWORD_RESET, actor=actor, now=now, subject=user.username)
        end_sessions(user=user, actor=actor, now=now)
    return password


def note_new_password(*, user: User, but: str, now: datetime) -> None:
    """Record that a user has changed their password; end the user's sessions except `but`."""
    with transaction.atomic():
        name = user.username
        record_act(Act.PASSWORD_CHANGED, actor=name, now=now, subject=name)
        end_sessions(user=user, actor=name, now=now, but=but)


def set_active(*, user: User, active: bool, actor: str, now: datetime) -> None:
    """Activate an account, or deactivate it and immediately end its sessions and open pages.

    Tokens of an inactive account are rejected; its history is kept.
    """
    with transaction.atomic():
        if not active:
            _keep_an_admin(user)
        elif not user.is_active and highest_role(user) is Role.AUTHOR:
            refuse_author(user.username)
        user.is_active = active
        user.save(update_fields=["is_active"])
        kind = Act.USER_ACTIVATED if active else Act.USER_DEACTIVATED
        record_act(kind, actor=actor, now=now, subject=user.username)
        if not active:
            end_sessions(user=user, actor=actor, now=now)


def give_role(user: User, role: Role | None) -> None:
    """Give a user exactly one role, without checks: the caller has already made them."""
    groups = {name: Group.objects.get_or_create(name=name)[0] for name in Role}
    user.groups.remove(*groups.values())
    if role is not None:
        user.groups.add(groups[role])


def _is_local(user: User) -> None:
    if comes_by_single_sign_on(user):
        raise NotAllowed(
            f"{user.username} signs in through SSO.",
            way_out="The role comes from the user's groups, and there is no password here.",
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
