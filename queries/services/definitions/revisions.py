"""Store definitions as immutable revisions, with their authors."""

from datetime import datetime
from typing import Any

import pyspark

from queries.domain.access.acts import Act
from queries.domain.definitions import parsing
from queries.domain.definitions.effects import Effect, strongest
from queries.domain.definitions.parsing import application_changes, query_changes
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Missing
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.validation.skipped import as_json
from queries.models.access.teams import Team
from queries.models.applications import Application, ApplicationRevision, Script
from queries.models.definitions import Query, QueryRevision
from queries.services.access.audit_trail import record_act
from queries.services.changes import record
from queries.services.definitions.drafts import Checked


def add_application(
    *,
    name: str,
    spec: ApplicationSpec | None,
    actor: str,
    now: datetime,
    own: bool,
    team: Team | None = None,
) -> Application:
    """Create an application with revision 1. The caller validates it and owns the transaction."""
    application = Application.objects.create(name=name, own=own, team=team, created_at=now)
    form = spec or ApplicationSpec()
    if form.kind == "script":
        Script.objects.create(application=application, phase_since=now)
    add_application_revision(application, 1, form, actor, now)
    return application


def add_application_revision(
    application: Application, number: int, spec: ApplicationSpec, actor: str, now: datetime
) -> ApplicationRevision:
    """Add an application's revision, used by the next driver launch."""
    revision = ApplicationRevision.objects.create(
        application=application,
        number=number,
        spec=parsing.as_json(spec),
        author=actor,
        created_at=now,
    )
    if number == 1:  # a start or restart pins later ones, not a relaunch
        Application.objects.filter(pk=application.pk).update(target_revision=revision)
        application.target_revision = revision
    else:
        pin_if_in_force(application)
    if number == 1 and application.own:  # created with its query, which is what is recorded
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
    checked: Checked,
) -> QueryRevision:
    """Add a query's revision, used from the next start on."""
    if spec is None:  # a draft without problems has a form
        raise Missing("The definition has no form.")
    revision = QueryRevision.objects.create(
        query=query,
        number=number,
        kind=spec.kind,
        spec=parsing.as_json(spec),
        author=actor,
        created_at=now,
        **checked_columns(checked),
    )
    pin_if_in_force(query)
    before = f"revision {number - 1}" if number > 1 else ""
    record_definition(query.application, query, before, f"revision {number}", actor, now)
    return revision


#: The columns of a revision that hold the results of its checks.
CHECKED_COLUMNS = ("unchecked", "unasked", "refusal", "state", "state_by")


def checked_columns(checked: Checked) -> dict[str, Any]:
    """Return the columns of a revision that hold the results of its checks."""
    return {
        "unchecked": as_json(checked.skipped),
        "unasked": any(one.again for one in checked.skipped),
        "state": checked.state,
        "state_by": pyspark.__version__ if checked.state is not None else "",
    }


def pin_if_in_force(owner: Query | Application) -> None:
    """Pin the newest revision if its changes need no restart and so apply at once.

    The caller owns the transaction.
    """
    pinned = owner.target_revision
    newest = owner.revisions.order_by("-number").first()
    if pinned is None or newest is None or pinned.pk == newest.pk:
        return
    changes = query_changes if isinstance(owner, Query) else application_changes
    if strongest(changes(pinned.spec, newest.spec)) is Effect.NONE:
        type(owner).objects.filter(pk=owner.pk, target_revision=pinned.pk).update(
            target_revision=newest.pk
        )


def restore_query(query: Query, number: int, *, actor: str, now: datetime) -> QueryRevision:
    """Make a query's former revision the newest again, as a new revision.

    The content is copied without checks: it has run before, and going back must not depend on a
    broker. Returns the newest revision if it is identical. The caller owns the transaction. Raises
    `Missing` if there is no such revision.
    """
    newest = query.revisions.order_by("-number")[0]
    former = former_revision(query, number)
    if former.spec == newest.spec:
        return newest
    made = QueryRevision.objects.create(
        query=query,
        number=newest.number + 1,
        kind=former.kind,
        spec=former.spec,
        author=actor,
        created_at=now,
        **{name: getattr(former, name) for name in CHECKED_COLUMNS},
    )
    _record_restored(query.application, query, newest.number, number, actor, now)
    return made


def former_revision(query: Query, number: int) -> QueryRevision:
    """Return a query's revision of this number; raise `Missing` if there is none."""
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
    made = ApplicationRevision.objects.create(
        application=application,
        number=newest.number + 1,
        spec=former.spec,
        author=actor,
        created_at=now,
    )
    _record_restored(application, None, newest.number, number, actor, now)
    return made


def _record_restored(
    application: Application,
    query: Query | None,
    newest: int,
    number: int,
    actor: str,
    now: datetime,
) -> None:
    before, after = f"revision {newest}", f"revision {newest + 1}"
    about = Because(Detail.AS_BEFORE, {"revision": number})
    record_definition(application, query, before, after, actor, now, about)


def record_definition(
    application: Application,
    query: Query | None,
    before: str,
    after: str,
    actor: str,
    now: datetime,
    detail: Because = NOTHING,
) -> None:
    """Record a change of a definition: old and new revision, and the actor."""
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
