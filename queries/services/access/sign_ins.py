"""Sign users in and out, and find the account and role of the identity provider's users.

Accounts are found only by issuer and subject. A matching name or mail address grants nothing:
otherwise, anyone who can choose their name at the provider could become that local user.
"""

from datetime import datetime, timedelta
from typing import Annotated, Any

from allauth.socialaccount.models import SocialAccount
from axes.signals import user_locked_out
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from queries.domain.access import Act, Arrival, read_group
from queries.domain.definitions.spec import Longest, StrictForm
from queries.domain.errors import Conflict, Invalid, Problem, SignInRefused
from queries.models.access.accounts import (
    ADDRESS,
    BROWSER,
    LONGEST_BROWSER,
    SIGNED_IN_AT,
    GroupRole,
)
from queries.models.access.audit import AuditEntry
from queries.roles import Role, highest_role
from queries.selectors.access import role_by_groups
from queries.services.access.accounts import end_streams, give_role, refuse_author
from queries.services.access.admin_objects import AdminObject, Verb, unpacked
from queries.services.access.audit import Asker, asker, note_act, record_act

#: Failed sign-ins recorded per address and minute, so that brute force cannot flood the log.
FAILURES_A_MINUTE = 30


def connect() -> None:
    """Connect to the sign-in signals of Django and django-axes."""
    for signal, receiver in (
        (user_logged_in, _signed_in),
        (user_logged_out, _signed_out),
        (user_login_failed, _failed),
        (user_locked_out, _locked_out),
    ):
        signal.connect(receiver, dispatch_uid=f"queries.audit{receiver.__name__}")


def _signed_in(request: Any, user: Any, **_: Any) -> None:
    """Record a sign-in, and store its time, address and browser in the session."""
    now, here = timezone.now(), asker() or Asker()
    session = getattr(request, "session", None)
    if session is not None:
        session[SIGNED_IN_AT] = now.isoformat()
        session[ADDRESS] = here.address
        session[BROWSER] = here.browser[:LONGEST_BROWSER]
    record_act(Act.SIGNED_IN, actor=user.get_username(), now=now, browser=here.browser)


def _signed_out(user: Any, **_: Any) -> None:
    if user is not None:
        record_act(Act.SIGNED_OUT, actor=user.get_username(), now=timezone.now())


def _failed(credentials: Any, request: Any = None, **_: Any) -> None:
    """Record a wrong password; if the user is locked out, `_locked_out` records that instead."""
    if getattr(request, "axes_locked_out", False):
        return
    _note_failure(**_whose(credentials.get("username")))


def note_failed_arrival(why: str) -> None:
    """Record a rejected sign-in from the identity provider."""
    _note_failure(actor="", why=why)


def _note_failure(**about: Any) -> None:
    now = timezone.now()
    recent = AuditEntry.objects.filter(kind=Act.SIGN_IN_FAILED, at__gt=now - timedelta(minutes=1))
    if recent.filter(address=_address()).count() < FAILURES_A_MINUTE:
        note_act(Act.SIGN_IN_FAILED, now=now, **about)


def _locked_out(username: Any = None, **_: Any) -> None:
    """Record a lock-out, only once while it lasts."""
    now = timezone.now()
    whose = _whose(username)
    lasting = AuditEntry.objects.filter(
        kind=Act.LOCKED_OUT, at__gt=now - settings.AXES_COOLOFF_TIME, address=_address()
    )
    if not lasting.filter(actor=whose["actor"]).exists():
        minutes = int(settings.AXES_COOLOFF_TIME / timedelta(minutes=1))
        note_act(Act.LOCKED_OUT, now=now, **whose, minutes=minutes)


def _address() -> str:
    return (asker() or Asker()).address


def _whose(username: Any) -> dict[str, Any]:
    """Return the account for the audit entry, without an unknown name: it may be a password."""
    name = str(username or "").replace("\x00", "")
    known = get_user_model().objects.filter(username=name).exists()
    return {"actor": name} if known else {"actor": "", "account": "unknown"}


class RoleForm(StrictForm):
    """A new role for a group."""

    role: Role


class GroupRoleForm(StrictForm):
    """A group and its role.

    group: Spelled exactly as the identity provider sends it.
    """

    group: Annotated[str, Longest(255)]
    role: Role


def add_group_role(*, group: str, role: str, actor: str, now: datetime) -> GroupRole:
    """Map a group to a role; raise `Invalid` for wrong values, `Conflict` for a mapped group."""
    if _role(role) is Role.AUTHOR:
        refuse_author(f"The group {read_group(group)}")
    row = GroupRole(
        group=read_group(group), role=_role(role), created_at=now, created_by=actor[:150]
    )
    try:
        with transaction.atomic():
            row.save()
            record_act(Act.GROUP_ROLES, actor=actor, now=now, subject=row.group, after=row.role)
    except IntegrityError as error:
        raise Conflict(
            f"The group {row.group} already has a role.", way_out="Change that role, or remove it."
        ) from error
    return row


def change_group_role(row: GroupRole, *, role: str, actor: str, now: datetime) -> None:
    """Change the group's role."""
    about = {"before": row.role, "after": _role(role)}
    if _role(role) is Role.AUTHOR:
        refuse_author(f"The group {row.group}", _role(row.role))
    with transaction.atomic():
        row.role = _role(role)
        row.save(update_fields=["role"])
        record_act(Act.GROUP_ROLES, actor=actor, now=now, subject=row.group, **about)


def remove_group_role(row: GroupRole, *, actor: str, now: datetime) -> None:
    """Remove the group's role."""
    with transaction.atomic():
        row.delete()
        about = {"before": row.role, "after": "none"}
        record_act(Act.GROUP_ROLES, actor=actor, now=now, subject=row.group, **about)


def add_group_role_once(*, group: str, role: str, actor: str, now: datetime) -> GroupRole:
    """Assign a role to a group, effective from each member's next sign-in.

    If the group already has this role, the response is 200.
    """
    same = GroupRole.objects.filter(group=group, role=role).first()
    return same or add_group_role(group=group, role=role, actor=actor, now=now)


def all_group_roles(user: Any) -> QuerySet[GroupRole]:
    """List the groups that have a role."""
    return GroupRole.objects.all()


def _role(word: str) -> Role:
    if word not in set(Role):
        way_out = f"Choose {', '.join(Role)}."
        raise Invalid([Problem("role", word[:200], "is not a valid role.", way_out)])
    return Role(word)


GROUP_ROLES = AdminObject(
    "group-roles/<int:row_id>/",
    "Group role",
    all_group_roles,
    "Return a group and its role.",
    create=Verb("create_group_role", unpacked(add_group_role_once), GroupRoleForm),
    replace=Verb("change_group_role", unpacked(change_group_role), RoleForm),
    remove=Verb("delete_group_role", remove_group_role),
    created_at="created_at",
)


#: Most accounts that can share a requested name; each one after the first gets a number.
MOST_OF_A_NAME = 1000


class NoRole(SignInRefused):
    """None of your groups has a role here."""


def let_in(arrival: Arrival, *, now: datetime) -> User:
    """Return the user's account, with the role that their groups currently grant.

    1. A known user's role is replaced by this role, or removed if the groups grant none.
    2. A new user gets an account without a password if the groups grant a role.

    Raises `NoRole` if no group is in the table, and `SignInRefused` for a deactivated account.
    """
    with transaction.atomic():
        role = role_by_groups(arrival.groups)
        user = _known(arrival)
        if user is not None:
            _give(user, role, now)
        elif role is not None:
            user = _new(arrival, role, now)
    # Outside the transaction: a role that was removed stays removed.
    if user is not None and not user.is_active:
        raise SignInRefused(
            "Your account here is deactivated.", way_out="An admin can activate it."
        )
    if user is None or role is None:
        raise NoRole
    return user


def _known(arrival: Arrival) -> User | None:
    account = (
        SocialAccount.objects.filter(provider=arrival.issuer, uid=arrival.subject)
        .select_related("user")
        .first()
    )
    return account.user if account else None


def _give(user: User, role: Role | None, now: datetime) -> None:
    """Set the role granted by the groups; record a change of role as a separate action."""
    before = highest_role(user)
    if role is Role.AUTHOR:
        refuse_author(user.username, before)
    give_role(user, role)
    if before != role:
        name = user.username
        about = {"before": before, "after": role or "none", "detail": "by groups"}
        record_act(Act.ROLE_GIVEN, actor=name, now=now, subject=name, **about)
        end_streams(user)


def _new(arrival: Arrival, role: Role, now: datetime) -> User:
    if role is Role.AUTHOR:
        refuse_author(arrival.name)
    try:
        with transaction.atomic():
            user = User(username=_free_name(arrival.name))
            user.set_unusable_password()
            user.save()
            SocialAccount.objects.create(
                user=user, provider=arrival.issuer, uid=arrival.subject, extra_data={}
            )
            give_role(user, role)
            about = {"role": role, "detail": "by single sign-on"}
            name = user.username
            record_act(Act.USER_CREATED, actor=name, now=now, subject=name, **about)
    except IntegrityError as error:  # same user or name at the same moment
        raise Conflict(
            "You are signing in twice at the same time.", way_out="Sign in again."
        ) from error
    return user


def _free_name(wanted: str) -> str:
    for number in range(1, MOST_OF_A_NAME):
        name = wanted if number == 1 else f"{wanted}-{number}"
        if not User.objects.filter(username__iexact=name).exists():
            return name
    raise Conflict(f"There are already {MOST_OF_A_NAME} accounts named {wanted}.")
