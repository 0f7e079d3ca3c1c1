"""What every service writes alike: changes of state, and the columns of a row that differ."""

from datetime import datetime
from typing import Any

from django.db.models import Model

from queries.models.history import Transition


def record(
    subject: str, before: str, after: str, reason: str, *, now: datetime, **about: Any
) -> None:
    """Insert a Transition; `about` are its other columns: what it belongs to, and who made it."""
    Transition.objects.create(
        at=now, subject=subject, before=before, after=after, reason=reason, **about
    )


def update_changed(row: Model, fields: dict[str, Any]) -> bool:
    """Write those columns of a row that differ from what it holds; return whether any does."""
    fresh = {name: value for name, value in fields.items() if getattr(row, name) != value}
    if fresh:
        type(row)._default_manager.filter(pk=row.pk).update(**fresh)
    return bool(fresh)
