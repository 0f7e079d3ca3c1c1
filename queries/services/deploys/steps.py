"""The context of a deploy's step: the deploy, the changes concerned, and the time.

Each action is one transaction that first claims the deploy by its version. What the action requests
(an operation, a revision) and the record of it are written together or not at all. A worker that
dies before or after it does not lose anything, and no work is done twice by two workers.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F

from queries.domain.deploys.forms import Good
from queries.domain.deploys.judging import OK, ChangeResult, bad, waits
from queries.domain.deploys.states import OUT
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import OperationOutcome
from queries.models.deploys.receipts import Deploy, DeployChange
from queries.models.history import Operation


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
