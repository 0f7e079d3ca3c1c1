"""Pages that configure alerts: channels, rules and maintenance windows, and previews of
thresholds.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.html import escape

from queries.channels.kinds import KINDS, ChannelKind, is_supported
from queries.domain.alerts.forms import IncidentKind, Severity
from queries.domain.alerts.thresholds import FIGURES
from queries.domain.definitions.labels import labels_text, searched_labels
from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import Threshold
from queries.domain.errors import HeadgateError, Invalid
from queries.domain.validation.thresholds import (
    read_threshold_lines,
    threshold_lines,
    threshold_problems,
)
from queries.models.alerts import AlertRule, Channel
from queries.roles import ADMINISTER, VIEW
from queries.selectors.access import of_selectors, reached
from queries.selectors.alerts.incidents import delivery_line
from queries.selectors.alerts.rules import last_week
from queries.selectors.alerts.thresholds import preview
from queries.selectors.definitions import definitions
from queries.selectors.manifests import owned
from queries.services.alerts import setup
from queries.services.alerts.deliveries import try_channel
from queries.services.alerts.setup import CHANNELS, MAINTENANCE, RULES
from queries.views.console.admin_objects import AdminPage, Typed, problems_by_field
from queries.views.console.errors import refused
from queries.views.console.fragments import whole
from queries.views.console.shell import actor_and_now, needs
from queries.views.definitions.spec_form import sentence


@needs(VIEW)
def threshold_preview(request: HttpRequest, name: str) -> HttpResponse:
    """Return one sentence: how often the threshold in the form's row would have fired.

    For an input that is not a threshold, the response says what is wrong with it, for its row.
    """
    query = definitions.query(name)
    try:
        threshold = _threshold(request)
    except Invalid as error:
        text = " ".join(sentence(one, one.field.rpartition(".")[2]) for one in error.problems)
    else:
        text = preview(query, threshold, now=timezone.now()).text
    return HttpResponse(escape(text))


def _threshold(request: HttpRequest) -> Threshold:
    """Return the row's threshold; its fields are named "thresholds-0-value"."""
    names = Threshold.model_fields
    raw: dict[str, Any] = {}
    for key in request.GET:
        name, value = key.rpartition("-")[2], request.GET.get(key, "").strip()
        if name in names and value:
            raw[name] = value
    raw.setdefault("figure", next(iter(FIGURES)))
    threshold: Threshold = parsed(Threshold.model_validate, raw)
    if problems := threshold_problems([threshold]):
        raise Invalid(problems)
    return threshold


urlpatterns = [
    path(
        "queries/<query:name>/thresholds/preview/",
        threshold_preview,
        name="query-threshold-preview",
    )
]


_DELIVERIES_SHOWN = 20


# --- channels -----------------------------------------------------------------------------


@needs(ADMINISTER)
def channels(request: HttpRequest) -> HttpResponseBase:
    """List the channels, each with its last delivery."""
    context = {
        "channels": Channel.objects.all(),
        "kinds": list(ChannelKind),
        "now": timezone.now(),
        "here": "channels",
    }
    return render(request, "alerts/channels.html", context)


@needs(ADMINISTER, "GET", "POST")
def channel(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """Create a channel of the chosen kind, or change one; if its kind was removed, to another."""
    row = CHANNELS.get(request.user, name) if name else None
    removed = row is not None and not is_supported(row.kind)
    chosen = request.GET.get("kind", request.POST.get("kind", ""))
    chosen = row.kind if row and not removed else chosen
    kind = ChannelKind(chosen) if is_supported(chosen) else ChannelKind.MAIL
    typed: dict[str, Any] = {
        "name": row.name if row else "",
        "enabled": row.enabled if row else True,
        "settings": dict(row.settings) if row and not removed else {},
    }
    problems: dict[str, Any] = {}
    if request.method == "POST":
        typed = {
            "name": request.POST.get("name", "").strip(),
            "enabled": "enabled" in request.POST,
            "settings": _settings(request, kind),
        }
        try:
            saved = setup.save_channel(
                {**typed, "kind": str(kind)}, channel=row, **actor_and_now(request)
            )
        except Invalid as error:
            problems = {one.field: one for one in error.problems}
        else:
            messages.success(
                request, f"Channel {saved.name} was saved. Send a test message to check it."
            )
            return redirect("alert-channel", saved.name)
    deliveries = row.deliveries.order_by("-created_at")[:_DELIVERIES_SHOWN] if row else []
    context = {
        "channel": row,
        "kind": kind,
        "kinds": list(ChannelKind) if removed else [],
        "typed": typed,
        "fields": _fields(kind, typed["settings"], problems),
        "problems": problems,
        "deliveries": [(one, delivery_line(one)) for one in deliveries],
        "now": timezone.now(),
        "here": "channels",
    }
    return render(request, "alerts/channel.html", context, status=422 if problems else 200)


def _settings(request: HttpRequest, kind: ChannelKind) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for one in KINDS[kind].form.settings:
        text = request.POST.get(f"settings.{one.name}", "").strip()
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        settings[one.name] = lines if one.lines else text
    return {name: value for name, value in settings.items() if value}


def _fields(
    kind: ChannelKind, settings: dict[str, Any], problems: dict[str, Any]
) -> list[dict[str, Any]]:
    return [
        {
            "name": f"settings.{one.name}",
            "label": one.label,
            "value": "\n".join(value)
            if isinstance(value := settings.get(one.name, ""), list)
            else value,
            "lines": one.lines,
            "secret": one.secret,
            "needed": one.needed,
            "problem": problems.get(f"settings.{one.name}"),
        }
        for one in KINDS[kind].form.settings
    ]


@needs(ADMINISTER, "POST")
def channel_act(request: HttpRequest, name: str, verb: str) -> HttpResponse:
    """Send a test message, or delete the channel."""
    row = CHANNELS.get(request.user, name)
    if verb == "delete":
        try:
            setup.delete_channel(row, **actor_and_now(request))
        except HeadgateError as error:
            return refused(request, error, reverse("alert-channel", args=[row.name]))
        messages.success(request, f"Channel {name} was deleted.")
        return redirect("alert-channels")
    try_channel(row, **actor_and_now(request))
    messages.success(request, "A test message is being sent; the outcome appears below.")
    return redirect("alert-channel", row.name)


# --- rules --------------------------------------------------------------------------------


@needs(VIEW)
def rules(request: HttpRequest) -> HttpResponseBase:
    """List the rules, and who would have been notified of last week's incidents."""
    context = {
        "rules": AlertRule.objects.prefetch_related("channels", "escalate_to"),
        "week": last_week(now=timezone.now()),
        "now": timezone.now(),
        "here": "rules",
    }
    return render(request, "alerts/rules.html", context)


@needs(ADMINISTER, "GET", "POST")
def rule(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """Create a rule, or change one."""
    row = RULES.get(request.user, name) if name else None
    typed = _typed_rule(request) if request.method == "POST" else _of_rule(row)
    problems: dict[str, Any] = {}
    if request.method == "POST":
        try:
            saved = setup.save_rule(_rule_form(typed), rule=row, **actor_and_now(request))
        except Invalid as error:
            problems = problems_by_field(error)
        else:
            messages.success(request, f"Rule {saved.name} was saved.")
            return redirect("alert-rules")
    context = {
        "rule": row,
        "owned": owned(row) if row else None,
        "typed": typed,
        "problems": problems,
        "channels": Channel.objects.all(),
        "kinds": list(IncidentKind),
        "severities": list(Severity),
        "here": "rules",
    }
    return render(request, "alerts/rule.html", context, status=422 if problems else 200)


_TEXTS = (
    *("name", "labels", "applications", "zone", "from", "until"),
    *("escalate_after_minutes", "remind_every_hours", "stopped_within_hours"),
    "thresholds",
)
_CHOICES = ("kinds", "severities", "channels", "escalate_to")


def _typed_rule(request: HttpRequest) -> dict[str, Any]:
    texts = {name: request.POST.get(name, "").strip() for name in _TEXTS}
    choices = {name: request.POST.getlist(name) for name in _CHOICES}
    return {
        **texts,
        **choices,
        "enabled": "enabled" in request.POST,
        "running_only": "running_only" in request.POST,
    }


def _of_rule(row: AlertRule | None) -> dict[str, Any]:
    if row is None:
        return {"enabled": True, "zone": "UTC", **{name: [] for name in _CHOICES}}
    selector, quiet = row.selector, row.quiet_hours
    return {
        "name": row.name,
        "enabled": row.enabled,
        "labels": labels_text(selector.get("labels", {})),
        "applications": ", ".join(selector.get("applications", [])),
        "kinds": selector.get("kinds", []),
        "severities": selector.get("severities", []),
        "running_only": not selector.get("stopped", True),
        "stopped_within_hours": selector.get("stopped_within_hours") or "",
        "channels": [one.name for one in row.channels.all()],
        "escalate_to": [one.name for one in row.escalate_to.all()],
        "escalate_after_minutes": row.escalate_after_minutes or "",
        "remind_every_hours": row.remind_every_hours or "",
        "thresholds": threshold_lines(row.thresholds),
        "zone": quiet.get("zone", "UTC"),
        "from": quiet.get("from", ""),
        "until": quiet.get("until", ""),
    }


def _rule_form(typed: dict[str, Any]) -> dict[str, Any]:
    quiet = {name: typed[name] for name in ("zone", "from", "until") if typed[name]}
    return {
        "name": typed["name"],
        "enabled": typed["enabled"],
        "selector": {
            **_selector(typed),
            "kinds": typed["kinds"],
            "severities": typed["severities"],
            "stopped": not typed["running_only"],
            "stopped_within_hours": typed["stopped_within_hours"] or None,
        },
        "channels": typed["channels"],
        "escalate_to": typed["escalate_to"],
        "escalate_after_minutes": typed["escalate_after_minutes"] or None,
        "remind_every_hours": typed["remind_every_hours"] or None,
        "thresholds": read_threshold_lines(typed["thresholds"]),
        "quiet_hours": quiet if typed["from"] or typed["until"] else None,
    }


def _selector(typed: dict[str, Any]) -> dict[str, Any]:
    labels = searched_labels(typed["labels"].replace(",", " ").split())
    return {
        "labels": {name: value or "" for name, value in labels.items()},
        "applications": [one.strip() for one in typed["applications"].split(",") if one.strip()],
    }


@needs(ADMINISTER, "POST")
def rule_delete(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a rule."""
    setup.delete_rule(RULES.get(request.user, name), **actor_and_now(request))
    messages.success(request, f"Rule {name} was deleted.")
    return redirect("alert-rules")


# --- maintenance --------------------------------------------------------------------------


def _window(typed: Typed) -> dict[str, Any]:
    """Return the form of a window that begins now, or at a given time in UTC."""
    starts = _moment(typed["starts_at"]) or timezone.now()
    return {
        "name": typed["name"],
        "selector": _selector(typed),
        "starts_at": starts,
        "ends_at": starts + timedelta(hours=whole(typed["hours"]) or 0),
    }


def _moment(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def _windows(request: HttpRequest) -> dict[str, Any]:
    windows = list(MAINTENANCE.rows(request.user)[:50])
    ours = reached(request.user, of_selectors([window.selector for window in windows]))
    return {"windows": list(zip(windows, ours, strict=True)), "here": "maintenance"}


WINDOWS = AdminPage(
    MAINTENANCE,
    "alert-maintenance",
    "alerts/maintenance/",
    "alerts/maintenance.html",
    added="Maintenance until {row.ends_at:%Y-%m-%d %H:%M} UTC.",
    removed="Ended.",
    remove=("end", "alert-maintenance-end"),
    new="alert-maintenance-new",
    fields=("name", "labels", "applications", "starts_at", "hours"),
    form=_window,
    context=_windows,
)


urlpatterns += [
    path("alerts/channels/", channels, name="alert-channels"),
    path("alerts/channels/new/", channel, name="alert-channel-new"),
    path("alerts/channels/<str:name>/", channel, name="alert-channel"),
    path("alerts/channels/<str:name>/<slug:verb>/", channel_act, name="alert-channel-act"),
    path("alerts/rules/", rules, name="alert-rules"),
    path("alerts/rules/new/", rule, name="alert-rule-new"),
    path("alerts/rules/<str:name>/", rule, name="alert-rule"),
    path("alerts/rules/<str:name>/delete/", rule_delete, name="alert-rule-delete"),
    *WINDOWS.urlpatterns,
]
