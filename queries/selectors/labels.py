"""Read the labels in use, and filter rows by label."""

from typing import TypeVar

from django.db.models import F, Model, Q, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from queries.domain.definitions.selection import Selection
from queries.models.applications import Application
from queries.models.definitions import Query

M = TypeVar("M", bound=Model)


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
