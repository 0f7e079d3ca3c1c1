"""Configure alerts: channels and rules (admins), maintenance windows (operators); audited."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from controlplane.nudge import changed
from queries.channels.kinds import KINDS
from queries.domain.access import Act
from queries.domain.alerts.forms import (
    ChannelForm,
    MaintenanceForm,
    RuleForm,
    parse_channel,
    parse_maintenance,
    parse_rule,
)
from queries.domain.errors import Conflict, Invalid, Problem
from queries.domain.secrets import channel as holder_named
from queries.domain.secrets import unbound
from queries.models.alerts import AlertRule, Channel, Maintenance
from queries.roles import OPERATE, VIEW
from queries.selectors.access import insist, of_selector
from queries.selectors.manifests import as_rule, of_rule
from queries.selectors.secrets import bound_to, uses_of_channel
from queries.services.access.admin_objects import AdminObject, Verb
from queries.services.access.audit import record_act
from queries.services.secrets import rename, unbind_all

_SETTINGS = {str(kind): one.form for kind, one in KINDS.items()}


def save_channel(
    raw: Mapping[str, Any], *, actor: str, now: datetime, channel: Channel | None = None
) -> Channel:
    """Create or replace a channel.

    Raises `Invalid` if it is not valid.
    """
    form = parse_channel(raw, _SETTINGS)
    row = channel or Channel(created_at=now, created_by=actor)
    before = row.name
    row.name, row.kind, row.enabled = form.name, form.kind, form.enabled
    row.settings = _filled(form)
    # Bound to its previous name if it had one, else to the new name.
    holder = holder_named(before or row.name)
    if problems := unbound(uses_of_channel(row), bound_to(holder), holder):
        raise Invalid(problems)
    if channel is not None:  # errors of the old settings no longer apply
        row.failing_since, row.last_error = None, ""
    with transaction.atomic():
        _save(row)
        if before and before != row.name:
            rename(holder, holder_named(row.name))
        did = "created" if channel is None else "changed"
        _record(row, did, actor, now, kind=str(row.kind), enabled=row.enabled)
    return row


def create_channel(raw: Mapping[str, Any], **by: Any) -> Channel:
    """Create a channel; an identical existing one is returned unchanged."""
    same = Channel.objects.filter(name=raw["name"]).first()
    if same is not None:
        form = parse_channel(raw, _SETTINGS)
        if (form.kind, form.enabled, _filled(form)) == (same.kind, same.enabled, same.settings):
            return same
    return save_channel(raw, **by)


def replace_channel(channel: Channel, raw: Mapping[str, Any], **by: Any) -> Channel:
    """Replace a channel."""
    return save_channel(raw, channel=channel, **by)


def _record(
    row: Channel | AlertRule | Maintenance, did: str, actor: str, now: datetime, **about: Any
) -> None:
    of = str(row._meta.verbose_name)
    record_act(Act.ALERTS, actor=actor, now=now, subject=row.name, of=of, did=did, **about)


def _filled(form: ChannelForm) -> dict[str, Any]:
    return {name: value for name, value in form.settings.items() if value not in ("", [])}


def delete_channel(channel: Channel, *, actor: str, now: datetime) -> None:
    """Delete a channel, unless it is the only channel of a rule.

    Raises `Conflict` if it is. Its deliveries and secret bindings are deleted too.
    """
    for rule in AlertRule.objects.filter(channels=channel):
        if rule.channels.count() == 1:
            raise Conflict(
                f"The rule {rule.name} has no other channel.",
                way_out="Give the rule another channel, or delete it first.",
            )
    with transaction.atomic():
        unbind_all(holder_named(channel.name), actor=actor, now=now)
        channel.delete()
        _record(channel, "deleted", actor, now)
        changed("alerts")


def save_rule(
    raw: Mapping[str, Any], *, actor: str, now: datetime, rule: AlertRule | None = None
) -> AlertRule:
    """Create or replace a rule.

    Raises `Invalid` if it is not valid.
    """
    form = parse_rule(raw)
    row = rule or AlertRule(created_at=now, created_by=actor)
    told = _channels(form, "channels")
    then = _channels(form, "escalate_to")
    row.name, row.enabled, row.position = form.name, form.enabled, form.position
    row.selector = form.selector.model_dump(mode="json", exclude_defaults=True)
    quiet = form.quiet_hours
    row.quiet_hours = quiet.model_dump(mode="json", by_alias=True) if quiet else {}
    row.escalate_after_minutes = form.escalate_after_minutes
    row.remind_every_hours = form.remind_every_hours
    row.thresholds = [one.model_dump(mode="json") for one in form.thresholds]
    with transaction.atomic():
        _save(row)
        row.channels.set(told)
        row.escalate_to.set(then)
        did = "created" if rule is None else "changed"
        _record(row, did, actor, now, channels=form.channels, enabled=row.enabled)
    return row


def create_rule(raw: Mapping[str, Any], **by: Any) -> AlertRule:
    """Create a rule; an identical existing one is returned unchanged."""
    same = AlertRule.objects.filter(name=raw["name"]).first()
    if same is not None and of_rule(same) == as_rule(raw):
        return same
    return save_rule(raw, **by)


def replace_rule(rule: AlertRule, raw: Mapping[str, Any], **by: Any) -> AlertRule:
    """Replace a rule."""
    return save_rule(raw, rule=rule, **by)


def _channels(form: RuleForm, field: str) -> list[Channel]:
    names: list[str] = getattr(form, field)
    found = {one.name: one for one in Channel.objects.filter(name__in=names)}
    missing = [name for name in names if name not in found]
    if missing:
        known = ", ".join(Channel.objects.values_list("name", flat=True)) or "none yet"
        raise Invalid(
            [
                Problem(field, name[:200], "is not an existing channel.", f"Channels: {known}.")
                for name in missing
            ]
        )
    return list(found.values())


def delete_rule(rule: AlertRule, *, actor: str, now: datetime) -> None:
    """Delete a rule; if no rules remain, every channel receives all notifications."""
    with transaction.atomic():
        rule.delete()
        _record(rule, "deleted", actor, now)
        changed("alerts")


def save_maintenance(raw: Mapping[str, Any], *, actor: str, now: datetime) -> Maintenance:
    """Create a maintenance window, in which matching problems do not open incidents.

    Raises `Invalid` if it is not valid.
    """
    form = parse_maintenance(raw, now=now)
    row = Maintenance(
        name=form.name,
        selector=form.selector.model_dump(mode="json", exclude_defaults=True),
        starts_at=form.starts_at,
        ends_at=form.ends_at,
        created_at=now,
        created_by=actor,
    )
    with transaction.atomic():
        _save(row)
        _record(row, "created", actor, now, until=row.ends_at.isoformat())
    return row


def end_maintenance(window: Maintenance, *, actor: str, now: datetime) -> None:
    """End a maintenance window immediately."""
    with transaction.atomic():
        if window.starts_at >= now:  # nothing of it is left to show
            window.delete()
        else:
            Maintenance.objects.filter(pk=window.pk, ends_at__gt=now).update(ends_at=now)
        _record(window, "ended", actor, now)
        changed("alerts")


def _save(row: Channel | AlertRule | Maintenance) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        way_out = "Choose another name."
        raise Invalid([Problem("name", row.name, "is already in use.", way_out)]) from None
    changed("alerts")


def all_channels(user: Any) -> QuerySet[Channel]:
    """List channels, newest first; admins only."""
    return Channel.objects.all()


def all_rules(user: Any) -> QuerySet[AlertRule]:
    """List rules, newest first."""
    return AlertRule.objects.prefetch_related("channels", "escalate_to")


def all_windows(user: Any) -> QuerySet[Maintenance]:
    """List maintenance windows, newest first."""
    return Maintenance.objects.all()


CHANNELS = AdminObject(
    "alert-channels/<str:name>/",
    "Channel",
    all_channels,
    "Return a channel; admins only.",
    create=Verb("create_alert_channel", create_channel, ChannelForm),
    replace=Verb("replace_alert_channel", replace_channel, ChannelForm),
    remove=Verb("delete_alert_channel", delete_channel),
    created_at="created_at",
)
RULES = AdminObject(
    "alert-rules/<str:name>/",
    "Rule",
    all_rules,
    "Return a rule.",
    create=Verb("create_alert_rule", create_rule, RuleForm),
    replace=Verb("replace_alert_rule", replace_rule, RuleForm),
    remove=Verb("delete_alert_rule", delete_rule, has_dry_run=True),
    permission=VIEW,
    created_at="created_at",
)
MAINTENANCE = AdminObject(
    "maintenance/<int:window_id>/",
    "Window",
    all_windows,
    "Return a maintenance window.",
    create=Verb("create_maintenance", save_maintenance, MaintenanceForm, OPERATE),
    remove=Verb("end_maintenance", end_maintenance, permission=OPERATE),
    permission=VIEW,
    authorize=lambda user, form: insist(user, of_selector(form["selector"])),
)
