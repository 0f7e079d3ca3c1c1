"""Read rows: one or `Missing`, the newest of many queries, a page by key, those with a label."""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.db import DatabaseError, models
from django.db.models import F, Model, OuterRef, Q, QuerySet, Subquery, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from headgate_ground.masking import mask_text
from listeners.loops.backlogs import loop_errors
from queries.domain.definitions.labels import Selection
from queries.domain.errors import Missing
from queries.domain.triggers.intervals import interval_ms
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Run

M = TypeVar("M", bound=Model)


def first_or_missing(rows: QuerySet[M], missing: str, *, way_out: str = "") -> M:
    """Return the first of the rows; raise `Missing` with this message if there is none."""
    row = rows.first()
    if row is None:
        raise Missing(missing, way_out=way_out)
    return row


def newest_revisions(query_ids: list[int]) -> dict[int, QueryRevision]:
    """Return each query's newest revision, in one database query."""
    newest = QueryRevision.objects.filter(query=OuterRef("query")).order_by("-number")
    rows = QueryRevision.objects.filter(query__in=query_ids, pk=Subquery(newest.values("pk")[:1]))
    return {row.query_id: row for row in rows.order_by()}


def param_defaults(query: Query) -> dict[str, Any]:
    """Return the parameters of a query's newest definition, with their defaults."""
    params: dict[str, Any] = query.revisions.order_by("-number")[0].spec.get("params", {})
    return params


def newest_runs(query_ids: list[int]) -> dict[int, Run]:
    """Return each query's newest run with driver and revision, in one database query.

    At most one run of a query is open, and it is the newest, because epochs only increase.
    """
    if not query_ids:
        return {}
    newest = Run.objects.filter(query=OuterRef("query")).order_by("-epoch")
    rows = Run.objects.filter(query__in=query_ids, pk=Subquery(newest.values("pk")[:1]))
    rows = rows.select_related("driver__application_revision", "revision")
    return {row.query_id: row for row in rows.order_by()}


def newest_drivers(query_ids: list[int]) -> dict[int, int]:
    """Return the driver id of each query's newest run, in one database query."""
    newest = Run.objects.filter(query=OuterRef("query")).order_by("-epoch")
    rows = Run.objects.filter(query__in=query_ids, pk=Subquery(newest.values("pk")[:1]))
    return dict(rows.order_by().values_list("query", "driver"))


def current_checkpoints(query_ids: list[int]) -> dict[int, Checkpoint]:
    """Return each query's current checkpoint, in one database query."""
    rows = Checkpoint.objects.filter(query__in=query_ids, retired_at=None)
    return {row.query_id: row for row in rows.order_by()}


def interval_of(trigger: dict[str, Any]) -> int | None:
    """Return a processing-time trigger's interval in milliseconds; None for other triggers."""
    if trigger.get("kind") != "processing_time":
        return None
    return interval_ms(str(trigger.get("interval", "")))


def rows_after(
    rows: QuerySet[M], *by: str, after: Sequence[Any] | None, descending: bool = True
) -> QuerySet[M]:
    """Return the rows after the key `after`, ordered by the columns `by`, unique together.

    `after` has a value for each column, as a string or typed; None starts at the beginning. Raises
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


def label(name: str, *columns: str) -> Coalesce:
    """Return a label's value from the first column that has it; "" if none does."""
    values = [KeyTextTransform(name, F(column)) for column in columns]
    return Coalesce(*values, Value(""), output_field=TextField())


def labelled(rows: QuerySet[M], selection: Selection, *columns: str) -> QuerySet[M]:
    """Return the rows for which the selection's terms on labels are true."""
    for number, term in enumerate(term for term in selection if term.is_label):
        alias = f"label_{number}"
        rows = rows.alias(**{alias: label(term.name, *columns)})
        holds = Q(**{f"{alias}__in": term.values})
        rows = rows.exclude(holds) if term.is_not else rows.filter(holds)
    return rows


def label_names() -> list[str]:
    """Return all label names of existing applications and queries, sorted."""
    names: set[str] = set()
    for model in (Application, Query):
        rows = model.objects.filter(archived_at=None).exclude(labels={})
        for labels in rows.order_by().values_list("labels", flat=True).distinct():
            if isinstance(labels, dict):  # an invalid row has no names
                names |= set(labels)
    return sorted(names)
