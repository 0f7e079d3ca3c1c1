"""Change the labels of applications and queries, without a restart or a new revision."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.definitions.labels import labels_text, parse_labels
from queries.domain.errors import NotAllowed
from queries.domain.reasons import Because, Detail
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.services.definitions.definition_rows import record_definition


def relabel(
    row: Application | Query, labels: Mapping[str, Any], *, actor: str, now: datetime
) -> dict[str, str]:
    """Replace a row's labels and return them; raise `Invalid` if one is not valid."""
    form = parse_labels(labels)
    query, application = (row, row.application) if isinstance(row, Query) else (None, row)
    with transaction.atomic():
        held = type(row).objects.select_for_update().get(pk=row.pk)
        if held.archived_at is not None:
            raise NotAllowed(f"{row} has been deleted.", way_out="Create it again.")
        if held.labels == form:
            return form
        type(row).objects.filter(pk=row.pk).update(labels=form)
        texts = (labels_text(held.labels), labels_text(form))
        record_definition(application, query, *texts, actor, now, Because(Detail.LABELS))
        changed(f"query:{row.pk}" if query else f"application:{row.pk}")
    return form
