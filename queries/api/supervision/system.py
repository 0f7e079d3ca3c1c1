"""The system's own health over REST, part by part, with backlogs and skipped work."""

from dataclasses import dataclass
from datetime import datetime

from rest_framework import serializers

from listeners.loops.backlogs import Backlog, backlogs
from queries.api.base import ApiView
from queries.api.derived import Body
from queries.api.methods import answers
from queries.domain.system import Part, PartState, SystemHealth
from queries.services.system.health import system_health


@dataclass(frozen=True, slots=True)
class _SystemReport:
    """The parts of the system, and its bulk work."""

    health: SystemHealth
    backlogs: list[Backlog]

    @property
    def at(self) -> datetime:
        return self.health.at

    @property
    def ok(self) -> bool:
        return self.health.ok

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.health.parts


class PartBody(Body):
    """One part of the system."""

    name = serializers.CharField()
    state = serializers.ChoiceField([str(state) for state in PartState])
    sentence = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True, help_text="When the problem began.")


class BacklogBody(Body):
    """One kind of background work, as of its last run."""

    name = serializers.CharField()
    rows = serializers.IntegerField(help_text="Number of items waiting.")
    since = serializers.DateTimeField(
        allow_null=True, help_text="When the oldest item began to wait."
    )
    ran_at = serializers.DateTimeField(allow_null=True, help_text="When its last run ended.")


class SystemBody(Body):
    """All parts of the system, and background work."""

    at = serializers.DateTimeField()
    ok = serializers.BooleanField()
    parts = PartBody(many=True)
    backlogs = BacklogBody(many=True)


class SystemView(ApiView):
    """The system's own health."""

    @answers("get_system", SystemBody)
    def get(self) -> _SystemReport:
        """Return the state of every part, and the backlog of bulk work."""
        return _SystemReport(system_health(self.now), backlogs())
