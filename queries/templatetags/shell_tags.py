"""Elements that all pages draw the same way: icons, state badges, ages, URLs, page links."""

import re
from datetime import UTC, datetime
from typing import Any

from django import template
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from headgate_ground.secret_kinds import NAME
from headgate_server import places
from queries.domain.labels import state_label, verdict_label
from queries.domain.states import Phase
from queries.domain.supervision.health.verdicts import Health
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.roles import Reach
from queries.views.console.wording import TONES, VERDICT_WORDS, age_words

register = template.Library()
_CODE = re.compile(r"`([^`\n]+)`")


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@register.simple_tag
def secret_names() -> str:
    """Return the pattern of names whose values are secrets, in a form that JavaScript can read."""
    return NAME


@register.filter
def local_command(command: str) -> str:
    """Return a `make` or manage.py command in the form that works in this installation."""
    return places.with_local_commands(command)


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """Draw an icon from the sprite; without a label, it is hidden from screen readers."""
    href = f"{static('vendor/icons.svg')}#{name}"
    if label:
        return format_html(
            '<svg class="icon" role="img" aria-label="{}"><use href="{}"></use></svg>', label, href
        )
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}"></use></svg>', href)


@register.simple_tag
def state(value: Any, title: str = "", small: bool = False) -> SafeString:
    """Draw any state's badge (phase, outcome, driver, group, operation) in its tone.

    `title` is the reason or the evidence, shown on hover and read out after the word.
    """
    word = str(value or "")
    if not title and word in set(Phase):
        title = Phase(word).description
    return _badge(word, state_label(word), title, small=small)


@register.simple_tag
def verdict(health: Health, small: bool = False) -> SafeString:
    """Draw the badge of a query's verdict; its reason is shown on hover."""
    title = health.reason or VERDICT_WORDS.get(health.verdict, "")
    return _badge(health.verdict, verdict_label(health.verdict), title, small=small)


def _badge(word: str, label: str, title: str, *, small: bool) -> SafeString:
    if not word:
        return SafeString("")
    return format_html(
        '<span class="state{}" data-tone="{}" title="{}">{}</span>',
        " state-small" if small else "",
        TONES.get(word, "calm"),
        title,
        label,
    )


@register.filter
def within(application: Application | None, reach: Reach) -> bool:
    """Return whether a user may act on a row's application; anyone may if a row has none."""
    return application is None or reach.holds(application)


@register.simple_tag
def living(row: Query | Application, css: str = "") -> SafeString:
    """Draw a query's or application's name: a link to its page, or plain text if it is deleted."""
    if row.archived_at is not None:
        return format_html(
            '<span{}>{} <span class="muted">deleted</span></span>', _class(css), row.name
        )
    address = reverse("query" if isinstance(row, Query) else "application", args=[row.name])
    return format_html('<a{} href="{}">{}</a>', _class(css), address, row.name)


def _class(css: str) -> SafeString:
    return format_html(' class="{}"', css) if css else SafeString("")


@register.simple_tag(takes_context=True)
def age(context: template.Context, when: datetime | None, suffix: str = "ago") -> SafeString:
    """Draw a moment as its age, which updates automatically; hovering shows the time in UTC."""
    if when is None:
        return SafeString('<span class="nothing">–</span>')
    at = when.astimezone(UTC)
    now = context.get("now") or datetime.now(UTC)
    text = age_words((now - at).total_seconds())
    return format_html(
        '<time datetime="{}" data-age data-suffix="{}" title="{}">{}</time>',
        _iso(at),
        suffix,
        at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        f"{text} {suffix}".strip() if text != "now" else text,
    )


@register.simple_tag(takes_context=True)
def until(context: template.Context, when: datetime | None) -> SafeString:
    """Draw a future moment as the time left: "in 12 s", then "due"; it updates automatically."""
    if when is None:
        return SafeString("")
    at = when.astimezone(UTC)
    now = context.get("now") or datetime.now(UTC)
    left = (at - now).total_seconds()
    return format_html(
        '<time datetime="{}" data-until title="{}">{}</time>',
        _iso(at),
        at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        f"in {age_words(left)}" if left >= 1 else "due",
    )


@register.simple_tag
def moment(when: datetime | None) -> SafeString:
    """Draw a moment as absolute UTC time, for places where the order matters more than the age."""
    if when is None:
        return SafeString('<span class="nothing">–</span>')
    at = when.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}"><span class="day">{}</span> {}</time>',
        _iso(at),
        at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC",
        at.strftime("%Y-%m-%d"),
        at.strftime("%H:%M:%S"),
    )


@register.filter
def coded(sentence: Any) -> SafeString:
    """Return a sentence as HTML in which `commands` and `names` are code."""
    parts = enumerate(_CODE.split(str(sentence)))
    marked = (format_html("<code>{}</code>", part) if at % 2 else part for at, part in parts)
    return format_html_join("", "{}", ((piece,) for piece in marked))


@register.simple_tag
def link_to(name: str, *args: Any, **kwargs: Any) -> str:
    """Return the URL of a page, or "" if this installation does not have the page."""
    try:
        return reverse(name, args=args or None, kwargs=kwargs or None)
    except NoReverseMatch:
        return ""


@register.simple_tag(takes_context=True)
def with_query(context: template.Context, **changes: Any) -> str:
    """Return the current page's query string with some parameters changed (None removes)."""
    request: HttpRequest = context["request"]
    parameters = request.GET.copy()
    for key, value in changes.items():
        if value in (None, ""):
            parameters.pop(key, None)
        else:
            parameters[key] = str(value)
    text = parameters.urlencode()
    return f"?{text}" if text else "?"
