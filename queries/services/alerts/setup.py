"""Configure alerts: channels and rules (admins), maintenance windows (operators); audited."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from controlplane.nudge import changed
from queries.channels.kinds import KINDS
from queries.domain.access.acts import Act
from queries.domain.alerts.forms import (
    ChannelForm,
    RuleForm,
    parse_channel,
    parse_maintenance,
    parse_rule,
)
from queries.domain.errors import Conflict, Invalid, Problem
from queries.domain.secrets.bindings import channel as holder_named
from queries.domain.secrets.bindings import unbound
from queries.models.alerts import AlertRule, Channel, Maintenance
from queries.selectors.secrets import bound_to, uses_of_channel
from queries.services.access.audit_trail import record_act
from queries.services.secrets.bindings import rename, unbind_all

_SETTINGS = {str(kind): one.form for kind, one in KINDS.items()}


def save_channel(
    raw: Mapping[str, Any], *, actor: str, now: datetime, channel: Channel | None = None
) -> Channel:
    """Create or change a channel; raise `Invalid` if it is not valid."""
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


def is_same(channel: Channel, raw: Mapping[str, Any]) -> bool:
    """Return whether a channel matches this description; raise `Invalid` if it is not valid."""
    form = parse_channel(raw, _SETTINGS)
    said = (form.name, form.kind, form.enabled, _filled(form))
    return said == (channel.name, channel.kind, channel.enabled, channel.settings)


def _record(
    row: Channel | AlertRule | Maintenance, did: str, actor: str, now: datetime, **about: Any
) -> None:
    of = str(row._meta.verbose_name)
    record_act(Act.ALERTS, actor=actor, now=now, subject=row.name, of=of, did=did, **about)


def _filled(form: ChannelForm) -> dict[str, Any]:
    return {name: value for name, value in form.settings.items() if value not in ("", [])}


def delete_channel(channel: Channel, *, actor: str, now: datetime) -> None:
    """Delete a channel with its deliveries and secret bindings.

    Raises `Conflict` if it is a rule's only channel.
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
    """Create or change a rule; raise `Invalid` if it is not valid."""
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
    """Delete a rule; if no rules are left, every channel gets everything."""
    with transaction.atomic():
        rule.delete()
        _record(rule, "deleted", actor, now)
        changed("alerts")


def save_maintenance(raw: Mapping[str, Any], *, actor: str, now: datetime) -> Maintenance:
    """Create a maintenance window; raise `Invalid` if it is not valid."""
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
    """End a window now; one that has not started is deleted."""
    with transaction.atomic():
        if window.starts_at >= now:
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
