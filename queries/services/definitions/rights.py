"""Check who may load code into a driver, and assign applications to teams."""

from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.definitions.code import application_brings_code, brings_code
from queries.domain.definitions.parsing import parse_query
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Forbidden, Invalid, NotAllowed
from queries.domain.reasons import Because, Detail
from queries.models.access.accounts import Team
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.selectors.access.permissions import who_can_help
from queries.services.definitions.definition_rows import record_definition


def insist_query(python: bool, form: SqlQuery | PythonQuery | None, query: Query | None) -> None:
    """Raise `Forbidden` if a query definition adds code; `query` is the row that it revises.

    Nothing is raised if `python` is true: the user may write Python.
    """
    if python or form is None:
        return
    newest = query.revisions.order_by("-number")[0] if query else None
    insist_query_form(python, newest.spec if newest else None, form)


def insist_query_form(
    python: bool, before: dict[str, Any] | None, form: SqlQuery | PythonQuery
) -> None:
    """Raise `Forbidden` if a form adds code; `before` is the previous form, None if new."""
    if python:
        return
    fields = brings_code(parsed(before) if before else None, form)
    if fields == ["kind"]:
        raise Forbidden(
            "You have the right to write SQL, but not Python.",
            way_out=f"Write the query in SQL, or ask an admin ({who_can_help()}) to grant it.",
        )
    _insist(fields)


def insist_application(python: bool, before: ApplicationSpec | None, form: ApplicationSpec) -> None:
    """Raise `Forbidden` if an application's form adds or changes code; `before` may be None."""
    if not python:
        _insist(application_brings_code(before, form))


def _insist(fields: list[str]) -> None:
    if fields:
        raise Forbidden(
            "You don't have the right to write Python, and these fields load code into the "
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
