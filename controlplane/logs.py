"""Keep secrets out of every log line."""

import logging

from headgate_ground.masking import mask_text


class Masked(logging.Formatter):
    """Formats a record, masking everything that looks like a secret.

    The finished text is masked, including tracebacks and arguments.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line (and traceback, if any) with secrets masked."""
        return mask_text(super().format(record))


def not_a_probe(record: logging.LogRecord) -> bool:
    """Pass a record unless it is about a health check; its response already has the information."""
    request = getattr(record, "request", None)
    return getattr(request, "path", "") not in ("/readyz", "/healthz")
