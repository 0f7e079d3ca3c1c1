"""The context of a deploy's step: its requester, the changes, the time, and the set that it
writes.

Workers write a deploy wave by wave, long after the response to its request was sent. The limits of
the request apply to these writes too: the token's scope, team and applications at the time when a
wave is written.

Each action is one transaction that first claims the deploy by its version. What the action requests
(an operation, a revision) and the record of it are written together or not at all. A worker that
dies before or after it does not lose anything, and no work is done twice by two workers.

A wave's definitions are written when the wave begins, by applying only those objects: a driver that
dies earlier does not restart with a later wave's definition. The rest of the set (alert rules,
labels, objects that do not run, pruning) is written at the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Q

from queries.domain.deploys.course import OK, ChangeResult, bad, waits
from queries.domain.deploys.request import OUT, Good
from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.sets import ApplySet, Outcome
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import OperationOutcome
from queries.models.access.accounts import AccessToken
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.deploys import Deploy, DeployChange
from queries.models.history import Operation
from queries.roles import limit_to, token_of
from queries.services.access.audit import Asker, asker
from queries.services.definitions.items import SetItem
from queries.services.manifests.applying import apply
from queries.services.manifests.planning import Plan, plan


def asker_of_request(user: Any) -> dict[str, str]:
    """Return the requester of a deploy, as stored in its row."""
    token = token_of(user)
    return {
        "address": (asker() or Asker()).address,
        "token": token.name if token else "",
        "token_id": str(token.uuid) if token else "",
    }


def asker_of(deploy: Deploy) -> Asker:
    """Return a deploy's requester for workers' writes, which do not count towards rate limits."""
    return Asker(**deploy.asker, bulk=True)


def user_of(deploy: Deploy, *, now: datetime) -> User:
    """Return a deploy's requester, limited to the token's current permissions.

    Raises `NotAllowed` if the account is no longer active, or the token is gone.
    """
    way_out = "Ask someone else to deploy it."
    user = User.objects.filter(username=deploy.actor, is_active=True).first()
    if user is None:
        raise NotAllowed(f"{deploy.actor} no longer has an active account.", way_out=way_out)
    if token_id := deploy.asker.get("token_id"):
        living = Q(expiry=None) | Q(expiry__gt=now)
        token = AccessToken.objects.filter(living, uuid=token_id, user=user).first()
        if token is None:
            raise NotAllowed(
                "The token used to request the deploy has expired or was revoked.",
                way_out="Request it again with another token.",
            )
        limit_to(user, token)
    return user


def touched(set_plan: Plan) -> list[dict[str, Any]]:
    """Return the applications that a set changes or creates, as stored in a deploy's row."""
    applications, new = {}, {}
    for item in set_plan.items:
        row = item.application or set_plan.existing_rows.applications.get(item.host)
        if item.outcome is Outcome.UNCHANGED or item.kind == Kind.ALERT_RULE:
            continue
        if row is not None:
            applications[row.pk] = row
        elif item.own is not None or item.kind == Kind.APPLICATION:
            new[item.host or item.name] = item.team
    applications |= {
        row.pk: row for leaving in set_plan.leaving if (row := leaving.application) is not None
    }
    return [
        *(
            {"application": row.pk, "name": row.name, "team": row.team_id}
            for row in applications.values()
        ),
        *(
            {"application": None, "name": name, "team": team.pk if team else None}
            for name, team in new.items()
        ),
    ]


class Overtaken(Exception):
    """Another worker, or a request, has advanced the deploy in the meantime."""


@dataclass(slots=True)
class DeployStep:
    """A deploy as it is now, and the changes concerned."""

    deploy: Deploy
    changes: list[DeployChange]  # those of the stage
    now: datetime
    prepared: Any = None  # what the stage looked up before its transaction

    @property
    def good(self) -> Good:
        """Return the criteria for a good result."""
        return Good.model_validate(self.deploy.good)

    @property
    def by(self) -> dict[str, Any]:
        """Return the actor and the time as keyword arguments for services."""
        return {"actor": self.deploy.actor, "now": self.now}

    @property
    def is_late(self) -> bool:
        """Return whether the stage has reached a wave's time limit."""
        since = self.deploy.stage_since or self.now
        return self.now >= since + timedelta(minutes=self.good.deadline_minutes)

    def claim(self) -> None:
        """Raise `Overtaken` if the deploy has changed since it was read; call this first."""
        mine = Deploy.objects.filter(pk=self.deploy.pk, version=self.deploy.version, ended_at=None)
        if not mine.update(version=F("version") + 1):
            raise Overtaken


def note(change: DeployChange, **fields: Any) -> None:
    """Set and save these columns of a change."""
    for name, value in fields.items():
        setattr(change, name, value)
    change.save(update_fields=list(fields))


def operations_with(change: DeployChange, stage: str, operation: Operation) -> dict[str, str]:
    """Return a change's operations by stage, including this one."""
    return {**change.operations, stage: str(operation.uuid)}


def settled(change: DeployChange) -> ChangeResult | None:
    """Return a change's final result, whatever the stage; None if it has none yet."""
    return bad(change.reason) if change.state in OUT else None


def followed(change: DeployChange, stage: str) -> ChangeResult:
    """Return the state of the operation that a stage requested."""
    row = Operation.objects.filter(uuid=change.operations[stage]).first()
    if row is None:
        return bad(_failed(stage, change, NOTHING))
    if row.outcome == OperationOutcome.OPEN:
        return waits(row.detail)
    if row.outcome == OperationOutcome.DONE:
        return OK
    return bad(_failed(row.verb, change, row.detail))


def _failed(verb: str, change: DeployChange, about: Because) -> Because:
    params = {"verb": verb, "query": change.name, "about": about.as_json()}
    return Because(Detail.OPERATION_FAILED, params)


def refused(error: Any) -> Because:
    """Convert a Headgate error's message to a reason."""
    return Because(Detail.REFUSED, {"error": error.code, "message": str(error)})


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
    """Plan the complete set again: the waves have been written, so only the rest remains."""
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
