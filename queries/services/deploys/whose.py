"""Whose a deploy is: who asked for it, from where and by which token, and whom it touches.

A deploy is written by workers, wave by wave, long after its request has been answered. What limits
the request limits them too: the token's scope, team and applications, as they are when a wave is
written.
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
    """Return who asks for a deploy, as its row keeps it."""
    token = token_of(user)
    return {
        "address": (asker() or Asker()).address,
        "token": token.name if token else "",
        "token_id": str(token.uuid) if token else "",
    }


def asker_of(deploy: Deploy) -> Asker:
    """Return who asked for a deploy, for what workers write of it: nothing of that is counted."""
    return Asker(**deploy.asker, bulk=True)


def user_of(deploy: Deploy, *, now: datetime) -> User:
    """Return who asked for a deploy, limited to what their token allows now.

    Raises `NotAllowed` where the account is not active any more, or the token is gone.
    """
    way_out = "Have somebody else deploy it."
    user = User.objects.filter(username=deploy.actor, is_active=True).first()
    if user is None:
        raise NotAllowed(f"{deploy.actor} has no active account any more.", way_out=way_out)
    if token_id := deploy.asker.get("token_id"):
        living = Q(expiry=None) | Q(expiry__gt=now)
        token = AccessToken.objects.filter(living, uuid=token_id, user=user).first()
        if token is None:
            raise NotAllowed(
                "The token that requested the deploy has expired or was revoked.",
                way_out="Request it again with another token.",
            )
        limit_to(user, token)
    return user


def touched(found: Plan) -> list[dict[str, Any]]:
    """Return the applications that a set changes, new ones too, as a deploy's row keeps them."""
    known, new = {}, {}
    for item in found.items:
        row = item.application or found.present.applications.get(item.host)
        if item.outcome is Outcome.UNCHANGED or item.kind == Kind.ALERT_RULE:
            continue
        if row is not None:
            known[row.pk] = row
        elif item.own is not None or item.kind == Kind.APPLICATION:
            new[item.host or item.name] = item.team
    known |= {row.pk: row for one in found.leaving if (row := one.application) is not None}
    return [
        *({"application": row.pk, "name": row.name, "team": row.team_id} for row in known.values()),
        *(
            {"application": None, "name": name, "team": team.pk if team else None}
            for name, team in new.items()
        ),
    ]
