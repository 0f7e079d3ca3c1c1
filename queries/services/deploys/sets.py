"""A deploy's set of manifests: what changes in which wave, and how each part of it is written.

The definitions of a wave are written when the wave begins, by an apply of those objects alone: a
driver that dies meanwhile takes no definition whose wave has not come. The rest of the set (alert
rules, labels, what does not run, what is pruned) is written at the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.sets import ApplySet
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.deploys.receipts import DeployChange
from queries.services.deploys.turns import Turn, note
from queries.services.deploys.whose import user_of
from queries.services.manifests.applying import apply
from queries.services.manifests.planning import Plan, plan
from queries.services.manifests.works import Work


def refuse(found: Plan) -> None:
    """Raise `Invalid` with each problem of a set, by file and field."""
    problems = [
        Problem(f"{one.path}: {fault.field}", fault.value, fault.message, fault.way_out)
        for one in found.objects
        for fault in one.problems
    ]
    if problems:
        raise Invalid(problems)


def prepare_wave(turn: Turn) -> Plan:
    """Plan the objects of a wave, before the transaction that writes them."""
    keys = {(one.kind, one.name) for one in turn.changes if one.is_written}

    def belongs(work: Work) -> bool:
        return (work.kind, work.name) in keys or work.name in hosts

    found = _planned(turn)
    hosts = {
        work.host
        for work in found.works
        if work.kind == Kind.QUERY and (work.kind, work.name) in keys
    }
    new_hosts = {work.name for work in found.works if work.kind == Kind.APPLICATION and work.is_new}
    hosts &= new_hosts
    return _part(found, belongs)


def write(turn: Turn, todo: Sequence[DeployChange]) -> None:
    """Write the wave's definitions, and note the revision of each, in the caller's transaction.

    Raises `NotAllowed` where somebody has changed one of them since the deploy was asked for.
    """
    found: Plan = turn.prepared
    works = {(work.kind, work.name): work for work in found.works}
    for change in todo:
        work = works.get((change.kind, change.name))
        if work is not None and not work.is_new and work.revision != change.former.get("newest"):
            raise NotAllowed(
                f"{change.name} was changed after the deploy was requested.",
                way_out="Request it again; its answer has the new difference.",
            )
    apply(found, actor=turn.deploy.actor, via=f"deploy {turn.deploy.uuid}", now=turn.now)
    for change in todo:
        _note_written(change, works.get((change.kind, change.name)))


def _note_written(change: DeployChange, work: Work | None) -> None:
    if not change.is_written or work is None:  # it restarts with its application alone
        note(change, to_revision=change.from_revision)
        return
    if isinstance(work.row, Query):
        note(change, query=work.row, application=work.row.application)
    elif isinstance(work.row, Application):
        note(change, application=work.row)
    note(change, to_revision=work.revision)


def prepare_rest(turn: Turn) -> Plan:
    """Plan the whole set, of which the waves are written: what is left of it."""
    return _part(_planned(turn), lambda work: True, leaving=True)


def write_rest(turn: Turn) -> None:
    """Write what is left of the set, and note what follows, in the caller's transaction."""
    by = {"actor": turn.deploy.actor, "via": f"deploy {turn.deploy.uuid}"}
    turn.deploy.follows = apply(turn.prepared, **by, now=turn.now).operations
    turn.deploy.save(update_fields=["follows"])


def _planned(turn: Turn) -> Plan:
    asked = ApplySet.model_validate(turn.deploy.asked)
    found = plan(asked, user=user_of(turn.deploy, now=turn.now), now=turn.now)
    started = set(turn.deploy.changes.filter(runs=True).values_list("kind", "name"))
    for work in found.works:
        if (work.kind, work.name) in started:
            work.desired = None  # its wave starts it, and judges it: no apply does so again
    return found


def _part(found: Plan, belongs: Callable[[Work], bool], *, leaving: bool = False) -> Plan:
    part = replace(
        found,
        works=[work for work in found.works if belongs(work)],
        leaving=found.leaving if leaving else [],
    )
    refuse(part)
    return part
