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

from django.db import IntegrityError, transaction

from controlplane.nudge import changed
from queries.domain.access.acts import Act
from queries.domain.code.git_references import GitRef
from queries.domain.definitions import parsing
from queries.domain.definitions.labels import labels_text
from queries.domain.errors import Conflict
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.plans import ObjectPlan
from queries.domain.manifests.sets import ApplySet
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import Desired, Verb
from queries.models.alerts import AlertRule
from queries.models.applications import Application, SchedulerPool
from queries.models.definitions import Checkpoint, Query
from queries.selectors.manifests import states
from queries.selectors.manifests.present import changed_since
from queries.services.alerts.setup import delete_rule, save_rule
from queries.services.definitions.catalog import one_at_a_time
from queries.services.definitions.definition_rows import DefinitionRows, checked_columns, pool_text
from queries.services.definitions.items import SetItem
from queries.services.manifests import ownership
from queries.services.manifests.planning import Plan, plan
from queries.services.procedures.bulk_operations import begin_many
from queries.services.supervision.application_operations import archive_application
from queries.services.supervision.operations import archive_stopped
from queries.services.supervision.required_preflight import StateChanges

#: How often a plan is made again because someone else has changed a definition.
ATTEMPTS = 5


class StalePlan(Conflict):
    """A definition has changed since the plan was made."""

    code = "stale-plan"


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
    try:
        with transaction.atomic():
            one_at_a_time()
            if changed_since(found.present.as_of):
                raise StalePlan(way_out="Send it again.")
            writer.write()
    except IntegrityError as error:  # a location or a name has been taken in another way
        raise StalePlan(way_out="Send it again.") from error
    return Applied(found.objects, writer.operations, found.asked.resolved)


class _Writer:
    """The rows of one apply, built before the transaction, which only writes them."""

    def __init__(self, found: Plan, actor: str, via: str, now: datetime) -> None:
        self._plan, self._actor, self._now = found, actor, now
        self.operations: list[str] = []
        items = found.items
        self._applications = [item for item in items if item.kind == Kind.APPLICATION]
        self._queries = [item for item in items if item.kind == Kind.QUERY]
        self._rules = [item for item in items if item.kind == Kind.ALERT_RULE]
        self._rows = DefinitionRows(actor=actor, now=now, via=via)
        self._places = dict(found.present.applications)
        self._moved = [
            *(item for item in self._applications if self._define_application(item)),
            *(item for item in self._queries if self._define_query(item)),
        ]
        self._managed = ownership.Taking(items, found.asked, actor=actor, now=now)
        self._add_receipt()
        self._rows.prepare()

    def _define_application(self, item: SetItem) -> bool:
        """Build the rows for an application's manifest; return whether it changes anything."""
        form = item.application_form
        if item.is_new and form is not None:
            labels = item.manifest.labels if item.manifest else {}
            made = self._rows.application(item.name, form, own=False, team=item.team, labels=labels)
            for name, pool in states.pools_of_state(item.after).items():
                self._rows.pool(made, name, pool.model_dump(exclude={"name"}))
            item.row = self._places[item.name] = made
            item.revision = 1
            return True
        place, number = self._places[item.name], (item.revision or 0) + 1
        if form is not None:
            spec = parsing.as_json(form)
            self._rows.application_revision(place, number, spec, pins=not item.effect)
            item.revision = number
        return self._add_moves(item, place, number)

    def _define_query(self, item: SetItem) -> bool:
        """Build the rows for a query's manifest; return whether it changes anything."""
        form, number = item.query_form, (item.revision or 0) + 1
        checked = {**checked_columns(item.checked), **self._accepted(item)} if form else {}
        if item.is_new and form is not None:
            if item.own is not None:
                self._places[item.host] = self._rows.application(
                    item.host, item.own, own=True, team=item.team
                )
            manifest = item.manifest
            item.row = self._rows.query(
                item.name,
                self._places[item.host],
                form,
                checked,
                location=item.location,
                by_default=manifest is None or not manifest.checkpoint,
                labels=manifest.labels if manifest else {},
            )
            item.revision = 1
            return True
        if form is not None and item.query is not None:
            spec, pins = parsing.as_json(form), not item.effect
            self._rows.query_revision(item.query, number, form.kind, spec, checked, pins=pins)
            item.revision = number
        return self._add_moves(item, self._places[item.host], number)

    def _add_moves(self, item: SetItem, place: Application, number: int) -> bool:
        """Add the history of an existing object; `number` is its next revision."""
        moves = _moves(item, number)
        for before, after, about in moves:
            self._rows.moved(place, item.query, before, after, about)
        return bool(moves)

    def _add_receipt(self) -> None:
        """Add the audit entry of the whole set, if it changes anything."""
        asked = self._plan.asked
        rules = any(item.changes or item.is_new for item in self._rules)
        if self._rows.is_empty and not rules and not self._plan.leaving:
            return
        source = {"commit": asked.source.commit, "repository": asked.source.repository}
        counts = {"objects": len(self._plan.items), "pruned": len(self._plan.leaving)}
        self._rows.acted(Act.APPLIED, asked.owner, **source, **counts)

    def _accepted(self, item: SetItem) -> dict[str, Any]:
        """Return the columns that record the acceptance of a state change, for the next start."""
        change = item.state_change
        if not (self._plan.asked.accept_state_change and change and change.silent):
            return {}
        held = Checkpoint.objects.filter(query=item.query, retired_at=None).first()
        return {"accepted_on": held, "accepted_by": self._actor}

    def write(self) -> None:
        """Write all rows, in the caller's transaction."""
        self._rows.insert_definitions()
        for item in self._applications:
            if item.changes and not item.is_new:
                self._set_pools(item)
        self._relabel()
        self._prune()
        for item in self._rules:
            if item.is_new or item.changes:
                row = item.row if isinstance(item.row, AlertRule) else None
                raw = {"name": item.name, **item.after["spec"]}
                item.row = save_rule(raw, rule=row, actor=self._actor, now=self._now)
        self._managed.write()
        self._rows.insert_history()
        self._tell()
        self._follow()

    def _set_pools(self, item: SetItem) -> None:
        row, pools = self._places[item.name], states.pools_of_state(item.after)
        before = states.pools_of_state(item.before)
        SchedulerPool.objects.filter(application=row, name__in=before.keys() - pools).delete()
        for name, pool in pools.items():
            if before.get(name) != pool:
                SchedulerPool.objects.update_or_create(
                    application=row, name=name, defaults=pool.model_dump(exclude={"name"})
                )

    def _relabel(self) -> None:
        """Write changed labels, with one statement per distinct set of labels."""
        for items, rows in ((self._applications, Application), (self._queries, Query)):
            alike: dict[str, list[SetItem]] = {}
            for item in items:
                if not item.is_new and item.labels_differ:
                    alike.setdefault(labels_text(item.after["metadata"]["labels"]), []).append(item)
            for group in alike.values():
                found = rows.objects.filter(pk__in=[item.row.pk for item in group if item.row])
                found.update(labels=group[0].after["metadata"]["labels"])

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

    def _tell(self) -> None:
        """Notify open pages of the changes."""
        topics: dict[str, None] = {}
        for item in self._moved:
            topics[f"application:{self._places[item.host or item.name].pk}"] = None
            if item.query is not None:
                topics[f"query:{item.query.pk}"] = None
        if topics:
            changed(*topics)

    def _follow(self) -> None:
        """Insert the operations that start, stop and delete as the set requires."""
        wanted = {Verb.START_MANY: Desired.RUNNING, Verb.STOP_MANY: Desired.STOPPED}
        by: dict[str, Any] = {"actor": self._actor, "now": self._now}
        about = {"owner": self._plan.asked.owner}
        for verb, desired in wanted.items():
            rows = [
                item.query
                for item in self._queries
                if item.desired == desired and item.query is not None
            ]
            scripts = [
                item.row
                for item in self._applications
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


def _moves(item: SetItem, number: int) -> list[tuple[str, str, Because]]:
    """Return the changes of an existing definition: before, after, and a description."""
    found = []
    if item.spec_differs:
        found.append((f"revision {number - 1}", f"revision {number}", NOTHING))
    if item.labels_differ:
        texts = [labels_text(one["metadata"]["labels"]) for one in (item.before, item.after)]
        found.append((*texts, Because(Detail.LABELS)))  # type: ignore[arg-type]
    if item.kind == Kind.APPLICATION:
        before, after = states.pools_of_state(item.before), states.pools_of_state(item.after)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                pools = [pool_text(one.get(name)) for one in (before, after)]
                found.append((*pools, Because(Detail.POOL, {"pool": name})))  # type: ignore[arg-type]
    return found
