"""Advance operations on many queries, which start no driver themselves."""

from datetime import datetime

from django.utils import timezone

from queries.services.procedures.engine import advance
from queries.tasks import WORK
from tests.launchers.in_memory import InMemoryLauncher


def advance_many(operation_id: int, *, now: datetime) -> bool:
    """Do all work of one that is possible now; False if none is free."""
    launcher = InMemoryLauncher(clock=timezone.now)
    return advance(operation_id, procedures=WORK, launcher=launcher, now=now)
