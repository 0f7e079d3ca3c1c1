"""Store definitions as revisions that never change, with their authors."""

from datetime import datetime

from queries.domain.access.acts import Act
from queries.domain.definitions import parsing
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Missing
from queries.domain.reasons import NOTHING, Because
from queries.models.access.teams import Team
from queries.models.applications import Application, ApplicationRevision, Script
from queries.models.definitions import Query, QueryRevision
from queries.services.access.audit_trail import record_act
from queries.services.changes import record


def add_application(
    *,
    name: str,
    spec: ApplicationSpec | None,
    actor: str,
    now: datetime,
    own: bool,
    team: Team | None = None,
) -> Application:
    """Create an application with revision 1; the caller has validated and owns the transaction."""
    application = Application.objects.create(name=name, own=own, team=team, created_at=now)
    form = spec or ApplicationSpec()
    if form.kind == "script":
        Script.objects.create(application=application, phase_since=now)
    add_application_revision(application, 1, form, actor, now)
    return application


def add_application_revision(
    application: Application, number: int, spec: ApplicationSpec, actor: str, now: datetime
) -> ApplicationRevision:
    """Add an application's revision, which the next driver is launched with."""
    revision = ApplicationRevision.objects.create(
        application=application,
        number=number,
        spec=parsing.as_json(spec),
        author=actor,
        created_at=now,
    )
    if number == 1:  # later ones are pinned by a start or a restart, not by a relaunch
        Application.objects.filter(pk=application.pk).update(target_revision=revision)
        application.target_revision = revision
    if number == 1 and application.own:  # made with its query, whose definition is the act
        return revision
    before = f"revision {number - 1}" if number > 1 else ""
    record_definition(application, None, before, f"revision {number}", actor, now)
    return revision


def add_query_revision(
    query: Query,
    number: int,
    spec: SqlQuery | PythonQuery | None,
    actor: str,
    now: datetime,
) -> QueryRevision:
    """Add a query's revision, which runs from the next start on."""
    if spec is None:  # a draft without problems has a form
        raise Missing("The definition has no form.")
    revision = QueryRevision.objects.create(
        query=query,
        number=number,
        kind=spec.kind,
        spec=parsing.as_json(spec),
        author=actor,
        created_at=now,
    )
    before = f"revision {number - 1}" if number > 1 else ""
    record_definition(query.application, query, before, f"revision {number}", actor, now)
    return revision


def record_definition(
    application: Application,
    query: Query | None,
    before: str,
    after: str,
    actor: str,
    now: datetime,
    detail: Because = NOTHING,
) -> None:
    """Record a change of a definition: from what to what, and who made it."""
    about = {"application": application, "query": query, "detail": detail, "actor": actor}
    record("definition", before, after, "", now=now, **about)
    record_act(
        Act.DEFINITION,
        actor=actor,
        now=now,
        subject=(query or application).name,
        of="query" if query else "application",
        before=before,
        after=after,
        detail=str(detail),
    )
