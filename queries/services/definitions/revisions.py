"""Restore former revisions of definitions, and change labels, which have no revision."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.definitions.labels import labels_text, parse_labels
from queries.domain.errors import Missing, NotAllowed
from queries.domain.reasons import Because, Detail
from queries.models.applications import Application, ApplicationRevision
from queries.models.definitions import Query, QueryRevision
from queries.services.definitions.definition_rows import (
    CHECKED_COLUMNS,
    DefinitionRows,
    record_definition,
)


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


def restore_query(query: Query, number: int, *, actor: str, now: datetime) -> QueryRevision:
    """Make a query's former revision the newest again, as a new revision.

    The content is copied without checks: it has run before, and a restore must not depend on a
    broker. If the newest revision is identical, it is returned. The caller owns the transaction.
    Raises `Missing` if there is no such revision.
    """
    newest = query.revisions.order_by("-number")[0]
    former = former_revision(query, number)
    if former.spec == newest.spec:
        return newest
    rows = DefinitionRows(actor=actor, now=now)
    checked = {name: getattr(former, name) for name in CHECKED_COLUMNS}
    made = rows.query_revision(query, newest.number + 1, former.kind, former.spec, checked)
    rows.moved(query.application, query, *_as_before(newest.number, number))
    rows.insert()
    return made


def former_revision(query: Query, number: int) -> QueryRevision:
    """Return a query's revision with this number; raise `Missing` if there is none."""
    former = query.revisions.filter(number=number).first()
    if former is None:
        newest = query.revisions.order_by("-number")[0].number
        raise Missing(
            f"Query {query.name} has no revision {number}.", way_out=f"It has 1 to {newest}."
        )
    return former


def restore_application(
    application: Application, number: int, *, actor: str, now: datetime
) -> ApplicationRevision:
    """Make an application's former revision the newest again; see `restore_query`."""
    newest = application.revisions.order_by("-number")[0]
    former = application.revisions.get(number=number)
    if former.spec == newest.spec:
        return newest
    rows = DefinitionRows(actor=actor, now=now)
    made = rows.application_revision(application, newest.number + 1, former.spec)
    rows.moved(application, None, *_as_before(newest.number, number))
    rows.insert()
    return made


def _as_before(newest: int, number: int) -> tuple[str, str, Because]:
    about = Because(Detail.AS_BEFORE, {"revision": number})
    return f"revision {newest}", f"revision {newest + 1}", about
