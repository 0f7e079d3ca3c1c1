"""Incidents and their verbs; channels, rules and maintenance windows."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework.response import Response

from queries.api.alerts import bodies
from queries.api.base import ApiView
from queries.api.definitions import trials
from queries.api.methods import Nothing, Sent, answers, creates, lists
from queries.api.paging import word
from queries.domain.alerts.kinds import IncidentState, Severity
from queries.models.alerts import AlertRule, Channel, Incident, IncidentEntry, Maintenance
from queries.roles import ADMINISTER, OPERATE
from queries.selectors.access.insisting import insist
from queries.selectors.access.targets import of_selector
from queries.selectors.alerts import incidents
from queries.selectors.alerts.rules import rule_named
from queries.selectors.first_or_missing import found
from queries.selectors.manifests.states import as_rule, of_rule
from queries.services.alerts import incidents as verbs
from queries.services.alerts import setup
from queries.services.alerts.deliveries import try_channel


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
            self.asked_word(name, words) if self.asked(name) else None
        asked = {name: self.asked(name) for name in ("state", "severity", "query", "search")}
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


# --- configuration ------------------------------------------------------------------------


def _channel(name: str) -> Channel:
    return found(Channel.objects.filter(name=name), f"Channel {name[:80]} does not exist.")


class ChannelsView(ApiView):
    """All channels."""

    @lists("list_alert_channels", bodies.ChannelBody, role=ADMINISTER)
    def get(self) -> QuerySet[Channel]:
        """List channels, newest first; admins only."""
        return Channel.objects.all()

    @creates(
        "create_alert_channel",
        bodies.ChannelBody,
        bodies.ChannelForm,
        role=ADMINISTER,
        again=bodies.ChannelBody,
    )
    def post(self, sent: Sent) -> Response:
        """Create a channel; an identical existing one is returned unchanged."""
        there = Channel.objects.filter(name=sent["name"]).first()
        if there is not None and setup.is_same(there, sent):
            return Response(bodies.ChannelBody(there).data)
        return _made("alert-channel", bodies.ChannelBody, setup.save_channel(sent, **self.by))


class ChannelView(ApiView):
    """One channel."""

    @answers("get_alert_channel", bodies.ChannelBody, role=ADMINISTER)
    def get(self, name: str) -> Channel:
        """Return a channel; admins only."""
        return _channel(name)

    @answers("replace_alert_channel", bodies.ChannelBody, role=ADMINISTER, form=bodies.ChannelForm)
    def put(self, name: str, sent: Sent) -> Channel:
        """Replace a channel."""
        return setup.save_channel(sent, channel=_channel(name), **self.by)

    @answers("delete_alert_channel", None, role=ADMINISTER)
    def delete(self, name: str) -> None:
        """Delete a channel, unless it is the only channel of a rule."""
        setup.delete_channel(_channel(name), **self.by)


class ChannelTestView(ApiView):
    """The `test` verb."""

    @answers("test_alert_channel", bodies.ChannelBody, role=ADMINISTER, form=Nothing)
    def post(self, name: str) -> Channel:
        """Send a test message; the channel's last_sent_at or last_error shows the result."""
        channel = _channel(name)
        try_channel(channel, **self.by)
        return channel


class RulesView(ApiView):
    """All rules."""

    @lists("list_alert_rules", bodies.RuleBody)
    def get(self) -> QuerySet[AlertRule]:
        """List rules, newest first."""
        return AlertRule.objects.prefetch_related("channels", "escalate_to")

    @creates(
        "create_alert_rule",
        bodies.RuleBody,
        bodies.RuleForm,
        role=ADMINISTER,
        again=bodies.RuleBody,
    )
    def post(self, sent: Sent) -> Response:
        """Create a rule; an identical existing one is returned unchanged."""
        there = AlertRule.objects.filter(name=sent["name"]).first()
        if there is not None and of_rule(there) == as_rule(sent):
            return Response(bodies.RuleBody(there).data)
        return _made("alert-rule", bodies.RuleBody, setup.save_rule(sent, **self.by))


class RuleView(ApiView):
    """One rule."""

    @answers("get_alert_rule", bodies.RuleBody)
    def get(self, name: str) -> AlertRule:
        """Return a rule."""
        return rule_named(name)

    @answers("replace_alert_rule", bodies.RuleBody, role=ADMINISTER, form=bodies.RuleForm)
    def put(self, name: str, sent: Sent) -> AlertRule:
        """Replace a rule."""
        return setup.save_rule(sent, rule=rule_named(name), **self.by)

    @answers("delete_alert_rule", None, role=ADMINISTER, parameters=[trials.DRY_RUN])
    def delete(self, name: str) -> None:
        """Delete a rule; if no rules remain, every channel receives all notifications."""
        with trials.undone(self):
            setup.delete_rule(rule_named(name), **self.by)


def _window(number: int) -> Maintenance:
    return found(Maintenance.objects.filter(pk=number), f"Window {number} does not exist.")


class MaintenancesView(ApiView):
    """All maintenance windows."""

    @lists("list_maintenance", bodies.MaintenanceBody)
    def get(self) -> QuerySet[Maintenance]:
        """List maintenance windows, newest first."""
        return Maintenance.objects.all()

    @creates("create_maintenance", bodies.MaintenanceBody, bodies.MaintenanceForm, role=OPERATE)
    def post(self, sent: Sent) -> Response:
        """Create a maintenance window, in which matching problems do not open incidents."""
        insist(self.request.user, of_selector(sent.get("selector") or {}))
        row = setup.save_maintenance(sent, **self.by)
        location = reverse("api:maintenance", args=[row.pk])
        return Response(bodies.MaintenanceBody(row).data, 201, headers={"Location": location})


class MaintenanceView(ApiView):
    """One maintenance window."""

    @answers("get_maintenance", bodies.MaintenanceBody)
    def get(self, window_id: int) -> Maintenance:
        """Return a maintenance window."""
        return _window(window_id)

    @answers("end_maintenance", None, role=OPERATE)
    def delete(self, window_id: int) -> None:
        """End a maintenance window immediately."""
        setup.end_maintenance(_window(window_id), **self.by)


def _made(address: str, body: Any, row: Channel | AlertRule) -> Response:
    location = reverse(f"api:{address}", args=[row.name])
    return Response(body(row).data, status=201, headers={"Location": location})
