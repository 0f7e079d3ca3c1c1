"""Assign applications to teams; only admins can do this."""

from datetime import datetime

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.errors import NotAllowed
from queries.domain.reasons import Because, Detail
from queries.models.access.teams import Team
from queries.models.applications import Application
from queries.services.definitions.definition_rows import record_definition


def give_application(
    *, application: Application, team: Team | None, actor: str, now: datetime
) -> None:
    """Assign an application to a team, or to everyone if `team` is None; nothing is restarted."""
    with transaction.atomic():
        rows = Application.objects.select_for_update(of=("self",)).select_related("team")
        held = rows.get(pk=application.pk)
        if held.archived_at is not None:
            raise NotAllowed(f"{held} has been deleted.", way_out="Create it again.")
        if held.team == team:
            return
        Application.objects.filter(pk=held.pk).update(team=team)
        texts = (str(held.team or ""), str(team or ""))
        record_definition(held, None, *texts, actor, now, Because(Detail.TEAM))
        changed(f"application:{held.pk}")
