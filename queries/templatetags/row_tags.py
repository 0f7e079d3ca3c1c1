"""Draw one row of a list on its own; if this fails, draw an error line in its place."""

import re
from typing import Any

from django import template
from django.template.base import FilterExpression, Node, NodeList, Parser, Token
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from queries.domain.readings import counted
from queries.selectors.rows import OF_ALL, called, render_error
from queries.views.supervision.charts import BarSlot

register = template.Library()

#: The tag that a row opens with: a line in its place keeps its id, and goes on being updated.
_OPENS = re.compile(r"\s*<(tr|li)\b[^>]*>")
_LINKS = re.compile(r'<a\b[^>]*\bhref="([^"]*)"')
#: More columns than any list has: browsers take as many as there are.
_COLUMNS = 100
_NO_BATCHES = '<path class="beat-none" d="M0 23.5H200"/>'


class RowNode(Node):
    """The row of one member of a list."""

    child_nodelists = ("nodelist",)

    def __init__(self, member: FilterExpression, nodelist: NodeList) -> None:
        self.member = member
        self.nodelist = nodelist

    def render(self, context: template.Context) -> SafeString:
        """Draw the row, or a line in its place if that fails."""
        drawn: list[str] = []
        depth = len(context.dicts)
        try:
            for node in self.nodelist:
                drawn.append(str(node.render_annotated(context)))
        except OF_ALL:
            raise
        except Exception as error:  # the edge of the loop: the others must still be shown
            while len(context.dicts) > depth:
                context.pop()
            return _instead(self.member.resolve(context), error, "".join(drawn))
        return mark_safe("".join(drawn))


def _instead(member: Any, error: Exception, drawn: str) -> SafeString:
    """Return the line for a member when only `drawn` of its parts could be drawn."""
    opens, link = _OPENS.match(drawn), _LINKS.search(drawn)
    kind = opens[1] if opens else "tr"
    start = mark_safe(opens[0] if opens else "<tr data-row>")
    name = called(member)
    if link:
        name = format_html('<a href="{}">{}</a>', mark_safe(link[1]), name)
    message = format_html(
        '{} <span class="tone-text" data-tone="bad">cannot be shown: {}</span>',
        name,
        render_error(member, error),
    )
    cell = format_html('<td colspan="{}">{}</td>', _COLUMNS, message) if kind == "tr" else message
    return format_html("{}{}</{}>", start, cell, mark_safe(kind))


@register.tag
def row(parser: Parser, token: Token) -> RowNode:
    """Draw one row of a list on its own: `{% row MEMBER %}<tr>…</tr>{% endrow %}`."""
    _, member = token.split_contents()
    nodelist = parser.parse(("endrow",))
    parser.delete_first_token()
    return RowNode(parser.compile_filter(member), nodelist)


@register.simple_tag
def beats(bars: list[BarSlot]) -> SafeString:
    """Draw a batch bar: a template's loop over its parts would take ten times as long."""
    drawn = "".join(
        f'<rect class="beat-{bar.kind}" x="{bar.x}" y="{bar.y}" width="4" height="{bar.height}" '
        f'rx="1"><title>{escape(bar.title)}</title></rect>'
        for bar in bars
    )
    label = f"The last {counted(len(bars), 'batch,batches')}" if bars else "No batches yet"
    return mark_safe(
        '<svg class="beats" viewBox="0 0 200 24" width="200" height="24" role="img" '
        f'aria-label="{label}" preserveAspectRatio="none">'
        f"{drawn or _NO_BATCHES}</svg>"
    )
