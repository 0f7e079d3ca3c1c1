"""End a deploy: complete its receipt, and release what it held."""

from datetime import datetime

from queries.domain.access.acts import Act
from queries.domain.deploys.states import FREEING, ChangeState, DeployState, Stage
from queries.domain.reasons import Because, Detail
from queries.models.checkpoints import Snapshot
from queries.models.deploys.receipts import Deploy
from queries.services.access.audit_trail import record_act


def end(deploy: Deploy, state: DeployState, reason: Because, *, now: datetime) -> None:
    """Close a deploy, in the transaction of its last step."""
    if reason and deploy.reason and reason != deploy.reason:  # the rollback failed too
        params = {"why": deploy.reason.as_json(), "about": reason.as_json()}
        reason = Because(Detail.NOT_BACK, params)
    deploy.reason = reason or deploy.reason
    deploy.state, deploy.stage, deploy.ended_at = state, Stage.OVER, now
    deploy.save(update_fields=["state", "reason", "stage", "ended_at", "spans"])
    untouched = deploy.changes.filter(to_revision=None)
    untouched.exclude(state=ChangeState.BAD).update(state=ChangeState.LEFT)
    deploy.changes.update(over=True)
    if state in FREEING:
        taken = deploy.changes.filter(snapshot__isnull=False).values("snapshot")
        Snapshot.objects.filter(pk__in=taken).update(pinned=False)
    subject, about = deploy.owner or str(deploy.uuid)[:8], str(deploy.reason)
    said = {"deploy": deploy.uuid, "state": state, "reason": about}
    record_act(Act.DEPLOY, actor=deploy.actor, now=now, subject=subject, **said)
