"""One object of a set, between its file and the tables: its differences and problems."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from queries.domain.definitions.parsing import application_changes, query_changes
from queries.domain.definitions.spec import (
    ApplicationSpec,
    Effect,
    PythonQuery,
    SqlQuery,
    strongest,
)
from queries.domain.definitions.sql_verdict import SqlVerdict
from queries.domain.errors import Problem
from queries.domain.manifests.forms import Kind, Manifest
from queries.domain.manifests.sets import Change, Drift, ObjectPlan, Outcome, differences, settle
from queries.domain.probes.plan_comparison import StateChange
from queries.domain.states import Desired
from queries.domain.validation.skipped import as_json
from queries.models.access.accounts import Team
from queries.models.alerts import AlertRule
from queries.models.applications import Application, ApplicationRevision
from queries.models.definitions import Managed, Query, QueryRevision
from queries.selectors import manifests
from queries.selectors.manifests import State, comparable
from queries.selectors.probes import sentences
from queries.services.definitions.drafts import Checked
from queries.services.kafka import topics

Row = Application | Query | AlertRule


@dataclass(frozen=True, slots=True)
class Answers:
    """What services outside Headgate answered about a query's definition."""

    verdict: SqlVerdict | None  # None: it has no SQL, or the parser did not respond
    seen: topics.Looked


@dataclass(slots=True)
class SetItem:
    """An object in the set; saving one definition is a set of one."""

    path: str
    kind: str
    name: str
    manifest: Manifest | None = None  # None: unreadable
    row: Row | None = None  # None: it does not exist yet
    is_new: bool = True  # it did not exist when the set was planned
    managed: Managed | None = None
    before: State = field(default_factory=dict)
    after: State = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    revision: int | None = None
    newest: QueryRevision | ApplicationRevision | None = None  # of an existing definition
    drift: Drift | None = None
    notes: list[str] = field(default_factory=list)  # of values that are stored in another form
    # Needed to write an application or a query.
    application_form: ApplicationSpec | None = None
    query_form: SqlQuery | PythonQuery | None = None
    state_change: StateChange | None = None  # of a changed query
    checked: Checked = field(default_factory=Checked)  # of a new or changed query
    answers: Answers | None = None  # of Spark's parser and the brokers, once they were asked
    gap_accepted: bool = False  # async progress tracking may be switched off despite a gap
    host: str = ""  # the application's name
    own: ApplicationSpec | None = None  # of a new query's application
    application_spec: dict[str, Any] | None = None  # as sent, of it or of its own; None: defaults
    location: str = ""  # of a new query's checkpoint
    team: Team | None = None  # of a new application
    desired: Desired | None = None  # if it changes
    completed: bool = False  # its trigger or its script ended it, not a user

    @property
    def query(self) -> Query | None:
        """Return the query's row; None if it does not exist or the object is not a query."""
        return self.row if isinstance(self.row, Query) else None

    @property
    def application(self) -> Application | None:
        """Return the application that the object is, or belongs to; None if there is none."""
        if self.query is not None:
            return self.query.application
        return self.row if isinstance(self.row, Application) else None

    @property
    def outcome(self) -> Outcome:
        """Return the action of the apply on the object."""
        if self.problems:
            return Outcome.REFUSED
        if self.is_new:
            return Outcome.CREATED
        return Outcome.CHANGED if self.changes else Outcome.UNCHANGED

    @property
    def spec_differs(self) -> bool:
        """Return whether the object needs a new revision."""
        return _spec(self.before) != _spec(self.after)

    @property
    def effect(self) -> Effect:
        """Return the effect of the changed fields, such as a restart, without pools and labels."""
        changes = query_changes if self.kind == Kind.QUERY else application_changes
        is_defined = self.kind in (Kind.QUERY, Kind.APPLICATION) and not self.is_new
        found = changes(_spec(self.before), _spec(self.after)) if is_defined else {}
        return strongest(found)

    @property
    def labels_differ(self) -> bool:
        """Return whether the object's labels change."""
        return _labels(self.before) != _labels(self.after)

    def refuse(self, field: str, value: str, message: str, way_out: str) -> None:
        """Record a problem."""
        self.problems.append(Problem(field, value[:200], message, way_out))

    def compare(self) -> None:
        """Record each field that differs, and edits made since the object's file was applied."""
        if not self.is_new:
            self.changes += differences(comparable(self.before, self.after), self.after)
        before = manifests.unedited(self.before, completed=self.completed)
        if self.managed is not None and self.managed.applied != before:
            applied = self.managed.applied
            edited = differences(applied, comparable(before, applied))
            way_out = settle(Kind(self.kind), self.name, self.managed.source)
            self.drift = Drift(edited, way_out) if edited else None

    def plan(self) -> ObjectPlan:
        """Return the object's part of the response."""
        return ObjectPlan(
            kind=self.kind,
            name=self.name,
            path=self.path,
            outcome=self.outcome,
            changes=tuple(self.changes),
            problems=tuple(self.problems),
            drift=self.drift,
            revision=self.revision,
            skipped=tuple(as_json(self.checked.skipped)),
            state_change=tuple(sentences(self.state_change)) if self.state_change else (),
            effect=self.effect.words if self.outcome is Outcome.CHANGED else None,
            notes=tuple(self.notes),
        )


def below_spec(problems: Iterable[Problem]) -> list[Problem]:
    """Return a definition's problems with fields relative to its manifest."""
    return [replace(one, field=f"spec.{one.field}") for one in problems]


def below_metadata(problems: Iterable[Problem]) -> list[Problem]:
    """Return metadata problems with fields relative to the object's manifest."""
    return [replace(one, field=f"metadata.{one.field}") for one in problems]


def _spec(state: State) -> dict[str, Any]:
    """Return a definition without the pools, which have their own rows."""
    return {name: held for name, held in state.get("spec", {}).items() if name != "pools"}


def _labels(state: State) -> dict[str, str]:
    return dict(state.get("metadata", {}).get("labels", {}))
