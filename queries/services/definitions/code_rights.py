"""Who may bring code into a driver: asked of every definition that is checked, tried or saved."""

from typing import Any

from queries.domain.definitions.code import application_brings_code, brings_code
from queries.domain.definitions.parsing import parse_application, parse_query
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Forbidden, Invalid
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.selectors.access.insisting import who_can_help


def insist_query(python: bool, form: SqlQuery | PythonQuery | None, query: Query | None) -> None:
    """Raise `Forbidden` where a definition of a query brings code in; `query` is what it revises.

    `python` says whether who asks may write Python.
    """
    if python or form is None:
        return
    newest = query.revisions.order_by("-number")[0] if query else None
    insist_query_form(python, newest.spec if newest else None, form)


def insist_query_form(
    python: bool, before: dict[str, Any] | None, form: SqlQuery | PythonQuery
) -> None:
    """Raise `Forbidden` where a form brings code in; `before` is what was there, None: nothing."""
    if python:
        return
    fields = brings_code(parsed(before) if before else None, form)
    if fields == ["kind"]:
        raise Forbidden(
            "You may write SQL, not Python.",
            way_out=f"Write the query in SQL, or ask an admin ({who_can_help()}) for the right.",
        )
    _insist(fields)


def insist_application(
    python: bool, form: ApplicationSpec | None, application: Application | None
) -> None:
    """Raise `Forbidden` where a definition of an application does; None: it is a new one."""
    if python or form is None:
        return
    newest = application.revisions.order_by("-number")[0] if application else None
    try:
        before = parse_application(newest.spec) if newest else None
    except Invalid:  # today's models cannot read it any more
        before = None
    insist_application_form(python, before, form)


def insist_application_form(
    python: bool, before: ApplicationSpec | None, form: ApplicationSpec
) -> None:
    """Raise `Forbidden` where an application's form brings in other code than it had before."""
    if not python:
        _insist(application_brings_code(before, form))


def _insist(fields: list[str]) -> None:
    if fields:
        raise Forbidden(
            f"You may not write Python, and what this changes is code to a driver: "
            f"{', '.join(fields)}.",
            way_out=f"Leave that as it is, or ask an admin ({who_can_help()}) for the right.",
        )


def parsed(spec: dict[str, Any]) -> SqlQuery | PythonQuery | None:
    """Return a query's form; None where its shape is wrong."""
    try:
        return parse_query(spec)
    except Invalid:
        return None
