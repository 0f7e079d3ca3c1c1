"""What the API says of incidents, channels, rules and windows, and what it takes for them."""

from typing import Any, ClassVar

from rest_framework import serializers

from queries.api.derived import Body, described, shows
from queries.api.schema import ObjectField
from queries.channels.base import ChannelKind
from queries.domain.alerts.kinds import EntryKind, IncidentKind, IncidentState, Severity
from queries.models.alerts import AlertRule, Channel, Incident, IncidentEntry, Maintenance

Form = serializers.Serializer[Any]

#: Names of the document's enums, which would all be called "KindEnum" (settings).
CHANNEL_KINDS = [str(kind) for kind in ChannelKind]
ENTRY_KINDS = [str(kind) for kind in EntryKind]
INCIDENT_KINDS = [str(kind) for kind in IncidentKind]


@shows(
    Incident,
    "id=uuid kind severity title detail state query=query.name application=application.name host "
    "affected affected_count labels occurrence first_opened_at opened_at seen_at quiet_since "
    "closed_at closed_by acknowledged_by acknowledged_at acknowledged_until snoozed_until "
    "assignee failure_group=failure_group_id run=run_id",
    kind=IncidentKind,
    severity=Severity,
    state=IncidentState,
)
class IncidentBody(Body):
    """One trouble while it lasts.

    affected: Names of queries, at most 20 of affected_count.
    quiet_since: Its cause is gone since then; it is closed five minutes later.
    closed_by: Empty where it closed by itself.
    """

    affected = serializers.ListField(child=serializers.CharField())


@shows(IncidentEntry, "at kind actor text", kind=EntryKind)
class IncidentEntryBody(Body):
    """One line of an incident's story; the actor is empty for Headgate."""


@shows(
    Channel,
    "name kind settings enabled created_at created_by last_sent_at failing_since last_error",
    kind=ChannelKind,
)
class ChannelBody(Body):
    """A way to tell people; its secrets are references."""


@shows(
    AlertRule,
    "name enabled position selector channels quiet_hours escalate_after_minutes escalate_to "
    "remind_every_hours created_at created_by",
)
class RuleBody(Body):
    """Which incidents are told to which channels, and when again."""

    channels = serializers.SerializerMethodField()
    escalate_to = serializers.SerializerMethodField()
    quiet_hours = serializers.SerializerMethodField()

    def get_channels(self, rule: AlertRule) -> list[str]:
        """Return the names of the channels that are told."""
        return [channel.name for channel in rule.channels.all()]

    def get_escalate_to(self, rule: AlertRule) -> list[str]:
        """Return the names of the channels that are told when nobody acknowledges."""
        return [channel.name for channel in rule.escalate_to.all()]

    def get_quiet_hours(self, rule: AlertRule) -> dict[str, Any] | None:
        """Return zone, from, until and days; null where there are none."""
        return rule.quiet_hours or None


@shows(Maintenance, "id=pk name selector starts_at ends_at created_at created_by")
class MaintenanceBody(Body):
    """A window in which troubles open no incident."""


@described
class ChannelForm(Form):
    """A channel, whole; an existing one keeps its name's address.

    settings: Those of its kind; secrets as file:NAME or env:NAME.
    """

    ignored: ClassVar[tuple[str, ...]] = (
        *("created_at", "created_by", "last_sent_at", "failing_since", "last_error"),
    )

    name = serializers.CharField(max_length=80)
    kind = serializers.ChoiceField(CHANNEL_KINDS)
    settings = ObjectField()
    enabled = serializers.BooleanField(default=True)


@described
class RuleForm(Form):
    """A rule, whole.

    selector: labels, kinds, severities, applications; what is left out holds of every incident.
    channels: Names of the channels that are told.
    quiet_hours: zone, from, until, days (Monday is 0); warnings wait until they end.
    """

    ignored: ClassVar[tuple[str, ...]] = ("created_at", "created_by")

    name = serializers.CharField(max_length=80)
    enabled = serializers.BooleanField(default=True)
    position = serializers.IntegerField(default=0, min_value=0, max_value=10_000)
    selector = ObjectField(default=dict)
    channels = serializers.ListField(child=serializers.CharField())
    quiet_hours = ObjectField(default=None, allow_null=True)
    escalate_after_minutes = serializers.IntegerField(
        default=None, allow_null=True, min_value=1, max_value=10_080
    )
    escalate_to = serializers.ListField(child=serializers.CharField(), default=list)
    remind_every_hours = serializers.IntegerField(
        default=None, allow_null=True, min_value=1, max_value=720
    )


@described
class MaintenanceForm(Form):
    """A window of maintenance.

    selector: As a rule's.
    """

    name = serializers.CharField(max_length=80)
    selector = ObjectField(default=dict)
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()


class AcknowledgeForm(Form):
    """Until when somebody works on it; without, until it is closed."""

    until = serializers.DateTimeField(default=None, allow_null=True)


class SnoozeForm(Form):
    """Until when nobody is told."""

    until = serializers.DateTimeField()


class AssignForm(Form):
    """Who works on it; empty for nobody."""

    to = serializers.CharField(max_length=150, allow_blank=True)


class NoteForm(Form):
    """What somebody has found out."""

    text = serializers.CharField(max_length=5000)
