"""Page through rows by key, so that pages and REST lists do not shift when rows are added."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

M = TypeVar("M", bound=Model)


def rows_after(
    rows: QuerySet[M], *by: str, after: Sequence[Any] | None, descending: bool = True
) -> QuerySet[M]:
    """Return the rows after the key `after`, ordered by the columns `by`, unique together.

    `after` has a value for each column, as text or typed; None starts at the beginning. Raises
    `ValueError` or `ValidationError` if `after` is not such a key.
    """
    ordered = rows.order_by(*(f"-{name}" if descending else name for name in by))
    if after is None:
        return ordered
    than = "lt" if descending else "gt"
    behind, same = Q(), Q()
    for name, text in zip(by, after, strict=True):
        value = _read(rows.model, name, text)
        behind |= same & Q(**{f"{name}__{than}": value})
        same &= Q(**{name: value})
    return ordered.filter(behind)


def _read(model: type[Model], name: str, text: Any) -> Any:
    meta = model._meta
    field = meta.pk if name == "pk" else meta.get_field(name)
    value = field.to_python(text)  # type: ignore[union-attr]
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError("a time without a time zone")
    return value
