"""Write a deploy's set of manifests: a part with each wave, and the rest at the end.

A wave's definitions are written when the wave begins, by applying only those objects: a driver that
dies earlier does not restart with a later wave's definition. The rest of the set (alert rules,
labels, objects that do not run, pruning) is written at the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.sets import ApplySet
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.deploys.receipts import DeployChange
from queries.services.definitions.items import SetItem
from queries.services.deploys.requester import user_of
from queries.services.deploys.steps import DeployStep, note
from queries.services.manifests.applying import apply
from queries.services.manifests.planning import Plan, plan


def refuse(set_plan: Plan) -> None:
    """Raise `Invalid` with each of a set's problems, by file and field."""
    problems = [
        Problem(f"{planned_object.path}: {fault.field}", fault.value, fault.message, fault.way_out)
        for planned_object in set_plan.objects
        for fault in planned_object.problems
    ]
    if problems:
        raise Invalid(problems)


def prepare_wave(step: DeployStep) -> Plan:
    """Plan the objects of a wave, before the transaction that writes them."""
    keys = {(change.kind, change.name) for change in step.changes if change.is_written}

    def belongs(item: SetItem) -> bool:
        return (item.kind, item.name) in keys or item.name in hosts

    set_plan = _planned(step)
    hosts = {
        item.host
        for item in set_plan.items
        if item.kind == Kind.QUERY and (item.kind, item.name) in keys
    }
    new_hosts = {
        item.name for item in set_plan.items if item.kind == Kind.APPLICATION and item.is_new
    }
    hosts &= new_hosts
    return _part(set_plan, belongs)


def write(step: DeployStep, todo: Sequence[DeployChange]) -> None:
    """Write the wave's definitions and record each revision, in the caller's transaction.

    Raises `NotAllowed` if a user has changed one of them since the deploy was requested.
    """
    set_plan: Plan = step.prepared
    items = {(item.kind, item.name): item for item in set_plan.items}
    for change in todo:
        item = items.get((change.kind, change.name))
        if item is not None and not item.is_new and item.revision != change.former.get("newest"):
            raise NotAllowed(
                f"{change.name} was changed after the deploy was requested.",
                way_out="Request it again; the response shows the new differences.",
            )
    apply(set_plan, actor=step.deploy.actor, via=f"deploy {step.deploy.uuid}", now=step.now)
    for change in todo:
        _note_written(change, items.get((change.kind, change.name)))


def _note_written(change: DeployChange, item: SetItem | None) -> None:
    if not change.is_written or item is None:  # it only restarts with its application
        note(change, to_revision=change.from_revision)
        return
    if isinstance(item.row, Query):
        note(change, query=item.row, application=item.row.application)
    elif isinstance(item.row, Application):
        note(change, application=item.row)
    note(change, to_revision=item.revision)


def prepare_rest(step: DeployStep) -> Plan:
    """Plan the whole set again: the waves have been written, so only the rest remains."""
    return _part(_planned(step), lambda item: True, leaving=True)


def write_rest(step: DeployStep) -> None:
    """Write the rest of the set and record the consequences, in the caller's transaction."""
    by = {"actor": step.deploy.actor, "via": f"deploy {step.deploy.uuid}"}
    step.deploy.follows = apply(step.prepared, **by, now=step.now).operations
    step.deploy.save(update_fields=["follows"])


def _planned(step: DeployStep) -> Plan:
    apply_set = ApplySet.model_validate(step.deploy.asked)
    set_plan = plan(apply_set, user=user_of(step.deploy, now=step.now), now=step.now)
    started = set(step.deploy.changes.filter(runs=True).values_list("kind", "name"))
    for item in set_plan.items:
        if (item.kind, item.name) in started:
            item.desired = None  # its wave starts and evaluates it; apply must not start it again
    return set_plan


def _part(set_plan: Plan, belongs: Callable[[SetItem], bool], *, leaving: bool = False) -> Plan:
    part = replace(
        set_plan,
        items=[item for item in set_plan.items if belongs(item)],
        leaving=set_plan.leaving if leaving else [],
    )
    refuse(part)
    return part
