"""What a step of a deploy works with: the deploy, those of its changes concerned, and the moment.

Each act is one transaction that first claims the deploy by its version. What it asks for (an
operation, a revision) and the note of it are written together, or neither is: a worker that dies
before or after loses nothing, and two workers do nothing twice.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F

from queries.domain.deploys.forms import Good
from queries.domain.deploys.judging import OK, Result, bad, waits
from queries.domain.deploys.states import OUT
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import OperationOutcome
from queries.models.deploys.receipts import Deploy, DeployChange
from queries.models.history import Operation


class Overtaken(Exception):
    """Another worker, or a request, has moved the deploy meanwhile."""


@dataclass(slots=True)
class DeployStep:
    """A deploy as it is now, and what of it is concerned."""

    deploy: Deploy
    changes: list[DeployChange]  # that the stage is about
    now: datetime
    prepared: Any = None  # what the stage looked up before its transaction

    @property
    def good(self) -> Good:
        """Return what counts as good."""
        return Good.model_validate(self.deploy.good)

    @property
    def by(self) -> dict[str, Any]:
        """Return who acts, and when, as services take it."""
        return {"actor": self.deploy.actor, "now": self.now}

    @property
    def is_late(self) -> bool:
        """Return whether the stage has lasted as long as a wave may."""
        since = self.deploy.stage_since or self.now
        return self.now >= since + timedelta(minutes=self.good.deadline_minutes)

    def claim(self) -> None:
        """Raise `Overtaken` where the deploy is no longer as it was read; call it first."""
        mine = Deploy.objects.filter(pk=self.deploy.pk, version=self.deploy.version, ended_at=None)
        if not mine.update(version=F("version") + 1):
            raise Overtaken


def note(change: DeployChange, **fields: Any) -> None:
    """Write columns of a change."""
    for name, value in fields.items():
        setattr(change, name, value)
    change.save(update_fields=list(fields))


def asked_for(change: DeployChange, stage: str, operation: Operation) -> dict[str, str]:
    """Return a change's operations with one more."""
    return {**change.operations, stage: str(operation.uuid)}


def settled(change: DeployChange) -> Result | None:
    """Return the result of a change that is out already, whatever the stage; None for others."""
    return bad(change.reason) if change.state in OUT else None


def followed(change: DeployChange, stage: str) -> Result:
    """Return how the operation that was asked for in a stage stands."""
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
    """Return what an error of ours says, as a reason."""
    return Because(Detail.REFUSED, {"error": error.code, "message": str(error)})
