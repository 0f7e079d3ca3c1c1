"""Which labels there are."""

from queries.models.applications import Application
from queries.models.definitions import Query


def label_names() -> list[str]:
    """Return the names of all labels of living applications and queries, sorted."""
    names: set[str] = set()
    for model in (Application, Query):
        rows = model.objects.filter(archived_at=None).exclude(labels={})
        for labels in rows.order_by().values_list("labels", flat=True).distinct():
            names |= set(labels)
    return sorted(names)
