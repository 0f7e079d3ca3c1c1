"""Identify the requester of a deploy, with origin and token, and the applications affected.

Workers write a deploy wave by wave, long after the response to its request was sent. The limits of
the request apply to these writes too: the token's scope, team and applications at the time when a
wave is written.
"""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q

from queries.domain.errors import NotAllowed
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.plans import Outcome
from queries.models.deploys.receipts import Deploy
from queries.models.tokens import AccessToken
from queries.roles import limit_to, token_of
from queries.services.access.asker import Asker, asker
from queries.services.manifests.planning import Plan


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
    """Return a deploy's requester, limited to what the token currently allows.

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
    existing, new = {}, {}
    for item in set_plan.items:
        row = item.application or set_plan.present.applications.get(item.host)
        if item.outcome is Outcome.UNCHANGED or item.kind == Kind.ALERT_RULE:
            continue
        if row is not None:
            existing[row.pk] = row
        elif item.own is not None or item.kind == Kind.APPLICATION:
            new[item.host or item.name] = item.team
    existing |= {
        row.pk: row for leaving in set_plan.leaving if (row := leaving.application) is not None
    }
    return [
        *(
            {"application": row.pk, "name": row.name, "team": row.team_id}
            for row in existing.values()
        ),
        *(
            {"application": None, "name": name, "team": team.pk if team else None}
            for name, team in new.items()
        ),
    ]
