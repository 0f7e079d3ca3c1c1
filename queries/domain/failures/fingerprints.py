"""Fingerprint failures by what does not change between occurrences."""

import hashlib
import re

from queries.domain.failures import error_text


def fingerprint(*, error_class: str, type_name: str, root_cause: str, message: str) -> str:
    """Return a 32-digit fingerprint shared by failures with the same cause.

    It is computed from the condition, the type and the top frame of user code; if there is no such
    frame, from the root cause without IDs, paths, times, hexadecimal and other numbers.
    """
    root_cause = error_text.bounded(root_cause)
    message = error_text.without_plan(error_text.bounded(message))
    frame = error_text.top_frame(message) or error_text.top_frame(root_cause)
    place = frame or normalised(error_text.innermost_line(root_cause or message))
    name = error_text.condition(error_class, root_cause, message)
    parts = (name, error_text.short_type(type_name), place)
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


_VARYING = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]{0,30}:/+[^\s'\",;)\]}]+", re.IGNORECASE), "<path>"),
    (re.compile(r"(?<![\w<>])(?:~|\.{1,2})?/[^\s'\",;)\]}]+"), "<path>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"), "<n>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    (
        re.compile(
            r"(?<=@)[0-9a-f]+(?![\w<])|\b(?=\w*\d)(?=\w*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE
        ),
        "<hex>",
    ),
    (re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?"), "<n>"),
)


def normalised(text: str) -> str:
    """Return the text without the parts that differ between occurrences, at most 300 characters."""
    text = text[: error_text.LINE_LIMIT]
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return re.sub(r"<n>([,.: ]+<n>)+", "<n>", " ".join(text.split()))[:300].strip()
