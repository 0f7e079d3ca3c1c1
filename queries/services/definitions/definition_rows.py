"""Write definitions: a save writes the rows of one object, a set those of many.

No other module writes them. Rows are built first, with their history and audit entries, so that the
transaction that inserts them is short.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Subquery

from queries.domain.access import Act
from queries.domain.definitions import parsing
from queries.domain.definitions.parsing import application_changes, query_changes
from queries.domain.definitions.spec import (
    ApplicationSpec,
    Effect,
    PoolSpec,
    PythonQuery,
    SqlQuery,
    strongest,
)
from queries.domain.reasons import NOTHING, Because
from queries.domain.validation.skipped import as_json
from queries.models.access.accounts import Team
from queries.models.access.audit import AuditEntry
from queries.models.applications import Application, ApplicationRevision, SchedulerPool, Script
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.history import Transition
from queries.services.access.audit import insert_acts, sealed_act
from queries.services.changes import Prepared
from queries.services.definitions.drafts import Checked
from queries.services.schedules.ticks import follow_schedule

#: The columns of a revision that hold the results of its checks.
CHECKED_COLUMNS = ("unchecked", "unasked", "refusal", "state", "state_by", "reads")
_LONGEST = 40  # characters of `Transition.before` and `after`


class DefinitionRows:
    """New rows of definitions by one actor; `via` names the writer of a set ("rest", a deploy…)."""

    def __init__(self, *, actor: str, now: datetime, via: str = "") -> None:
        self._actor, self._now = actor, now
        self._via: dict[str, Any] = {"via": via} if via else {}
        self._applications: list[Application] = []
        self._scripts: list[Script] = []
        self._application_revisions: list[ApplicationRevision] = []
        self._pools: list[SchedulerPool] = []
        self._queries: list[Query] = []
        self._checkpoints: list[Checkpoint] = []
        self._query_revisions: list[QueryRevision] = []
        self._revised: list[Query | Application] = []
        self._transitions: list[Transition] = []
        self._acts: list[AuditEntry] = []
        self._prepared: tuple[list[Prepared[Any]], Prepared[Any], Prepared[AuditEntry]] | None
        self._prepared = None

    def application(
        self,
        name: str,
        form: ApplicationSpec,
        *,
        own: bool,
        team: Team | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Application:
        """Add an application with revision 1; a query's own application has no separate history."""
        row = Application(
            name=name, own=own, team=team, labels=dict(labels or {}), created_at=self._now
        )
        self._applications.append(row)
        if form.kind == "script":
            self._scripts.append(Script(application=row, phase_since=self._now))
        self.application_revision(row, 1, parsing.as_json(form))
        if not own:
            self.moved(row, None, "", "revision 1")
        return row

    def application_revision(
        self, row: Application, number: int, spec: dict[str, Any], *, pins: bool = True
    ) -> ApplicationRevision:
        """Add an application's revision, which the next driver launch uses.

        The revision is pinned immediately if no change needs a restart; `pins=False` says that one
        does.
        """
        about: dict[str, Any] = {"author": self._actor, "created_at": self._now}
        made = ApplicationRevision(application=row, number=number, spec=spec, **about)
        self._application_revisions.append(made)
        if number > 1 and pins:
            self._revised.append(row)
        return made

    def pool(self, row: Application, name: str, form: Mapping[str, Any]) -> None:
        """Add a pool of a new application; the application's history does not mention the pool."""
        self._pools.append(SchedulerPool(application=row, name=name, **form))

    def query(
        self,
        name: str,
        application: Application,
        form: SqlQuery | PythonQuery,
        checked: dict[str, Any],
        *,
        location: str,
        by_default: bool,
        labels: Mapping[str, str] | None = None,
    ) -> Query:
        """Add a query with revision 1 and its checkpoint; see `query_revision`."""
        row = Query(
            name=name,
            application=application,
            labels=dict(labels or {}),
            thresholds=parsing.as_json(form)["thresholds"] or None,
            created_at=self._now,
            phase_since=self._now,
        )
        self._queries.append(row)
        self._checkpoints.append(
            Checkpoint(query=row, location=location, by_default=by_default, created_at=self._now)
        )
        self.query_revision(row, 1, form.kind, parsing.as_json(form), checked)
        self.moved(application, row, "", "revision 1")
        return row

    def query_revision(
        self,
        row: Query,
        number: int,
        kind: str,
        spec: dict[str, Any],
        checked: dict[str, Any],
        *,
        pins: bool = True,
    ) -> QueryRevision:
        """Add a query's revision, which the next start uses; see `application_revision`.

        `checked` contains further columns, as returned by `checked_columns`.
        """
        about: dict[str, Any] = {"author": self._actor, "created_at": self._now, **checked}
        made = QueryRevision(query=row, number=number, kind=kind, spec=spec, **about)
        self._query_revisions.append(made)
        if number > 1 and pins:
            self._revised.append(row)
        return made

    def moved(
        self,
        application: Application,
        query: Query | None,
        before: str,
        after: str,
        about: Because = NOTHING,
    ) -> None:
        """Add the history entry and the audit entry of a changed definition."""
        self._transitions.append(
            Transition(
                at=self._now,
                subject="definition",
                before=before[:_LONGEST],
                after=after[:_LONGEST],
                reason="",
                detail=about,
                actor=self._actor,
                application=application,
                query=query,
            )
        )
        of = "application" if query is None else "query"
        details = {"before": before, "after": after, "detail": str(about)}
        self.acted(Act.DEFINITION, (query or application).name, of=of, **details)

    def acted(self, kind: Act, subject: str, **details: Any) -> None:
        """Add an audit entry."""
        about: dict[str, Any] = {"actor": self._actor, "now": self._now, "subject": subject}
        self._acts.append(sealed_act(kind, **about, **details, **self._via))

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was added."""
        return not self._acts

    def prepare(self) -> None:
        """Build the SQL statements before the transaction that writes a large set."""
        # In this order: a row may refer to earlier ones.
        definitions: list[Prepared[Any]] = [
            Prepared[Any](rows)
            for rows in (
                self._applications,
                self._scripts,
                self._application_revisions,
                self._pools,
                self._queries,
                self._checkpoints,
                self._query_revisions,
            )
        ]
        self._prepared = definitions, Prepared(self._transitions), Prepared(self._acts)

    def insert(self) -> None:
        """Insert everything, in the caller's transaction."""
        self.insert_definitions()
        self.insert_history()

    def insert_definitions(self) -> None:
        """Insert the definitions, and pin the revisions that apply immediately."""
        definitions, _, _ = self._built()
        for rows in definitions:
            rows.insert()
        # A start or restart pins later revisions, not a relaunch.
        first = ApplicationRevision.objects.filter(application=OuterRef("pk"), number=1)
        made = [row.pk for row in self._applications]
        if made:
            pinned = Subquery(first.values("pk")[:1])
            Application.objects.filter(pk__in=made).update(target_revision=pinned)
        for revision in self._application_revisions:
            if revision.number == 1:
                revision.application.target_revision = revision
        for row in self._revised:
            _pin_if_in_force(row)
        for made_now in self._query_revisions:
            if made_now.number > 1:
                limits = made_now.spec.get("thresholds") or None
                Query.objects.filter(pk=made_now.query_id).update(thresholds=limits)
        both: tuple[QueryRevision | ApplicationRevision, ...] = (
            *self._query_revisions,
            *self._application_revisions,
        )
        for changed_now in both:
            if changed_now.number > 1 or changed_now.spec.get("schedule"):
                follow_schedule(changed_now)

    def insert_history(self) -> None:
        """Insert the history entries and the audit entries."""
        _, transitions, acts = self._built()
        transitions.insert()
        insert_acts(acts)

    def _built(self) -> tuple[list[Prepared[Any]], Prepared[Any], Prepared[AuditEntry]]:
        if self._prepared is None:
            self.prepare()
        assert self._prepared is not None, "`prepare` sets it"
        return self._prepared


def record_definition(
    application: Application,
    query: Query | None,
    before: str,
    after: str,
    actor: str,
    now: datetime,
    detail: Because = NOTHING,
) -> None:
    """Record a change that creates no revision: of labels, pools or the team."""
    rows = DefinitionRows(actor=actor, now=now)
    rows.moved(application, query, before, after, detail)
    rows.insert()


def pool_text(pool: SchedulerPool | PoolSpec | None) -> str:
    """Return a pool in the form shown in the history; "" for None."""
    return f"weight {pool.weight}, min {pool.min_share}, {pool.mode}" if pool else ""


def checked_columns(checked: Checked) -> dict[str, Any]:
    """Return the columns of a revision that contain the results of its checks."""
    return {
        "unchecked": as_json(checked.skipped),
        "unasked": any(one.again for one in checked.skipped),
        "state": checked.state,
        "state_by": checked.state_by,
        "reads": checked.reads,
    }


def _pin_if_in_force(owner: Query | Application) -> None:
    """Pin the newest revision if its changes do not need a restart and so apply immediately."""
    pinned = owner.target_revision
    newest = owner.revisions.order_by("-number").first()
    if pinned is None or newest is None or pinned.pk == newest.pk:
        return
    changes = query_changes if isinstance(owner, Query) else application_changes
    if strongest(changes(pinned.spec, newest.spec)) is Effect.NONE:
        type(owner).objects.filter(pk=owner.pk, target_revision=pinned.pk).update(
            target_revision=newest.pk
        )
