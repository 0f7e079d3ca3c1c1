"""Save and remove a user's views of the query list."""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db import transaction

from queries.domain.errors import Invalid, Problem
from queries.models.access.accounts import SavedView

#: Most views per user; all are shown above the list.
MOST_VIEWS = 20


def save_view(*, user: User, name: str, filters: Mapping[str, str], now: datetime) -> SavedView:
    """Save filters and grouping under a name, replacing an existing view with that name.

    Raises `Invalid` if the name is not valid, if nothing is filtered or grouped, or if the user has
    too many views.
    """
    name = " ".join(name.split())
    address = urlencode({key: value for key, value in filters.items() if value})
    problem: Problem | None = None
    if not 1 <= len(name) <= 80:
        problem = Problem("name", name[:80], "is not a valid name.", "Use 1 to 80 characters.")
    elif not address or len(address) > 1000:
        problem = Problem(
            "filters", address[:80], "cannot be saved.", "Set a filter or grouping first."
        )
    with transaction.atomic():
        others = SavedView.objects.filter(user=user).exclude(name=name).count()
        if problem is None and others >= MOST_VIEWS:
            way_out = "Remove one first."
            problem = Problem(
                "name", name, f"would exceed the limit of {MOST_VIEWS} views.", way_out
            )
        if problem is not None:
            raise Invalid([problem])
        row, _ = SavedView.objects.update_or_create(
            user=user, name=name, defaults={"address": address, "created_at": now}
        )
    return row


def forget_view(*, user: User, view_id: int) -> None:
    """Remove one of the user's own views; other users' views are not affected."""
    SavedView.objects.filter(user=user, pk=view_id).delete()
