"""Sign in users of the identity provider: find the account, and set the role from the groups.

Accounts are found only by issuer and subject. A matching name or mail address grants nothing:
otherwise, anyone who can choose their name at the provider could become that local user.
"""

from datetime import datetime

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from queries.domain.access.acts import Act
from queries.domain.access.single_sign_on import Arrival
from queries.domain.errors import Conflict, SignInRefused
from queries.roles import Role, highest_role
from queries.selectors.access.group_roles import role_by_groups
from queries.services.access.accounts import give_role
from queries.services.access.audit_trail import record_act
from queries.services.access.root_worker import refuse_author
from queries.services.access.sessions import end_streams

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
