"""What every service writes alike: changes of state, and the columns of a row that differ."""

from datetime import datetime
from typing import Any

from django.db.models import Model

from queries.domain.reasons import Because
from queries.models.applications import Application
from queries.models.history import Transition


def record(
    subject: str, before: str, after: str, reason: str, *, now: datetime, **about: Any
) -> None:
    """Insert a Transition; `about` are its other columns: what it belongs to, and who made it."""
    Transition.objects.create(
        at=now, subject=subject, before=before, after=after, reason=reason, **about
    )


def record_grant(
    application: str, before: str, after: str, detail: Because, *, actor: str, now: datetime
) -> None:
    """Record that an admin gave something to the application of this name, or took it away.

    In the application's history; one for a channel, or for an application that is not made yet, is
    in the audit log alone.
    """
    row = Application.objects.filter(name=application, archived_at=None).first()
    if row is not None:
        record(
            "grant", before[:40], after, "", now=now, application=row, detail=detail, actor=actor
        )


def update_changed(row: Model, fields: dict[str, Any]) -> bool:
    """Write those columns of a row that differ from what it holds; return whether any does."""
    fresh = {name: value for name, value in fields.items() if getattr(row, name) != value}
    if fresh:
        type(row)._default_manager.filter(pk=row.pk).update(**fresh)
    return bool(fresh)
