"""The system's own health over REST, part by part, with what is behind and what is passed over."""

from dataclasses import dataclass
from datetime import datetime

from rest_framework import serializers

from controlplane.health.parts import Part, State
from controlplane.health.system import SystemHealth, system_health
from listeners.loops.backlogs import Backlog, backlogs
from queries.api.base import ApiView
from queries.api.derived import Body
from queries.api.methods import answers


@dataclass(frozen=True, slots=True)
class _Told:
    """The parts, and the bulk work."""

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
    state = serializers.ChoiceField([str(state) for state in State])
    sentence = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True, help_text="Since when there is a problem.")


class BacklogBody(Body):
    """One kind of bulk work, as of its last run."""

    name = serializers.CharField()
    rows = serializers.IntegerField(help_text="How many wait.")
    since = serializers.DateTimeField(allow_null=True, help_text="Since when the oldest waits.")
    ran_at = serializers.DateTimeField(allow_null=True, help_text="When its last run ended.")


class SystemBody(Body):
    """Every part of the system, and the bulk work."""

    at = serializers.DateTimeField()
    ok = serializers.BooleanField()
    parts = PartBody(many=True)
    backlogs = BacklogBody(many=True)


class SystemView(ApiView):
    """The system's own health."""

    @answers("get_system", SystemBody)
    def get(self) -> _Told:
        """Return the state of every part, and how far the bulk work is behind."""
        return _Told(system_health(self.now), backlogs())
