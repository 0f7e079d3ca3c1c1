"""Incidents and their verbs, channels, rules, maintenance windows, and a query's thresholds."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet
from django.urls import path

from queries.api.admin_objects import endpoints
from queries.api.alerts import bodies
from queries.api.alerts.bodies import Form
from queries.api.base import ApiView
from queries.api.bodies import Body, described, form_for, serializer_for
from queries.api.methods import Nothing, Sent, answers, lists, word
from queries.domain.alerts.forms import IncidentState, Severity
from queries.domain.alerts.thresholds import Crossing, Replay, Span
from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import Threshold
from queries.domain.errors import Invalid
from queries.domain.validation.thresholds import threshold_problems
from queries.models.alerts import Channel, Incident, IncidentEntry
from queries.roles import ADMINISTER, OPERATE
from queries.selectors.alerts import incidents
from queries.selectors.alerts.thresholds import Status, preview, threshold_status
from queries.selectors.definitions import definitions
from queries.services.alerts import incidents as verbs
from queries.services.alerts.deliveries import try_channel
from queries.services.alerts.setup import CHANNELS, MAINTENANCE, RULES


@serializer_for(
    Status,
    "held.threshold.figure held.threshold.window_minutes held.rule judged.state "
    "current_value=judged.value judged.limit judged.text judged.seen_at",
    state=Crossing,
)
class ThresholdStatusBody(Body):
    """A threshold that applies to a query, and its state.

    rule: The alert rule that it comes from; empty for the query's own.
    state: "unknown" if there is not enough data.
    current_value: Over the window; null if there is not enough data.
    limit: Null for a factor if there were no batches last week.
    seen_at: Minute of the newest figure in the window; null if there are none.
    """


@dataclass(frozen=True, slots=True)
class QueryThresholds:
    """The thresholds that apply to one query."""

    thresholds: list[Status]


@serializer_for(QueryThresholds, "thresholds")
class QueryThresholdsBody(Body):
    """The thresholds that apply to a query: its own, and those of alert rules."""


@serializer_for(Span, "since until")
class SpanBody(Body):
    """A time without figures."""


@serializer_for(Replay, "crossed_at limit known_minutes minutes unknown text")
class ThresholdPreviewBody(Body):
    """When a threshold would have fired in the last 7 days, from stored figures.

    limit: Null for a factor if there were no batches last week.
    known_minutes: Minutes with enough figures.
    minutes: Minutes in the 7 days.
    unknown: The longest times without figures, at most 3.
    """


@described
@form_for(Threshold)
class ThresholdForm(Form):
    """A threshold, as in a query's definition.

    value: In the figure's unit; 0 if `factor` is set.
    factor: For batch_seconds only: the limit is this factor times last week's 95th percentile.
    """


class QueryThresholdsView(ApiView):
    """A query's thresholds."""

    @answers("get_query_thresholds", QueryThresholdsBody)
    def get(self, name: str) -> QueryThresholds:
        """Return the thresholds that apply to a query, each with its state."""
        return QueryThresholds(threshold_status(definitions.query(name), now=self.now))


class QueryThresholdPreviewView(ApiView):
    """The preview of a threshold."""

    writes_nothing = True

    @answers("preview_query_threshold", ThresholdPreviewBody, form=ThresholdForm)
    def post(self, name: str, sent: Sent) -> Replay:
        """Return when a threshold would have fired in the last 7 days; nothing is saved."""
        threshold: Threshold = parsed(Threshold.model_validate, sent)
        if problems := threshold_problems([threshold]):
            raise Invalid(problems)
        return preview(definitions.query(name), threshold, now=self.now)


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
