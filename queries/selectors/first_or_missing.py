"""Return the first row, or raise `Missing` if there is none."""

from typing import TypeVar

from django.db.models import Model, QuerySet

from queries.domain.errors import Missing

M = TypeVar("M", bound=Model)


def first_or_missing(rows: QuerySet[M], missing: str, *, way_out: str = "") -> M:
    """Return the first of the rows; raise `Missing` with this message if there is none."""
    row = rows.first()
    if row is None:
        raise Missing(missing, way_out=way_out)
    return row
