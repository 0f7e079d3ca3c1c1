"""Incidents and their verbs; channels, rules and maintenance windows."""

from uuid import UUID

from django.db.models import QuerySet
from django.urls import path

from queries.api.admin_objects import endpoints
from queries.api.alerts import bodies
from queries.api.base import ApiView
from queries.api.methods import Nothing, Sent, answers, lists
from queries.api.paging import word
from queries.domain.alerts.kinds import IncidentState, Severity
from queries.models.alerts import Channel, Incident, IncidentEntry
from queries.roles import ADMINISTER, OPERATE
from queries.selectors.alerts import incidents
from queries.services.alerts import incidents as verbs
from queries.services.alerts.deliveries import try_channel
from queries.services.alerts.setup import CHANNELS, MAINTENANCE, RULES


class IncidentsView(ApiView):
    """All incidents."""

    @lists(
        "list_incidents",
        bodies.IncidentBody,
        by="opened_at pk",
        parameters=[
            word("state", IncidentState),
            word("severity", Severity),
            *map(word, ("query", "search")),
        ],
    )
    def get(self) -> QuerySet[Incident]:
        """List incidents, newest first."""
        for name, words in (("state", IncidentState), ("severity", Severity)):
            self.choice_params(name, words) if self.query_param(name) else None
        asked = {name: self.query_param(name) for name in ("state", "severity", "query", "search")}
        return incidents.incidents(**asked)


class IncidentView(ApiView):
    """One incident."""

    @answers("get_incident", bodies.ExplainedIncidentBody)
    def get(self, uuid: UUID) -> Incident:
        """Return an incident."""
        return incidents.incident(uuid)


class IncidentStoryView(ApiView):
    """An incident's history."""

    @lists("list_incident_entries", bodies.IncidentEntryBody, by="at pk")
    def get(self, uuid: UUID) -> QuerySet[IncidentEntry]:
        """List the entries in an incident's history, newest first."""
        return IncidentEntry.objects.filter(incident=incidents.incident(uuid))


class IncidentAcknowledgeView(ApiView):
    """The `acknowledge` verb."""

    @answers("acknowledge_incident", bodies.IncidentBody, role=OPERATE, form=bodies.AcknowledgeForm)
    def post(self, uuid: UUID, sent: Sent) -> Incident:
        """Acknowledge an incident that you are working on; nobody else is notified."""
        verbs.acknowledge(incidents.incident(uuid), **sent, **self.by)
        return incidents.incident(uuid)


class IncidentSnoozeView(ApiView):
    """The `snooze` verb."""

    @answers("snooze_incident", bodies.IncidentBody, role=OPERATE, form=bodies.SnoozeForm)
    def post(self, uuid: UUID, sent: Sent) -> Incident:
        """Send no notifications about the incident until the given time."""
        verbs.snooze(incidents.incident(uuid), **sent, **self.by)
        return incidents.incident(uuid)


class IncidentAssignView(ApiView):
    """The `assign` verb."""

    @answers("assign_incident", bodies.IncidentBody, role=OPERATE, form=bodies.AssignForm)
    def post(self, uuid: UUID, sent: Sent) -> Incident:
        """Set the user who is working on the incident."""
        verbs.assign(incidents.incident(uuid), **sent, **self.by)
        return incidents.incident(uuid)


class IncidentNoteView(ApiView):
    """The `note` verb."""

    @answers("note_incident", bodies.IncidentBody, role=OPERATE, form=bodies.NoteForm)
    def post(self, uuid: UUID, sent: Sent) -> Incident:
        """Add a finding to the incident's history."""
        verbs.note(incidents.incident(uuid), **sent, **self.by)
        return incidents.incident(uuid)


class IncidentCloseView(ApiView):
    """The `close` verb."""

    @answers("close_incident", bodies.IncidentBody, role=OPERATE, form=Nothing)
    def post(self, uuid: UUID) -> Incident:
        """Close an incident; it reopens if its problem clears and then returns."""
        verbs.close(incidents.incident(uuid), **self.by)
        return incidents.incident(uuid)


class ChannelTestView(ApiView):
    """The `test` verb."""

    @answers("test_alert_channel", bodies.ChannelBody, role=ADMINISTER, form=Nothing)
    def post(self, name: str) -> Channel:
        """Send a test message; the channel's last_sent_at or last_error shows the result."""
        channel: Channel = CHANNELS.get(self.request.user, name)
        try_channel(channel, **self.by)
        return channel


urlpatterns = [
    *endpoints(CHANNELS, bodies.ChannelBody),
    path("alert-channels/<str:name>/test/", ChannelTestView.as_view(), name="alert-channel-test"),
    *endpoints(RULES, bodies.RuleBody),
    *endpoints(MAINTENANCE, bodies.MaintenanceBody),
]
