"""Code in colours: Pygments, with classes that the stylesheet knows."""

from django.utils.safestring import SafeString
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name


def colours(text: str, language: str) -> SafeString:
    """Return code as HTML spans; Pygments escapes the text."""
    formatter = HtmlFormatter(nowrap=True)
    return SafeString(highlight(text, get_lexer_by_name(language), formatter))
