"""Request and cancel deploys."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from controlplane.nudge import advance_deploys_soon, changed
from queries.domain.access import Act
from queries.domain.deploys.request import (
    ROLLBACK_STAGES,
    ChangeKind,
    DeployForm,
    RestartGroup,
    UnchangedQuery,
    divide,
    imports_differ,
    tried_beside,
)
from queries.domain.errors import Conflict, Invalid, NotAllowed, Problem
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.sets import ApplySet, parse_set
from queries.domain.sparks import spark_of
from queries.domain.states import Desired
from queries.models.applications import Application, Script
from queries.models.definitions import Query, QueryRevision
from queries.models.deploys import Deploy, DeployChange
from queries.selectors import manifests
from queries.selectors.rows import newest_revisions
from queries.services.access.audit import record_act
from queries.services.access.tokens import record_deploy
from queries.services.definitions.items import SetItem
from queries.services.deploys import steps
from queries.services.deploys.restarts import wave_order
from queries.services.deploys.steps import asker_of_request, touched
from queries.services.manifests.applying import refuse_state_changes
from queries.services.manifests.planning import Plan, plan


def request_deploy(*, form: DeployForm, user: Any, actor: str, now: datetime) -> Deploy:
    """Plan a set of changes, and request that it be deployed wave by wave.

    Raises `Invalid` with every problem of the set or its waves, `Forbidden` if the user is not
    allowed to define one of its objects, `Conflict` while another deploy changes one of them, and
    `TooMany` if the user makes requests too often.
    """
    apply_set = _set(form)
    set_plan = plan(apply_set, user=user, now=now)
    apply_set = set_plan.asked  # every wave uses the commits resolved now
    steps.refuse(set_plan)
    changes = _changes(set_plan)
    running = {
        deploy_change.name
        for deploy_change in changes
        if deploy_change.runs and deploy_change.kind == ChangeKind.QUERY
    }
    starting = (item for item in set_plan.items if item.kind == Kind.QUERY and item.name in running)
    refuse_state_changes(starting, accepted=apply_set.accept_state_change)
    units = _units(changes)
    order = wave_order(set_plan, units, form.waves.first)
    waves = divide(units, form.waves, order.before)
    numbers = {
        (unit.kind, unit.name): number for number, wave in enumerate(waves, 1) for unit in wave
    }
    try:
        with transaction.atomic():
            deploy = _insert(form, apply_set, set_plan, user, actor=actor, now=now)
            deploy.waves = len(waves)
            deploy.unsure = order.unsure
            deploy.save(update_fields=["waves", "unsure"])
            for change in changes:
                change.deploy = deploy
                change.wave = numbers[_unit_of(change)]
                change.reason = order.reason(*_unit_of(change))
            DeployChange.objects.bulk_create(changes)
            subject = deploy.owner or str(deploy.uuid)[:8]
            details: dict[str, Any] = {"deploy": deploy.uuid, "waves": len(waves)}
            details["commit"] = apply_set.source.commit
            details |= {"first": form.waves.first, "circles": order.circles}
            record_deploy(actor=actor, now=now, subject=subject, **details)
            advance_deploys_soon()
            changed("deploys")
    except IntegrityError as error:
        raise _conflict_with_open_deploy(changes) from error
    return deploy


def cancel_deploy(deploy: Deploy, *, actor: str, now: datetime) -> Deploy:
    """Cancel a deploy: nothing more is rolled out, and on_failure decides whether to roll back.

    Raises `NotAllowed` if it has ended, or is already rolling back.
    """
    with transaction.atomic():
        row = Deploy.objects.select_for_update().get(pk=deploy.pk)
        if row.ended_at is not None:
            raise NotAllowed(f"The deploy has ended: {row.state}.")
        if row.stage in ROLLBACK_STAGES:
            way_out = "Wait until it has ended."
            raise NotAllowed("The deploy is already being rolled back.", way_out=way_out)
        if not row.cancelled_by:
            Deploy.objects.filter(pk=row.pk).update(cancelled_by=actor, version=F("version") + 1)
            subject = row.owner or str(row.uuid)[:8]
            about = {"verb": "deploy", "deploy": row.uuid}
            record_act(Act.CANCELLED, actor=actor, now=now, subject=subject, **about)
        advance_deploys_soon()
        changed("deploys", f"deploy:{row.pk}")
    return Deploy.objects.get(pk=deploy.pk)


def _set(form: DeployForm) -> ApplySet:
    try:
        return parse_set(form.apply)
    except Invalid as error:
        raise Invalid(
            [
                Problem(f"apply.{problem.field}", problem.value, problem.message, problem.way_out)
                for problem in error.problems
            ]
        ) from error


def _insert(
    form: DeployForm,
    apply_set: ApplySet,
    set_plan: Plan,
    user: Any,
    *,
    actor: str,
    now: datetime,
) -> Deploy:
    return Deploy.objects.create(
        actor=actor,
        asker=asker_of_request(user),
        touches=touched(set_plan),
        owner=apply_set.owner,
        source=apply_set.source.model_dump(),
        asked=apply_set.model_dump(mode="json"),
        diff=[
            asdict(planned_object)
            for planned_object in set_plan.objects
            if planned_object.outcome != "unchanged"
        ],
        canary=list(form.waves.canary),
        size=form.waves.size,
        good=form.good.model_dump(),
        on_failure=form.on_failure,
        preflight=form.preflight or _requires_preflight(set_plan),
        created_at=now,
    )


def _requires_preflight(set_plan: Plan) -> bool:
    """Return whether an application affected by the changes requires a preflight to start."""
    queries = [item for item in set_plan.items if item.kind == Kind.QUERY]
    concerned = {item.host for item in queries if item.is_new or item.effect}
    concerned |= {
        item.name for item in set_plan.items if _has_new_imports(item) or _has_new_spark(item)
    }
    of_set = {item.name: item for item in set_plan.items if item.kind == Kind.APPLICATION}
    return any(
        set_plan.existing_rows.application_spec(row).require_preflight
        or (name in of_set and of_set[name].after["spec"].get("require_preflight"))
        for name, row in set_plan.existing_rows.applications.items()
        if name in concerned
    )


def _has_new_imports(item: SetItem) -> bool:
    """Return whether the code or packages of an existing application change."""
    exists = item.kind == Kind.APPLICATION and not item.is_new
    return exists and imports_differ(item.before["spec"], item.after["spec"])


def _has_new_spark(item: SetItem) -> bool:
    """Return whether the Spark of an existing application changes."""
    exists = item.kind == Kind.APPLICATION and not item.is_new
    return exists and spark_of(item.before["spec"]) != spark_of(item.after["spec"])


# --- changes ------------------------------------------------------------------------------


def _changes(set_plan: Plan) -> list[DeployChange]:
    """Return the changes that a deploy writes in waves, and those that restart with them."""
    queries = {item.name: item for item in set_plan.items if item.kind == Kind.QUERY}
    driven = {
        item.name: item
        for item in set_plan.items
        if item.kind == Kind.APPLICATION and _goes_in_a_wave(item)
    }
    changes = [
        _of_query(
            item,
            set_plan.existing_rows.applications.get(item.host),
            with_driver=item.host in driven,
        )
        for item in queries.values()
        if _goes_in_a_wave(item)
    ]
    beside = Query.objects.filter(application__name__in=driven, archived_at=None)
    beside = beside.exclude(name__in=[change.name for change in changes])
    wanted = beside.filter(desired=Desired.RUNNING).select_related("application", "target_revision")
    changes += _neighbours(list(wanted), changes, driven.values())
    running = {change.application_id for change in changes if change.runs}
    for item in driven.values():
        changes.append(_of_application(item, running))
    return changes


def _goes_in_a_wave(item: SetItem) -> bool:
    """Return whether a query or an application is written and restarted in a wave.

    New objects that do not run, and objects to stop, are written with the rest of the set.
    """
    if item.is_new or item.desired is Desired.STOPPED:
        return item.desired is Desired.RUNNING
    differs = bool(item.effect) if item.kind == Kind.QUERY else _restarts_driver(item)
    return differs or item.desired is Desired.RUNNING


def _restarts_driver(item: SetItem) -> bool:
    pools = [manifests.pools_of_state(state) for state in (item.before, item.after)]
    return bool(item.effect) or pools[0] != pools[1]


def _of_query(item: SetItem, application: Application | None, *, with_driver: bool) -> DeployChange:
    row = item.row if isinstance(item.row, Query) else None
    pinned = row.target_revision if row and row.desired == Desired.RUNNING else None
    return DeployChange(
        kind=ChangeKind.QUERY,
        name=item.name,
        application=application,
        query=row,
        with_driver=with_driver,
        runs=item.desired is Desired.RUNNING
        or (row is not None and row.desired == Desired.RUNNING),
        from_revision=pinned.number if pinned else item.revision,
        former={"newest": item.revision, "desired": row.desired if row else Desired.STOPPED},
        spec=item.after["spec"],
    )


def _neighbours(
    rows: Sequence[Query], changed: Iterable[DeployChange], driven: Iterable[SetItem]
) -> list[DeployChange]:
    """Return the unchanged queries that restart with their application's driver."""
    newest = newest_revisions([row.pk for row in rows])
    pinned = {row.pk: row.target_revision or newest[row.pk] for row in rows}
    tried = tried_beside(
        [
            UnchangedQuery(
                row.name, row.application.name, pinned[row.pk].spec.get("kind") == "python"
            )
            for row in rows
            if not row.discovered  # its script starts it; no preflight is possible
        ],
        new_imports={item.name for item in driven if _has_new_imports(item)},
        new_sparks={item.name for item in driven if _has_new_spark(item)},
        tried={
            change.application.name
            for change in changed
            if change.application is not None and change.from_revision is not None
        },
    )
    return [_of_neighbour(row, pinned[row.pk], tried=row.name in tried) for row in rows]


def _of_neighbour(row: Query, pinned: QueryRevision, *, tried: bool) -> DeployChange:
    return DeployChange(
        kind=ChangeKind.QUERY,
        name=row.name,
        application=row.application,
        query=row,
        with_driver=True,
        is_written=False,
        from_revision=pinned.number,
        spec=pinned.spec if tried else {},
    )


def _of_application(item: SetItem, running: Collection[int | None]) -> DeployChange:
    """Return an application's own change; `running` has the ids of those with a running query."""
    row = item.row if isinstance(item.row, Application) else None
    script = Script.objects.filter(application=row).first() if row else None
    ran = script.desired if script else Desired.STOPPED
    pinned = row.target_revision if row and (script is None or ran == Desired.RUNNING) else None
    pools = [
        {"name": pool.name, "weight": pool.weight, "min_share": pool.min_share, "mode": pool.mode}
        for pool in (row.pools.all() if row else ())
    ]
    is_script = item.after["spec"].get("kind") == "script"
    former = {"newest": item.revision, "pools": pools} | ({"desired": ran} if is_script else {})
    return DeployChange(
        kind=ChangeKind.APPLICATION,
        name=item.name,
        application=row,
        with_driver=True,
        runs=Desired.RUNNING in (ran, item.desired) or (row is not None and row.pk in running),
        from_revision=pinned.number if pinned else item.revision,
        former=former,
        spec=item.after["spec"],
    )


def _units(changes: Iterable[DeployChange]) -> list[RestartGroup]:
    members: dict[int | None, list[str]] = {}
    for change in changes:
        if change.with_driver and change.kind == ChangeKind.QUERY:
            members.setdefault(change.application_id, []).append(change.name)
    return [
        RestartGroup(
            ChangeKind(change.kind),
            change.name,
            tuple(members.get(change.application_id, ()))
            if change.kind == ChangeKind.APPLICATION
            else (),
        )
        for change in changes
        if change.kind == ChangeKind.APPLICATION or not change.with_driver
    ]


def _unit_of(change: DeployChange) -> tuple[ChangeKind, str]:
    if change.with_driver and change.kind == ChangeKind.QUERY:
        assert change.application is not None, "its driver is there to be replaced"
        return ChangeKind.APPLICATION, change.application.name
    return ChangeKind(change.kind), change.name


def _conflict_with_open_deploy(changes: Iterable[DeployChange]) -> Conflict:
    for change in changes:
        open_change = DeployChange.objects.filter(
            kind=change.kind, name=change.name, over=False
        ).first()
        if open_change is not None:
            return Conflict(
                f"{change.name} is already being deployed.",
                way_out=f"Wait for deploy {open_change.deploy.uuid}, or cancel it.",
            )
    return Conflict("Another deploy has begun.", way_out="Request it again.")
