"""Let in who comes from the identity provider: the account, and the role by its groups.

An account is found by issuer and subject alone. A name or an address of mail that fits a local
account gives nothing: whoever may choose it at the provider would become that person here.
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
from queries.services.access.sessions import end_streams

#: How many accounts may wish to be called the same; each after the first gets a number.
MOST_OF_A_NAME = 1000


class NoRole(SignInRefused):
    """None of your groups has a role here."""


def let_in(arrival: Arrival, *, now: datetime) -> User:
    """Return the account of who has come, with the role that the groups give now.

    1. A known person gets this role, and loses the one before, even where it is none.
    2. A new person gets an account without a password, if there is a role for it.

    Raises `NoRole` where no group is in the table, `SignInRefused` for a deactivated account.
    """
    with transaction.atomic():
        role = role_by_groups(arrival.groups)
        user = _known(arrival)
        if user is not None:
            _give(user, role, now)
        elif role is not None:
            user = _new(arrival, role, now)
    # Outside of the transaction: what was taken away stays taken away.
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
    """Give the role of the groups; where it is another than before, that is an act of its own."""
    before = highest_role(user)
    give_role(user, role)
    if before != role:
        name = user.username
        about = {"before": before, "after": role or "none", "detail": "by groups"}
        record_act(Act.ROLE_GIVEN, actor=name, now=now, subject=name, **about)
        end_streams(user)


def _new(arrival: Arrival, role: Role, now: datetime) -> User:
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
    except IntegrityError as error:  # the same person, or the same name, in the same moment
        raise Conflict("You are signing in twice at once.", way_out="Sign in again.") from error
    return user


def _free_name(wanted: str) -> str:
    for number in range(1, MOST_OF_A_NAME):
        name = wanted if number == 1 else f"{wanted}-{number}"
        if not User.objects.filter(username__iexact=name).exists():
            return name
    raise Conflict(f"There are {MOST_OF_A_NAME} accounts called {wanted}.")
