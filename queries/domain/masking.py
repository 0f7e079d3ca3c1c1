"""What must not be shown: secrets in definitions, differences, messages and logs.

A definition should hold references ("env:NAME", "file:NAME") only, and those are shown. What
somebody wrote out in full all the same is masked wherever it is read, and put back when a
masked form is sent in again unchanged.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "••••••"

_REFERENCE = re.compile(r"(?:env|file):[A-Za-z0-9_.\-]+")
#: Spark's own redaction (`spark.redaction.regex`) and the names that connectors use.
_SECRET_NAME = re.compile(
    r"passw|passphrase|secret|token|credential|jaas|(?:access|private|api|account|keystore)[._-]?key",
    re.IGNORECASE,
)
_IN_TEXT = (
    # user:password@host in an address
    (re.compile(r"(://[^\s/:@]*:)[^\s/@]+(@)"), rf"\g<1>{MASK}\g<2>"),
    # password=…, secret: "…", --token …
    (
        re.compile(
            r"((?:passw(?:or)?d|passphrase|secret|token|credential|(?:access|api)[._-]?key)"
            r"[\w.\-]*[\"']?\s*[=:]\s*[\"']?)(?!(?:env|file):)[^\s\"',;&)}]+",
            re.IGNORECASE,
        ),
        rf"\g<1>{MASK}",
    ),
    # Authorization: Bearer …
    (re.compile(r"\b((?:Bearer|Basic|Token)\s+)[A-Za-z0-9+/=._\-]{12,}"), rf"\g<1>{MASK}"),
)
#: Keys whose texts are code that people read and edit, never the place of a secret.
_CODE = frozenset({"sql", "schema", "ddl_schema", "function"})
_SHORTEST_KNOWN_SECRET = 4  # characters; masking shorter values would riddle every text


def is_reference(value: str) -> bool:
    """Tell whether a value names a secret ("env:NAME", "file:NAME") and so is none itself."""
    return _REFERENCE.fullmatch(value) is not None


def is_secret_name(name: str) -> bool:
    """Tell whether what stands under this key is to be masked."""
    return _SECRET_NAME.search(name) is not None


def mask(value: Any, *, name: str = "") -> Any:
    """Return a JSON value with its secrets masked: by the key they stand under, and in texts."""
    if isinstance(value, Mapping):
        return {
            key: mask(held, name=str(key) if not is_secret_name(name) else name)
            for key, held in value.items()
        }
    if isinstance(value, list | tuple):
        return [mask(held, name=name) for held in value]
    if not isinstance(value, str) or not value or is_reference(value):
        return value
    if is_secret_name(name):
        return MASK
    return value if name in _CODE else mask_text(value)


def mask_text(text: str, *, secrets: Iterable[str] = ()) -> str:
    """Return a text (a log, a message) without `secrets` and without what looks like one."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST_KNOWN_SECRET:
            text = text.replace(secret, MASK)
    for pattern, replacement in _IN_TEXT:
        text = pattern.sub(replacement, text)
    return text


def unmask(value: Any, *, before: Any) -> Any:
    """Return `value` with each text that is still masked as shown put back from `before`.

    Lists are compared by position; a masked text that has no counterpart stays as it is.
    """
    return _unmask(value, before, mask(before))


def _unmask(value: Any, before: Any, shown: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(before, Mapping):
        return {key: _unmask(held, before.get(key), shown.get(key)) for key, held in value.items()}
    if isinstance(value, list | tuple) and isinstance(before, list | tuple):
        padding = [None] * max(0, len(value) - len(before))
        pairs = zip(value, [*before, *padding], [*shown, *padding], strict=False)
        return [_unmask(held, old, seen) for held, old, seen in pairs]
    if isinstance(value, str) and MASK in value and value == shown:
        return before
    return value


def still_masked(value: Any, *, path: str = "") -> list[str]:
    """Return the dotted paths of texts that hold a mask and so cannot be stored."""
    if isinstance(value, Mapping):
        pairs = [(str(key), held) for key, held in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [(str(position), held) for position, held in enumerate(value)]
    else:
        return [path] if isinstance(value, str) and MASK in value else []
    prefix = f"{path}." if path else ""
    return [found for key, held in pairs for found in still_masked(held, path=prefix + key)]


def references(value: Any) -> set[str]:
    """Return every reference ("env:NAME", "file:NAME") that a JSON value holds."""
    if isinstance(value, Mapping):
        return set().union(*(references(held) for held in value.values()))
    if isinstance(value, list | tuple):
        return set().union(*(references(held) for held in value))
    return {value} if isinstance(value, str) and is_reference(value) else set()
