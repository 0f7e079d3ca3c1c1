"""Read small values for the console, and find rows by partial names."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import rules
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Case, Max, Q, QuerySet, Value, When

from headgate_ground.tolerant import whole
from listeners.models import Heartbeat, Latest
from queries.domain.alerts.forms import IncidentState
from queries.domain.errors import Invalid, Problem
from queries.domain.hosts import SILENT_AFTER
from queries.domain.states import DriverKind, DriverState, GroupStatus, RunOutcome
from queries.models.access.accounts import AccessToken, Grant
from queries.models.alerts import Incident
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import FailureGroup, Operation
from queries.roles import ADMINISTER, Role, grant_of, highest_role
from queries.selectors import visible
from queries.selectors.access import those_of_single_sign_on
from queries.selectors.rows import first_or_missing


def outcomes(run_ids: Iterable[int]) -> dict[int, str]:
    """Return the outcome of each of these runs; "" for an open run."""
    return dict(visible.runs().filter(pk__in=set(run_ids)).values_list("pk", "outcome"))


def newest_event_at() -> datetime | None:
    """Return when the newest event or heartbeat of any driver was ingested."""
    event: datetime | None = Latest.objects.aggregate(at=Max("at"))["at"]
    heartbeat: datetime | None = Heartbeat.objects.aggregate(at=Max("received_at"))["at"]
    return max((at for at in (event, heartbeat) if at), default=None)


@dataclass(frozen=True, slots=True)
class SilentDriver:
    """A driver that should send heartbeats but has been silent for a while."""

    since: datetime  # its newest heartbeat, else its launch
    application: int
    queries: frozenset[int]  # with an open run in it
    runs: frozenset[int]


def silent_drivers(*, now: datetime) -> list[SilentDriver]:
    """Return the live drivers from which nothing has been ingested for `SILENT_AFTER`."""
    drivers = visible.drivers().filter(kind=DriverKind.SERVICE, state=DriverState.LIVE)
    rows = {row.pk: row for row in drivers.only("pk", "created_at", "application_id")}
    beats = Heartbeat.objects.filter(driver__in=list(rows)).values_list("driver", "received_at")
    last_ingested = dict(beats)
    since = {pk: last_ingested.get(pk, row.created_at) for pk, row in rows.items()}
    silent = {pk: at for pk, at in since.items() if now - at > SILENT_AFTER}
    runs: dict[int, list[tuple[int, int]]] = {pk: [] for pk in silent}
    for driver, run, query in (
        visible.runs()
        .filter(driver__in=list(silent), outcome=RunOutcome.OPEN)
        .values_list("driver", "pk", "query")
    ):
        runs[driver].append((run, query))
    return [
        SilentDriver(
            since=at,
            application=rows[pk].application_id,
            queries=frozenset(query for _, query in runs[pk]),
            runs=frozenset(run for run, _ in runs[pk]),
        )
        for pk, at in silent.items()
    ]


def names_of(query_ids: Iterable[int]) -> dict[int, str]:
    """Return the names of queries that have not been deleted, by primary key."""
    rows = visible.queries().filter(pk__in=set(query_ids), archived_at__isnull=True)
    return dict(rows.values_list("pk", "name"))


def names_in_drivers(driver_ids: Iterable[int]) -> list[str]:
    """Return the names of existing queries with an open run in one of these drivers."""
    rows = visible.runs().filter(
        driver__in=set(driver_ids), outcome="", query__archived_at__isnull=True
    )
    return list(rows.values_list("query__name", flat=True))


def open_failure_groups() -> int:
    """Return the number of open failure groups."""
    return visible.failure_groups().filter(status=GroupStatus.OPEN).count()


#: Rows shown per kind; to find others, type more.
MOST = 6


@dataclass(frozen=True, slots=True)
class SearchMatches:
    """Rows by kind, best match first."""

    queries: list[Query]
    applications: list[Application]
    groups: list[FailureGroup]
    incidents: list[Incident]
    runs: list[Run]
    operations: list[Operation]


def find(text: str) -> SearchMatches:
    """Return the matches for a search string; none if it is empty."""
    if not text:
        return SearchMatches([], [], [], [], [], [])
    return SearchMatches(
        queries=list(named(visible.queries().select_related("application"), text)[:MOST]),
        applications=list(named(visible.applications().filter(own=False), text)[:MOST]),
        groups=list(_groups(text)[:MOST]),
        incidents=list(_incidents(text)[:MOST]),
        runs=_runs(text),
        operations=_operations(text),
    )


def named(rows: "QuerySet[Query] | QuerySet[Application]", text: str) -> "QuerySet[Any]":
    """Return the existing rows whose name contains the string; those that start with it first."""
    rank = Case(
        When(name__iexact=text, then=Value(0)),
        When(name__istartswith=text, then=Value(1)),
        default=Value(2),
    )
    return rows.filter(archived_at=None, name__icontains=text).order_by(rank, "name")


def _groups(text: str) -> QuerySet[FailureGroup]:
    """Return failure groups with every search word in the error class or title, open first."""
    rows = visible.failure_groups().select_related("query", "application")
    for word in text.split()[:8]:
        rows = rows.filter(Q(title__icontains=word) | Q(query__name__icontains=word))
    closed = Case(When(status=GroupStatus.OPEN, then=Value(0)), default=Value(1))
    return rows.order_by(closed, "-last_seen")


def _incidents(text: str) -> QuerySet[Incident]:
    rows = Incident.objects.filter(state=IncidentState.OPEN)
    for word in text.split()[:8]:
        rows = rows.filter(Q(title__icontains=word) | Q(detail__icontains=word))
    return rows.order_by("-opened_at")


def _runs(text: str) -> list[Run]:
    """Return the run with this number ("41", "run 41"), or with this Spark run id."""
    number = whole(text.lower().removeprefix("run").strip())
    if number is not None:
        rows = visible.runs().filter(pk=number)
    elif len(text) >= 8 and set(text.lower()) <= set("0123456789abcdef-"):
        rows = visible.runs().filter(spark_run_id__istartswith=text)
    else:
        return []
    return list(rows.select_related("query")[:MOST])


def _operations(text: str) -> list[Operation]:
    try:
        uuid = UUID(text)
    except ValueError:
        return []
    return list(Operation.objects.filter(uuid=uuid).select_related("query", "application"))


@dataclass(frozen=True, slots=True)
class Person:
    """An account with its highest role, its rights, its teams and its number of tokens."""

    user: User
    role: Role | None
    grant: Grant
    teams: tuple[str, ...]  # names
    tokens: int
    by_single_sign_on: bool  # its role comes from its groups, and it has no password


def people() -> list[Person]:
    """Return all accounts by name, in six database queries."""
    counts = Counter(AccessToken.objects.values_list("user_id", flat=True))
    others = those_of_single_sign_on()
    return [
        Person(
            user,
            highest_role(user),
            grant_of(user),
            tuple(team.name for team in user.teams.all()),
            counts[user.pk],
            user.pk in others,
        )
        for user in User.objects.prefetch_related("groups", "grant", "teams").order_by("username")
    ]


def person(user_id: int) -> User:
    """Return an account; raise `Missing` if there is none."""
    return first_or_missing(User.objects.filter(pk=user_id), f"User {user_id} does not exist.")


def tokens_seen_by(user: User | AnonymousUser) -> QuerySet[AccessToken]:
    """Return the tokens that a user can see and revoke, newest first; an admin sees all."""
    rows: QuerySet[AccessToken] = AccessToken.objects.select_related("user", "team").order_by(
        "-created"
    )
    rows = rows.prefetch_related("applications")
    return rows if rules.has_perm(ADMINISTER, user) else rows.filter(user=user.pk)


def owner_named(username: str) -> User:
    """Return the active account with this name, for a new token; raise `Invalid` without one."""
    user = User.objects.filter(username=username.replace("\x00", ""), is_active=True).first()
    if user is None:
        raise Invalid(
            [Problem("user", username[:200], "is not an active user.", "Check the list of users.")]
        )
    return user
