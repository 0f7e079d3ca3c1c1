"""Look up roles by identity-provider group, and the accounts that use single sign-on."""

from collections.abc import Iterable

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User

from queries.models.access.group_roles import GroupRole
from queries.roles import ORDER, Role


def role_by_groups(groups: Iterable[str]) -> Role | None:
    """Return the highest role that these groups grant; None if no group is in the table."""
    # Compared here, because a database may treat "Admins" as "admins".
    given = dict(GroupRole.objects.values_list("group", "role"))
    held = {given[group] for group in groups if group in given}
    return max((Role(role) for role in held), key=ORDER.index, default=None)


def comes_by_single_sign_on(user: User) -> bool:
    """Return whether an account belongs to the identity provider, and so has no password."""
    return bool(SocialAccount.objects.filter(user=user).exists())


def those_of_single_sign_on() -> set[int]:
    """Return the primary keys of all such accounts."""
    return set(SocialAccount.objects.values_list("user_id", flat=True))
