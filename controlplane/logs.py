"""Keep secrets out of every log line."""

import logging

from headgate_ground.masking import mask_text


class Masked(logging.Formatter):
    """Format a record, masking what looks like a secret.

    This works on the finished text, so tracebacks and arguments are covered too.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line (and traceback, if any) with secrets masked."""
        return mask_text(super().format(record))


def not_a_probe(record: logging.LogRecord) -> bool:
    """Pass a record unless it is about a health check, whose response says everything."""
    request = getattr(record, "request", None)
    return getattr(request, "path", "") not in ("/readyz", "/healthz")
