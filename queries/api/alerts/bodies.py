"""Request and response bodies for incidents, channels, rules and maintenance windows."""

from typing import Any

from rest_framework import serializers

from queries.api.bodies import Body, described, form_for, serializer_for
from queries.channels.kinds import ChannelKind
from queries.domain.alerts import forms
from queries.domain.alerts.forms import EntryKind, IncidentKind, IncidentState, Severity
from queries.models.alerts import AlertRule, Channel, Incident, IncidentEntry, Maintenance
from queries.selectors.alerts.incidents import explain_incident

Form = serializers.Serializer[Any]

#: Names for the document's enums, which would otherwise all be called "KindEnum" (settings).
CHANNEL_KINDS = [str(kind) for kind in ChannelKind]
ENTRY_KINDS = [str(kind) for kind in EntryKind]
INCIDENT_KINDS = [str(kind) for kind in IncidentKind]
INCIDENT_STATES = [str(state) for state in IncidentState]


@serializer_for(
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
    """One problem, from the time it appears until it clears.

    affected: Names of affected queries, at most 20; affected_count is the total.
    quiet_since: When the problem cleared; the incident closes five minutes later.
    closed_by: Empty if it closed automatically.
    """

    affected = serializers.ListField(child=serializers.CharField())


@described
class ExplainedIncidentBody(IncidentBody):
    """One problem, with the explanation that messages and the incident's page show.

    cause: Why there is an incident, from its newest failure or its evidence.
    place: Query, batch, run, application and host.
    next_step: What to do; empty once it is closed.
    next_page: Path of the console's page on which to do it.
    ended: How it ended; empty while it is open.
    """

    cause = serializers.CharField()
    place = serializers.CharField()
    next_step = serializers.CharField()
    next_page = serializers.CharField()
    ended = serializers.CharField()

    def to_representation(self, instance: Incident) -> dict[str, Any]:
        """Return the incident with its explanation."""
        explained = explain_incident(instance)
        vars(instance).update(
            cause=explained.why.cause,
            place=explained.why.place,
            next_step="" if explained.ended else explained.why.step,
            next_page=explained.address,
            ended=explained.ended,
        )
        return super().to_representation(instance)


@serializer_for(IncidentEntry, "at kind actor text", kind=EntryKind)
class IncidentEntryBody(Body):
    """One entry in an incident's history; the actor is empty for Headgate."""


@serializer_for(
    Channel,
    "name kind settings enabled created_at created_by last_sent_at failing_since last_error",
)
class ChannelBody(Body):
    """A notification channel; its secrets are references.

    kind: A kind of channel, or one that was removed; such a channel is disabled.
    """


@serializer_for(
    AlertRule,
    "name enabled position selector channels quiet_hours escalate_after_minutes escalate_to "
    "remind_every_hours thresholds created_at created_by",
)
class RuleBody(Body):
    """Which incidents are sent to which channels, and when notifications are repeated."""

    channels = serializers.SerializerMethodField()
    escalate_to = serializers.SerializerMethodField()
    quiet_hours = serializers.SerializerMethodField()

    def get_channels(self, rule: AlertRule) -> list[str]:
        """Return the names of the channels to notify."""
        return [channel.name for channel in rule.channels.all()]

    def get_escalate_to(self, rule: AlertRule) -> list[str]:
        """Return the names of the channels to notify if nobody acknowledges the incident."""
        return [channel.name for channel in rule.escalate_to.all()]

    def get_quiet_hours(self, rule: AlertRule) -> dict[str, Any] | None:
        """Return the zone, from, until and days; null if there are no quiet hours."""
        return rule.quiet_hours or None


@serializer_for(Maintenance, "id=pk name selector starts_at ends_at created_at created_by")
class MaintenanceBody(Body):
    """A maintenance window, in which matching problems do not open incidents."""


@described
@form_for(forms.ChannelForm)
class ChannelForm(Form):
    """A complete channel; if the name differs from the one in the URL, the channel is renamed.

    settings: The settings of its kind; secrets are written as file:NAME or env:NAME.
    """

    ignored = forms.ChannelForm.ignored
    kind = serializers.ChoiceField(CHANNEL_KINDS)


class AcknowledgeForm(Form):
    """How long you will be working on the incident; by default, until it is closed."""

    until = serializers.DateTimeField(default=None, allow_null=True)


class SnoozeForm(Form):
    """The time until which no notifications are sent."""

    until = serializers.DateTimeField()


class AssignForm(Form):
    """The user who is working on the incident; empty for nobody."""

    to = serializers.CharField(max_length=150, allow_blank=True)


class NoteForm(Form):
    """A finding about the incident."""

    text = serializers.CharField(max_length=5000)
