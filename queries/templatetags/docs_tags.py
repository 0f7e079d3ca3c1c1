"""Links from the console's pages to the documentation of the installed version."""

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queries.templatetags.shell_tags import icon
from queries.views.console.documentation import docs_address

register = template.Library()


@register.simple_tag
def docs_link(target: str, label: str = "", of: str = "") -> SafeString:
    """Draw a link to "page" or "page#anchor"; without a label, it is an icon.

    `of` is a state, whose anchor on the page is its name in lower case.
    """
    address = docs_address(f"{target}#{of.lower()}" if of else target)
    if label:
        return format_html('<a class="docs-link" href="{}">{}</a>', address, label)
    words = f"What {of.replace('_', ' ').lower()} means" if of else "Documentation"
    return format_html(
        '<a class="docs-link" href="{}" title="{}">{}</a>',
        address,
        words,
        icon("info-circle", words),
    )
