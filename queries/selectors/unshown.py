"""Replace a list member that cannot be shown with a message, so that the others are shown."""

import logging
from typing import Any

from django.db import DatabaseError, models

from headgate_ground.masking import mask_text
from listeners.loops.troubles import loop_errors

logger = logging.getLogger(__name__)
_loop = loop_errors("lists", logger)

#: Errors that are not specific to one member: they make the whole list fail.
OF_ALL = (DatabaseError,)


def called(member: Any) -> str:
    """Return a member's name for messages: its kind, and its name or number."""
    row = member[0] if isinstance(member, tuple) and member else member
    if not isinstance(row, models.Model):
        row = next((part for part in _parts(row) if isinstance(part, models.Model)), row)
    if isinstance(row, models.Model):
        mark = getattr(row, "name", "") or getattr(row, "uuid", "") or row.pk
        return f"{row._meta.verbose_name} {mark}"
    return f"{getattr(row, 'name', '') or type(row).__name__}"


def number(member: Any) -> Any:
    """Return a member's primary key; None if it is not a row."""
    return member.pk if isinstance(member, models.Model) else None


def render_error(member: Any, error: Exception) -> str:
    """Log that a member cannot be shown; return the error's type and its first line."""
    _loop.record_error(called(member), error)
    first_line = mask_text(str(error)).strip().partition("\n")[0][:200]
    return f"{type(error).__name__}: {first_line}".rstrip(": ")


def _parts(value: Any) -> list[Any]:
    """Return the values of the fields of a class defined in a selector."""
    return [getattr(value, name, None) for name in getattr(value, "__dataclass_fields__", ())]
