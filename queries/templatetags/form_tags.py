"""Form fields with the labels and the appearance that the template specifies."""

from collections.abc import Mapping
from typing import Any

from django import forms, template
from django.conf import settings
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queries.code_roots import LEFT_OUT
from queries.domain.alerts.thresholds import FIGURES
from queries.domain.triggers.kinds import KINDS
from queries.templatetags.shell_tags import coded

register = template.Library()


@register.simple_tag
def upload_limits() -> SafeString:
    """Return the limits that the upload script needs, as HTML attributes."""
    names = " ".join(sorted(LEFT_OUT))
    most = settings.CODE_UPLOAD_MOST_BYTES
    return format_html('data-most="{}" data-left-out="{}"', most, names)


@register.simple_tag
def trigger_choices() -> dict[str, str]:
    """Return the labels of the kinds of triggers on a query's form."""
    return {str(kind): profile.choice for kind, profile in KINDS.items()}


@register.simple_tag
def threshold_choices() -> dict[str, str]:
    """Return the labels of the figures that a threshold can limit."""
    return {figure: facts.choice for figure, facts in FIGURES.items()}


@register.filter
def error_lines(error: Any) -> SafeString:
    """Draw an error; separate lines (code with a caret) keep their columns."""
    text, _, code = str(error).partition("\n")
    shown = coded(text)
    return format_html('{}<code class="caret">{}</code>', shown, code) if code else shown


@register.simple_tag
def field(
    bound: forms.BoundField,
    label: str,
    hint: str = "",
    width: int = 12,
    rows: int = 0,
    mono: bool = False,
    choices: Mapping[str, str] | None = None,
    **more: str,
) -> SafeString:
    """Draw a field with label, hint and errors; `rows` makes it a text box with that many lines.

    `more` contains attributes of the HTML element or, for a drop-down list, the labels of its
    values, as in `choices`. `for_KIND` is a sentence of the hint that is shown only for that kind.
    """
    for kind in [name for name in more if name.startswith("for_")]:
        of = kind.removeprefix("for_").replace("_", "-")
        hint = format_html('{} <span class="only-{}">{}</span>', hint, of, more.pop(kind))
    more = {**(choices or {}), **more}
    inner: Any = bound.field
    bound.label, bound.help_text = label, hint
    inner.help_text = hint
    if rows:
        inner.widget = forms.Textarea({**inner.widget.attrs, "rows": str(rows)})
    if mono or rows:
        inner.widget.attrs["class"] += " font-monospace"
    if isinstance(inner.widget, forms.Select):
        order = [*more, *(value for value, _ in inner.choices if value not in more)]
        inner.choices = [(value, more.get(value, value)) for value in order]
    else:
        inner.widget.attrs.update(more)
    context: dict[str, Any] = {"field": bound, "width": width}
    return render_to_string(f"definitions/{_drawing(inner.widget)}.html", context)


def _drawing(widget: forms.Widget) -> str:
    match widget:
        case forms.CheckboxSelectMultiple():
            return "_connectors"
        case forms.RadioSelect():
            return "_radios"
        case forms.CheckboxInput():
            return "_check"
        case _:
            return "_field"
