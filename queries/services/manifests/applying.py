"""Write a plan in one short transaction: completely or not at all.

All slow work is done beforehand: the plan contains the results of all validation, sealing and
look-ups. If a definition has changed since the plan was made, nothing is written, and a new plan is
made. Running queries keep their revision. Starts, stops, and deletions that must wait for a stop
are made by operations that the same transaction inserts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from queries.domain.access import Act
from queries.domain.code.references import GitRef
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.sets import ApplySet, ObjectPlan
from queries.domain.states import Desired, Verb
from queries.models.alerts import AlertRule
from queries.models.applications import Application
from queries.services.alerts.setup import delete_rule, save_rule
from queries.services.definitions.items import SetItem
from queries.services.definitions.writing import DefinitionWriter, StalePlan, writing
from queries.services.manifests import ownership
from queries.services.manifests.planning import Plan, plan
from queries.services.procedures.bulk_operations import begin_many
from queries.services.supervision.application_operations import archive_application
from queries.services.supervision.operations import archive_stopped
from queries.services.supervision.start_checks import StateChanges

#: How often a plan is made again because someone else has changed a definition.
ATTEMPTS = 5


def refuse_state_changes(starting: Iterable[SetItem], *, accepted: bool) -> None:
    """Raise `StateChanges`, naming the queries whose state would change in meaning."""
    changed_ = {
        item.name: item.state_change.silent
        for item in starting
        if item.state_change is not None and item.state_change.silent
    }
    if changed_ and not accepted:
        said = " ".join(f"{name}: {'; '.join(found)}." for name, found in changed_.items())
        raise StateChanges(
            "Spark would continue with the old state without an error but with wrong results. "
            f"{said}",
            way_out=(
                "Reset these queries, or accept the change: “accept_state_change” in the set, "
                "or --accept-state-change with headgate apply and headgate deploy."
            ),
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an apply: the plan's objects, and the operations that follow."""

    objects: list[ObjectPlan]
    operations: list[str] = field(default_factory=list)  # UUIDs
    resolved: tuple[GitRef, ...] = ()  # the results of resolving branches and tags


def apply_set(asked: ApplySet, *, user: Any, actor: str, via: str, now: datetime) -> Applied:
    """Plan a set and apply it; a rejected set or a dry run writes nothing.

    Raises `Forbidden`, and `Conflict` if other requests keep changing definitions.
    """
    for attempt in range(1, ATTEMPTS + 1):
        found = plan(asked, user=user, now=now)
        if found.refused or asked.dry_run:
            return Applied(found.objects, resolved=found.asked.resolved)
        starting = (item for item in found.items if item.desired is Desired.RUNNING)
        refuse_state_changes(starting, accepted=asked.accept_state_change)
        asked = found.asked  # another attempt uses the same commits
        try:
            return apply(found, actor=actor, via=via, now=now)
        except StalePlan:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("the loop returns or raises")


def apply(found: Plan, *, actor: str, via: str, now: datetime) -> Applied:
    """Write an accepted plan; `via` names what applied it ("rest", a deploy…).

    Raises `StalePlan` if a definition has changed since the plan was made.
    """
    writer = _Writer(found, actor, via, now)
    with writing(found.existing_rows, found.items):
        writer.write()
    return Applied(found.objects, writer.operations, found.asked.resolved)


class _Writer:
    """The rows of one apply, built before the transaction, which only writes them."""

    def __init__(self, found: Plan, actor: str, via: str, now: datetime) -> None:
        self._plan, self._actor, self._now = found, actor, now
        self.operations: list[str] = []
        items, accepted = found.items, found.asked.accept_state_change
        by: dict[str, Any] = {"actor": actor, "now": now}
        self._definitions = DefinitionWriter(
            items, found.existing_rows, via=via, accepted=accepted, **by
        )
        self._managed = ownership.Taking(items, found.asked, **by)
        self._add_receipt()
        self._definitions.rows.prepare()

    def _of_kind(self, kind: Kind) -> list[SetItem]:
        return [item for item in self._plan.items if item.kind == kind]

    def _add_receipt(self) -> None:
        """Add the audit entry of the complete set, if it changes anything."""
        asked, rows = self._plan.asked, self._definitions.rows
        rules = any(item.changes or item.is_new for item in self._of_kind(Kind.ALERT_RULE))
        if rows.is_empty and not rules and not self._plan.leaving:
            return
        source = {"commit": asked.source.commit, "repository": asked.source.repository}
        counts = {"objects": len(self._plan.items), "pruned": len(self._plan.leaving)}
        rows.acted(Act.APPLIED, asked.owner, **source, **counts)

    def write(self) -> None:
        """Write all rows, in the caller's transaction."""
        self._definitions.write_definitions()
        self._prune()
        for item in self._of_kind(Kind.ALERT_RULE):
            if item.is_new or item.changes:
                row = item.row if isinstance(item.row, AlertRule) else None
                raw = {"name": item.name, **item.after["spec"]}
                item.row = save_rule(raw, rule=row, actor=self._actor, now=self._now)
        self._managed.write()
        self._definitions.write_history()
        self._follow()

    def _prune(self) -> None:
        now_gone = [one for one in self._plan.leaving if not one.later]
        if queries := [one.query for one in now_gone if one.query is not None]:
            archive_stopped(queries, actor=self._actor, now=self._now)
        by: dict[str, Any] = {"actor": self._actor, "now": self._now}
        for one in now_gone:
            if one.kind is Kind.APPLICATION and one.application is not None:
                if Application.objects.filter(pk=one.application.pk, archived_at=None).exists():
                    archive_application(application=one.application, **by)
            elif one.rule is not None:
                delete_rule(one.rule, **by)
            one.done = True

    def _follow(self) -> None:
        """Insert the operations that start, stop and delete as the set requires."""
        wanted = {Verb.START_MANY: Desired.RUNNING, Verb.STOP_MANY: Desired.STOPPED}
        by: dict[str, Any] = {"actor": self._actor, "now": self._now}
        about = {"owner": self._plan.asked.owner}
        for verb, desired in wanted.items():
            rows = [
                item.query
                for item in self._of_kind(Kind.QUERY)
                if item.desired == desired and item.query is not None
            ]
            scripts = [
                item.row
                for item in self._of_kind(Kind.APPLICATION)
                if item.desired == desired and isinstance(item.row, Application)
            ]
            if rows or scripts:
                operation = begin_many(verb, rows, applications=scripts, arguments=about, **by)
                self.operations.append(str(operation.uuid))
        later = [one for one in self._plan.leaving if one.later]
        if later:
            queries = [one.query for one in later if one.query is not None]
            places = [
                one.application
                for one in later
                if one.kind is Kind.APPLICATION and one.application is not None
            ]
            operation = begin_many(Verb.PRUNE, queries, applications=places, arguments=about, **by)
            self.operations.append(str(operation.uuid))
