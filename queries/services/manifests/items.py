"""One object of a set on its way from a file to the tables: what differs, and what is wrong."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Problem
from queries.domain.manifests.forms import Kind, Manifest
from queries.domain.manifests.plans import (
    Change,
    Drift,
    ObjectPlan,
    Outcome,
    differences,
    settle,
)
from queries.domain.states import Desired
from queries.models.access.teams import Team
from queries.models.alerts import AlertRule
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.manifests.managed import Managed
from queries.selectors.manifests import states
from queries.selectors.manifests.states import State, comparable

Row = Application | Query | AlertRule


@dataclass(slots=True)
class SetItem:
    """An object that the set names."""

    path: str
    kind: str
    name: str
    manifest: Manifest | None = None  # None: it cannot be read
    row: Row | None = None  # None: it is not there yet
    is_new: bool = True  # it was not there when the set was planned
    managed: Managed | None = None
    before: State = field(default_factory=dict)
    after: State = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    revision: int | None = None
    drift: Drift | None = None
    # What writing it takes; of an application or a query.
    application_form: ApplicationSpec | None = None
    query_form: SqlQuery | PythonQuery | None = None
    host: str = ""  # the application's name
    own: ApplicationSpec | None = None  # of the application that a new query brings
    location: str = ""  # of a new query's checkpoint
    team: Team | None = None  # of a new application
    desired: Desired | None = None  # where it changes
    completed: bool = False  # its trigger has ended it, or its script itself: nobody stopped it

    @property
    def query(self) -> Query | None:
        """Return the row of a query; None where it is not there, or no query."""
        return self.row if isinstance(self.row, Query) else None

    @property
    def application(self) -> Application | None:
        """Return the row of the application that it is, or is in; None where there is none."""
        if self.query is not None:
            return self.query.application
        return self.row if isinstance(self.row, Application) else None

    @property
    def outcome(self) -> Outcome:
        """Return what becomes of it."""
        if self.problems:
            return Outcome.REFUSED
        if self.is_new:
            return Outcome.CREATED
        return Outcome.CHANGED if self.changes else Outcome.UNCHANGED

    @property
    def spec_differs(self) -> bool:
        """Return whether it needs a new revision."""
        return _spec(self.before) != _spec(self.after)

    @property
    def labels_differ(self) -> bool:
        """Return whether its labels change."""
        return _labels(self.before) != _labels(self.after)

    def refuse(self, field: str, value: str, message: str, way_out: str) -> None:
        """Note what is wrong with it."""
        self.problems.append(Problem(field, value[:200], message, way_out))

    def compare(self) -> None:
        """Note each field that differs, and what was edited since its file was applied."""
        if not self.is_new:
            self.changes += differences(comparable(self.before, self.after), self.after)
        before = states.unedited(self.before, completed=self.completed)
        if self.managed is not None and self.managed.applied != before:
            applied = self.managed.applied
            edited = differences(applied, comparable(before, applied))
            way_out = settle(Kind(self.kind), self.name, self.managed.source)
            self.drift = Drift(edited, way_out) if edited else None

    def plan(self) -> ObjectPlan:
        """Return what the answer says of it."""
        return ObjectPlan(
            kind=self.kind,
            name=self.name,
            path=self.path,
            outcome=self.outcome,
            changes=tuple(self.changes),
            problems=tuple(self.problems),
            drift=self.drift,
            revision=self.revision,
        )


def below_spec(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems of a definition as those of its manifest."""
    return [replace(one, field=f"spec.{one.field}") for one in problems]


def below_metadata(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems of what names an object as those of its manifest."""
    return [replace(one, field=f"metadata.{one.field}") for one in problems]


def _spec(state: State) -> dict[str, Any]:
    """Return a definition without the pools, which are rows of their own."""
    return {name: held for name, held in state.get("spec", {}).items() if name != "pools"}


def _labels(state: State) -> dict[str, str]:
    return dict(state.get("metadata", {}).get("labels", {}))
