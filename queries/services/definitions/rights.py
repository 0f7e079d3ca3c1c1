"""Who may write a definition, and the revision that a write is based on."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.definitions.code import application_brings_code, brings_code
from queries.domain.definitions.kubernetes import placement_fields
from queries.domain.definitions.labels import labels_text, parse_labels
from queries.domain.definitions.parsing import parse_query
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Forbidden, Invalid, Missing, NotAllowed
from queries.domain.reasons import Because, Detail
from queries.models.access.accounts import Team
from queries.models.applications import Application, ApplicationRevision
from queries.models.definitions import Query, QueryRevision
from queries.roles import AuthorRights
from queries.selectors.access import who_can_help
from queries.services.definitions.definition_rows import (
    CHECKED_COLUMNS,
    DefinitionRows,
    record_definition,
)


def insist_query(
    rights: AuthorRights, form: SqlQuery | PythonQuery | None, query: Query | None
) -> None:
    """Raise `Forbidden` if a query definition adds code; `query` is the row that it revises.

    Nothing is raised for users who may write Python.
    """
    if AuthorRights.PYTHON in rights or form is None:
        return
    newest = query.revisions.order_by("-number")[0] if query else None
    insist_query_form(rights, newest.spec if newest else None, form)


def insist_query_form(
    rights: AuthorRights, before: dict[str, Any] | None, form: SqlQuery | PythonQuery
) -> None:
    """Raise `Forbidden` if a form adds code; `before` is the previous form, None if new."""
    if AuthorRights.PYTHON in rights:
        return
    fields = brings_code(parsed(before) if before else None, form)
    if fields == ["kind"]:
        raise Forbidden(
            "You have permission to write SQL, but not Python.",
            way_out=f"Write the query in SQL, or ask an admin ({who_can_help()}) to grant it.",
        )
    _insist(fields)


def insist_application(
    rights: AuthorRights, before: ApplicationSpec | None, form: ApplicationSpec
) -> None:
    """Raise `Forbidden` if an application's form changes what its author may not set.

    This is code, and where on Kubernetes pods run; `before` is None for a new application.
    """
    if AuthorRights.CLUSTER not in rights and (fields := placement_fields(before, form)):
        raise Forbidden(
            f"Only admins can set where pods run and what they may use: {', '.join(fields)}.",
            way_out=f"Leave them unchanged, or ask an admin ({who_can_help()}).",
        )
    if AuthorRights.PYTHON not in rights:
        _insist(application_brings_code(before, form))


def _insist(fields: list[str]) -> None:
    if fields:
        raise Forbidden(
            "You don't have permission to write Python, and these fields load code into the "
            f"driver: {', '.join(fields)}.",
            way_out=f"Leave them unchanged, or ask an admin ({who_can_help()}) to grant it.",
        )


def parsed(spec: dict[str, Any]) -> SqlQuery | PythonQuery | None:
    """Return a query's form; None if its structure is invalid."""
    try:
        return parse_query(spec)
    except Invalid:
        return None


def give_application(
    *, application: Application, team: Team | None, actor: str, now: datetime
) -> None:
    """Assign an application to a team, or to everyone if `team` is None; nothing is restarted."""
    with transaction.atomic():
        rows = Application.objects.select_for_update(of=("self",)).select_related("team")
        held = rows.get(pk=application.pk)
        if held.archived_at is not None:
            raise NotAllowed(f"{held} has been deleted.", way_out="Create it again.")
        if held.team == team:
            return
        Application.objects.filter(pk=held.pk).update(team=team)
        texts = (str(held.team or ""), str(team or ""))
        record_definition(held, None, *texts, actor, now, Because(Detail.TEAM))
        changed(f"application:{held.pk}")


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
