"""Shared helpers of services: record state changes, and write only changed columns."""

from datetime import datetime
from typing import Any

from django.db.models import Model

from queries.domain.reasons import Because
from queries.models.applications import Application
from queries.models.history import Transition


def record(
    subject: str, before: str, after: str, reason: str, *, now: datetime, **about: Any
) -> None:
    """Insert a Transition; `about` holds its other columns: its owner and its actor."""
    Transition.objects.create(
        at=now, subject=subject, before=before, after=after, reason=reason, **about
    )


def record_grant(
    application: str, before: str, after: str, detail: Because, *, actor: str, now: datetime
) -> None:
    """Record that an admin granted something to the named application, or revoked it.

    This is recorded in the application's history. For a channel, or an application that does not
    exist yet, nothing is written here: only the audit log has it.
    """
    row = Application.objects.filter(name=application, archived_at=None).first()
    if row is not None:
        record(
            "grant", before[:40], after, "", now=now, application=row, detail=detail, actor=actor
        )


def update_changed(row: Model, fields: dict[str, Any]) -> bool:
    """Update only the columns whose new values differ from the row's; return whether any did."""
    fresh = {name: value for name, value in fields.items() if getattr(row, name) != value}
    if fresh:
        type(row)._default_manager.filter(pk=row.pk).update(**fresh)
    return bool(fresh)
