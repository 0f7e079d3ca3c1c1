"""Write a plan in one short transaction: completely or not at all.

All slow work is done beforehand: the plan contains everything that was validated, sealed and looked
up. If a definition has changed since the plan was made, nothing is written, and the plan is made
again. Running queries keep their revision; starts, stops, and deletions that must wait for a stop
follow in an operation that the same transaction inserts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import OuterRef, Subquery

from controlplane.nudge import changed
from queries.domain.access.acts import Act
from queries.domain.code.git_references import GitRef
from queries.domain.definitions import parsing
from queries.domain.definitions.labels import labels_text
from queries.domain.definitions.spec import PythonQuery, SqlQuery
from queries.domain.errors import Conflict
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.plans import ObjectPlan
from queries.domain.manifests.sets import ApplySet
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import Desired, Verb
from queries.models.access.audit_trail import AuditEntry
from queries.models.alerts import AlertRule
from queries.models.applications import Application, ApplicationRevision, SchedulerPool, Script
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.history import Transition
from queries.selectors.manifests import states
from queries.selectors.manifests.present import changed_since
from queries.services.access.audit_trail import insert_acts, sealed_act
from queries.services.alerts.setup import delete_rule, save_rule
from queries.services.definitions.catalog import one_at_a_time, pool_text
from queries.services.definitions.revisions import checked_columns, pin_if_in_force
from queries.services.manifests import ownership
from queries.services.manifests.items import SetItem
from queries.services.manifests.planning import Plan, plan
from queries.services.prepared_rows import Prepared
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
    """Raise `StateChanges` naming the queries that would start on state of a different meaning."""
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

    Raises `Forbidden`, and `Conflict` if others keep changing definitions.
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
        # Computed from the current state: the code below changes the items.
        self._moves = {id(item): _moves(item) for item in (*self._applications, *self._queries)}
        self._acts = Prepared(self._sealed(via))
        self._new_applications = self._make_applications()
        self._rows = found.present.applications | self._new_applications
        self._application_revisions = self._revise_applications()
        self._scripts = [
            Script(application=made, phase_since=now)
            for one in self._applications
            if one.application_form is not None
            and one.application_form.kind == "script"
            and (made := self._new_applications.get(one.name)) is not None
        ]
        self._new_queries = [self._make_query(one) for one in self._queries if one.is_new]
        self._checkpoints = [
            Checkpoint(
                query=one.query,
                location=one.location,
                by_default=one.manifest is None or not one.manifest.checkpoint,
                created_at=now,
            )
            for one in self._queries
            if one.is_new
        ]
        self._query_revisions = [
            self._revise_query(one, one.query_form) for one in self._queries if one.query_form
        ]
        self._managed = ownership.Taking(items, found.asked, actor=actor, now=now)
        # In this order: a row may refer to earlier ones.
        self._definitions = [
            Prepared[Any](self._new_applications.values()),
            Prepared[Any](self._scripts),
            Prepared[Any](self._application_revisions),
            Prepared[Any](self._new_pools()),
            Prepared[Any](self._new_queries),
            Prepared[Any](self._checkpoints),
            Prepared[Any](self._query_revisions),
        ]
        self._transitions = Prepared(self._story())

    def _sealed(self, via: str) -> list[AuditEntry]:
        """Return an audit entry for each changed definition, and one for the whole set."""
        asked, found = self._plan.asked, []
        for item in (*self._applications, *self._queries):
            for before, after, detail in self._moves[id(item)]:
                said = {"before": before, "after": after, "detail": str(detail), "via": via}
                found.append(self._act(Act.DEFINITION, item.name, of=item.kind.lower(), **said))
        rules = any(item.changes or item.is_new for item in self._rules)
        if found or rules or self._plan.leaving:
            source = {"commit": asked.source.commit, "repository": asked.source.repository}
            counts = {"objects": len(self._plan.items), "pruned": len(self._plan.leaving)}
            found.append(self._act(Act.APPLIED, asked.owner, **source, **counts, via=via))
        return found

    def _act(self, kind: Act, subject: str, **details: Any) -> AuditEntry:
        return sealed_act(kind, actor=self._actor, now=self._now, subject=subject, **details)

    def _make_applications(self) -> dict[str, Application]:
        made = {}
        for item in (*self._applications, *self._queries):
            if not item.is_new or (item.kind == Kind.QUERY and item.own is None):
                continue
            name = item.host or item.name
            labels = item.manifest.labels if item.manifest and item.own is None else {}
            made[name] = Application(
                name=name,
                own=item.own is not None,
                team=item.team,
                labels=labels,
                created_at=self._now,
            )
            if item.kind == Kind.APPLICATION:
                item.row = made[name]
        return made

    def _revise_applications(self) -> list[ApplicationRevision]:
        found = []
        for item in (*self._applications, *self._queries):
            form = item.own or item.application_form
            if form is None:
                continue
            number = 1 if item.is_new else (item.revision or 0) + 1
            if item.kind == Kind.APPLICATION:
                item.revision = number
            found.append(
                ApplicationRevision(
                    application=self._rows[item.host or item.name],
                    number=number,
                    spec=parsing.as_json(form),
                    author=self._actor,
                    created_at=self._now,
                )
            )
        return found

    def _new_pools(self) -> list[SchedulerPool]:
        """Return the pools of new applications; for existing ones, write the differences."""
        return [
            SchedulerPool(
                application=self._rows[item.name], name=name, **pool.model_dump(exclude={"name"})
            )
            for item in self._applications
            if item.is_new
            for name, pool in states.pools_of_state(item.after).items()
        ]

    def _make_query(self, item: SetItem) -> Query:
        row = Query(
            name=item.name,
            application=self._rows[item.host],
            labels=item.manifest.labels if item.manifest else {},
            created_at=self._now,
            phase_since=self._now,
        )
        item.row = row
        return row

    def _revise_query(self, item: SetItem, form: SqlQuery | PythonQuery) -> QueryRevision:
        item.revision = (item.revision or 0) + 1
        return QueryRevision(
            query=item.query,
            number=item.revision,
            kind=form.kind,
            spec=parsing.as_json(form),
            author=self._actor,
            created_at=self._now,
            **checked_columns(item.checked),
            **self._accepted(item),
        )

    def _accepted(self, item: SetItem) -> dict[str, Any]:
        """Return who accepted a state change, for the next start."""
        change = item.state_change
        if not (self._plan.asked.accept_state_change and change and change.silent):
            return {}
        held = Checkpoint.objects.filter(query=item.query, retired_at=None).first()
        return {"accepted_on": held, "accepted_by": self._actor}

    def _story(self) -> list[Transition]:
        """Return the history line of each changed definition."""
        return [
            Transition(
                at=self._now,
                subject="definition",
                before=before[:40],
                after=after[:40],
                reason="",
                detail=detail,
                actor=self._actor,
                application=self._rows[item.host or item.name],
                query=item.query,
            )
            for item in (*self._applications, *self._queries)
            for before, after, detail in self._moves[id(item)]
        ]

    def write(self) -> None:
        """Write all rows, in the caller's transaction."""
        for rows in self._definitions:
            rows.insert()
        # A start or restart pins later revisions, not a relaunch.
        made = self._new_applications.values()
        first = ApplicationRevision.objects.filter(application=OuterRef("pk"), number=1)
        Application.objects.filter(pk__in=[row.pk for row in made]).update(
            target_revision=Subquery(first.values("pk")[:1])
        )
        for item in (*self._applications, *self._queries):
            owner = item.query or item.application
            if owner is not None and item.spec_differs and not item.is_new and not item.effect:
                pin_if_in_force(owner)
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
        self._transitions.insert()
        insert_acts(self._acts)
        self._tell()
        self._follow()

    def _set_pools(self, item: SetItem) -> None:
        row, pools = self._rows[item.name], states.pools_of_state(item.after)
        before = states.pools_of_state(item.before)
        SchedulerPool.objects.filter(application=row, name__in=before.keys() - pools).delete()
        for name, pool in pools.items():
            if before.get(name) != pool:
                SchedulerPool.objects.update_or_create(
                    application=row, name=name, defaults=pool.model_dump(exclude={"name"})
                )

    def _relabel(self) -> None:
        """Write changed labels: one statement per distinct set of labels."""
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
        for item in (*self._applications, *self._queries):
            if self._moves[id(item)]:
                topics[f"application:{self._rows[item.host or item.name].pk}"] = None
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


def _moves(item: SetItem) -> list[tuple[str, str, Because]]:
    """Return the changes of a definition: before, after, and a description."""
    number = item.revision or 0
    found = []
    if item.is_new:
        found.append(("", "revision 1", NOTHING))
    elif item.spec_differs:
        found.append((f"revision {number}", f"revision {number + 1}", NOTHING))
    if not item.is_new and item.labels_differ:
        texts = [labels_text(one["metadata"]["labels"]) for one in (item.before, item.after)]
        found.append((*texts, Because(Detail.LABELS)))  # type: ignore[arg-type]
    if not item.is_new and item.kind == Kind.APPLICATION:
        before, after = states.pools_of_state(item.before), states.pools_of_state(item.after)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                pools = [pool_text(one.get(name)) for one in (before, after)]
                found.append((*pools, Because(Detail.POOL, {"pool": name})))  # type: ignore[arg-type]
    return found
