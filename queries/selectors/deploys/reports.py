"""Read deploys for pages and REST: the report by wave, and the actions that it offers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from queries.domain.deploys.request import (
    OUT,
    SETTLED,
    ChangeKind,
    ChangeState,
    DeployState,
    OnFailure,
)
from queries.models.deploys import Deploy, DeployChange
from queries.selectors.rows import first_or_missing


@dataclass(frozen=True, slots=True)
class Wave:
    """One wave: its queries, and the applications whose drivers are replaced."""

    number: int
    state: str  # ChangeState of the change that decides
    changes: tuple[DeployChange, ...]
    began_at: datetime | None = None  # None: not started
    ended_at: datetime | None = None  # None: in progress or not started

    @property
    def queries(self) -> list[DeployChange]:
        """Return the wave's queries, by name."""
        return [change for change in self.changes if change.kind == ChangeKind.QUERY]

    @property
    def applications(self) -> list[DeployChange]:
        """Return the wave's applications, by name."""
        return [change for change in self.changes if change.kind == ChangeKind.APPLICATION]


@dataclass(frozen=True, slots=True)
class DeployOffer:
    """An action that a user can take after a failed deploy."""

    act: str  # "rewind" or "rollback"
    query: str
    snapshot: int | None = None
    batch: int | None = None  # to rewind to
    revision: int | None = None  # to roll back to


@dataclass(frozen=True, slots=True)
class DeployReport:
    """A deploy with all its changes."""

    deploy: Deploy
    waves: list[Wave]
    offers: list[DeployOffer]


def deploys(**asked: str) -> QuerySet[Deploy]:
    """Return the deploys, newest first, matching the given filters: state, owner, query."""
    rows = Deploy.objects.all()
    if asked.get("state"):
        rows = rows.filter(state=asked["state"])
    if asked.get("owner"):
        rows = rows.filter(owner=asked["owner"])
    if asked.get("query"):
        of = DeployChange.objects.filter(kind=ChangeKind.QUERY, name=asked["query"])
        rows = rows.filter(pk__in=of.values("deploy"))
    return rows


def deploy_of(uuid: UUID) -> Deploy:
    """Return a deploy; raise `Missing` if there is none."""
    return first_or_missing(
        Deploy.objects.filter(uuid=uuid),
        "This deploy does not exist.",
        way_out="Check its id in the list of deploys.",
    )


def deploy_report(deploy: Deploy) -> DeployReport:
    """Return a deploy report."""
    rows = deploy.changes.select_related("query", "application", "snapshot")
    changes = list(rows.order_by("wave", "kind", "name"))
    numbers = sorted({change.wave for change in changes})
    waves = [
        _wave(deploy, number, [change for change in changes if change.wave == number])
        for number in numbers
    ]
    return DeployReport(deploy, waves, _offers(deploy, changes))


def _wave(deploy: Deploy, number: int, changes: Sequence[DeployChange]) -> Wave:
    states = [ChangeState(change.state) for change in changes]
    bad = [state for state in OUT if state in states]
    going = [state for state in states if state not in SETTLED]
    span = deploy.spans[number - 1] if number <= len(deploy.spans) else (None, None)
    began, ended = (datetime.fromisoformat(at) if at else None for at in span)
    return Wave(number, (bad or going or states)[0], tuple(changes), began, ended)


def _offers(deploy: Deploy, changes: Sequence[DeployChange]) -> list[DeployOffer]:
    """Return the actions that a user can take; none unless the deploy has failed."""
    if deploy.state not in (DeployState.FAILED, DeployState.CANCELLED):
        return []
    offers = []
    for change in changes:
        if (
            change.kind != ChangeKind.QUERY
            or change.query is None
            or change.query.archived_at is not None
        ):
            continue
        if change.state == ChangeState.KEPT and change.snapshot is not None:
            about: dict[str, Any] = {"snapshot": change.snapshot.pk, "batch": change.snapshot.batch}
            offers.append(DeployOffer("rewind", change.name, **about))
        elif deploy.on_failure == OnFailure.STOP and _can_go_back(change):
            offers.append(DeployOffer("rollback", change.name, revision=change.from_revision))
    return offers


def _can_go_back(change: DeployChange) -> bool:
    return change.is_written and None not in (change.to_revision, change.from_revision)
