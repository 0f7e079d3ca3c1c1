"""Read the data behind forms: newest revisions, history, checkpoint locations, names to choose.

Only the columns needed are read, because a create request reads them for all queries, under a lock.
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Generic, TypeVar

from django.db.models import QuerySet

from queries.domain.errors import Missing
from queries.models.applications import Application, ApplicationRevision, SchedulerPool
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.selectors import visible
from queries.selectors.rows import first_or_missing
from queries.selectors.supervision import applications


def held_checkpoints(*, but: Query | None = None) -> dict[str, str]:
    """Return the checkpoints in use, by location, with the query that uses each.

    `but` excludes one query's own.
    """
    rows = Checkpoint.objects.filter(retired_at=None).order_by()
    if but is not None:
        rows = rows.exclude(query=but)
    return dict(rows.values_list("location", "query__name"))


def retired_locations() -> set[str]:
    """Return the locations where queries, deleted or not, have left their files."""
    rows = Checkpoint.objects.exclude(retired_at=None).order_by()
    return set(rows.values_list("location", flat=True))


R = TypeVar("R", QueryRevision, ApplicationRevision)


@dataclass(frozen=True, slots=True)
class _Definition(Generic[R]):
    """Revisions, newest first."""

    owner: str  # what is defined, for messages
    revisions: tuple[R, ...]

    @property
    def newest(self) -> R:
        """Return the newest revision."""
        return self.revisions[0]

    def numbered(self, number: int) -> R:
        """Return the revision with this number; raise `Missing` if there is none."""
        for revision in self.revisions:
            if revision.number == number:
                return revision
        raise Missing(f"The {self.owner} has no revision {number}.")


@dataclass(frozen=True, slots=True)
class QueryDefinition(_Definition[QueryRevision]):
    """An existing query and its revisions."""

    query: Query
    checkpoint: str


@dataclass(frozen=True, slots=True)
class ApplicationDefinition(_Definition[ApplicationRevision]):
    """An existing application, its revisions, and its pools."""

    application: Application
    pools: tuple[SchedulerPool, ...]

    @property
    def resolved_at(self) -> datetime | None:
        """Return when the code's branch or tag was resolved; None if it names neither."""
        code = self.newest.spec.get("code") or {}
        same = takewhile(lambda one: one.spec.get("code") == code, self.revisions)
        return [one.created_at for one in same][-1] if code.get("ref") else None


def query_definition(name: str) -> QueryDefinition:
    """Return an existing query's definition; raise `Missing` if no query has that name."""
    row = query(name)
    checkpoint = row.checkpoints.filter(retired_at__isnull=True).first()
    return QueryDefinition(
        owner=f"query {name}",
        query=row,
        revisions=tuple(row.revisions.order_by("-number")),
        checkpoint=checkpoint.location if checkpoint else "",
    )


def application_definition(name: str) -> ApplicationDefinition:
    """Return an existing application's definition; raise `Missing` if there is none."""
    application = applications.application(name)
    return ApplicationDefinition(
        owner=f"application {name}",
        application=application,
        revisions=tuple(application.revisions.order_by("-number")),
        pools=tuple(application.pools.order_by("name")),
    )


def shared_application_names() -> list[str]:
    """Return the names of applications that were not created for a single query."""
    rows = visible.applications().filter(archived_at__isnull=True, own=False)
    return list(rows.order_by("name").values_list("name", flat=True))


def pool_names() -> list[tuple[str, str]]:
    """Return (pool, application) of every pool."""
    rows = SchedulerPool.objects.filter(application__archived_at__isnull=True)
    return list(rows.order_by("name", "application__name").values_list("name", "application__name"))


def query(name: str) -> Query:
    """Return an existing query; raise `Missing` if no query has that name."""
    rows = visible.queries().select_related("application", "target_revision")
    return first_or_missing(
        rows.filter(name=name, archived_at__isnull=True),
        f'Query "{name}" does not exist.',
        way_out="Check its name in the list of queries.",
    )


def revisions_of(row: Query) -> QuerySet[QueryRevision]:
    """Return a query's revisions, newest first."""
    return QueryRevision.objects.filter(query=row).order_by("-number")
