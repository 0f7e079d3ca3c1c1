"""Mask secrets in definitions, diffs, messages and logs.

A definition should contain only references ("env:NAME", "file:NAME"), which are shown. A plain-text
secret is masked wherever it is displayed, and restored when a masked form is submitted unchanged.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol, Self
from urllib.parse import quote, quote_plus

from headgate_ground.secret_kinds import NAME, VALUES

MASK = "••••••"

_REFERENCE = re.compile(r"(?:env|file):[A-Za-z0-9_.\-]+")
_SECRET_NAME = re.compile(NAME, re.IGNORECASE)
_NAMED = rf"(?:{NAME})[\w.\-]{{0,80}}"
# password=, "secret": and similar; password -> of a Scala Map
_ASSIGNED = rf"{_NAMED}[\"']?\s{{0,20}}(?:[=:]|->)\s{{0,20}}"
#: Text before a secret, the secret, text after it.
_BY_SHAPE = tuple(re.compile(f"({one.before})({one.pattern})({one.after})") for one in VALUES)
_BY_NAME = (
    *(
        re.compile(
            rf"({_ASSIGNED}{quote})(?!(?:env|file):)((?:[^{quote}\\\n]|\\.){{1,4096}})(?={quote})()",
            re.IGNORECASE,
        )
        for quote in "\"'"
    ),
    re.compile(rf"({_ASSIGNED}[\"']?)(?!(?:env|file):)([^\s\"',;&)}}]+)()", re.IGNORECASE),
)
_IN_TEXT = (*_BY_SHAPE, *_BY_NAME)
#: The version of the table: stored with masked texts, which are masked again if it has changed.
TABLE = sha256("\n".join(one.pattern for one in _IN_TEXT).encode()).hexdigest()[:8]
#: password="…" as in a JAAS text, with the quotes' content.
_QUOTED = re.compile(
    rf"{_NAMED}\s{{0,20}}=\s{{0,20}}(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)')", re.IGNORECASE
)
#: Keys like AWS_WEB_IDENTITY_TOKEN_FILE and tokenPath: the secret is in the file.
_FILE_NAME = re.compile(
    r"(?:[._-]|(?-i:(?<=[a-z])(?=[A-Z])))(?:file|path|location)$", re.IGNORECASE
)
_PATH = re.compile(r"(?:file:(?://)?)?(?:/[\w.\-]{1,255}){2,64}")
#: Values of secret names that are not secrets: switches, numbers, class names.
_NO_SECRET = re.compile(r"true|false|\d{1,6}(?:\.\d{1,6})?[a-z]{0,2}|(?:[a-z]\w*\.)+[A-Z][\w$]*")
#: Keys in a driver's files with texts from Spark or users' code: masked wherever found.
_WORDS = frozenset(
    {"root_cause", "message", "warnings", "reason", "exception", "description", "last_error"}
    | {"missing", "nodes", "observedMetrics", "notes", "temporary"}
    | {"threads", "heap"}  # of a thread dump
)
_PLACES = ("FileSink[", "FileStreamSource[")  # descriptions that are later parsed for their path
_ROWS = frozenset({"sample", "largest", "frequent"})  # with users' data: masked by value only
#: Keys whose texts are code that users read and edit, and never a place for secrets.
_CODE = frozenset({"sql", "schema", "ddl_schema", "function"})
_SHORTEST_KNOWN_SECRET = 4  # characters; masking shorter values would damage every text
_LONGEST_SEARCHED = 64 * 1024  # characters of a secret in which others are searched
_LINES = 500  # lines of a secret masked one by one; a longer one is masked as a whole


class Searcher(Protocol):
    """Applies the table to strings, in this process or elsewhere."""

    def mask(self, text: str) -> str:
        """Return the text with everything that looks like a secret masked."""
        ...

    def find(self, text: str) -> set[str]:
        """Return what looks like a plain-text secret in a string."""
        ...


class LocalSearcher:
    """Searches in this process; a search keeps Python's lock for as long as it takes."""

    def mask(self, text: str) -> str:
        """Return the text with everything that looks like a secret masked."""
        for pattern in _IN_TEXT:
            text = pattern.sub(rf"\g<1>{MASK}\g<3>", text)
        return text

    def find(self, text: str) -> set[str]:
        """Return what looks like a plain-text secret in a string."""
        shapes = {match[2] for pattern in _BY_SHAPE for match in pattern.finditer(text)}
        named = (match for pattern in _BY_NAME for match in pattern.finditer(text))
        # "token: string" is just as likely a schema's column and its type, "token ->" a lambda.
        joined = (":", "->")
        return shapes | {
            match[2] for match in named if not match[1].rstrip("\"' ").endswith(joined)
        }


_searcher: ContextVar[Searcher] = ContextVar("searcher", default=LocalSearcher())  # noqa: B039  # no state


@contextmanager
def searched_by(searcher: Searcher) -> Iterator[None]:
    """Have `one` apply the table within this context, instead of this process."""
    before = _searcher.set(searcher)
    try:
        yield
    finally:
        _searcher.reset(before)


def is_reference(value: str) -> bool:
    """Return whether a value is a reference to a secret ("env:NAME", "file:NAME")."""
    return _REFERENCE.fullmatch(value) is not None


def is_secret_name(name: str) -> bool:
    """Return whether the value of this key must be masked."""
    return _SECRET_NAME.search(name) is not None


def is_path_to_secret(name: str, value: str) -> bool:
    """Return whether a value is an absolute path under a key of a file, not a secret itself."""
    return _FILE_NAME.search(name) is not None and _PATH.fullmatch(value) is not None


def mask(value: Any, *, name: str = "") -> Any:
    """Return a JSON value with its secrets masked, both by their keys and within strings."""
    if isinstance(value, Mapping):
        return {
            key: mask(element, name=str(key) if not is_secret_name(name) else name)
            for key, element in value.items()
        }
    if isinstance(value, list | tuple):
        return [mask(element, name=name) for element in value]
    if not isinstance(value, str) or not value or is_reference(value):
        return value
    if is_secret_name(name) and not is_path_to_secret(name, value):
        return MASK
    return value if name in _CODE else mask_text(value)


@dataclass(frozen=True, slots=True)
class Mask:
    """Masks known secrets in strings, and everything that looks like a secret."""

    forms: tuple[str, ...] = ()  # their possible spellings, longest first

    @classmethod
    def of(cls, values: Iterable[str]) -> Self:
        """Return the mask for these values, without switches and values under four characters."""
        forms = {form for value in values for form in _forms(value)} - {"true", "false"}
        long_enough = (form for form in forms if len(form) >= _SHORTEST_KNOWN_SECRET)
        return cls(tuple(sorted(long_enough, key=lambda form: (-len(form), form))))

    def __call__(self, text: str) -> str:
        """Return a string (a log, a message) with known and likely secrets masked."""
        return _searcher.get().mask(self.mask_known_secrets(text))

    def mask_known_secrets(self, text: str) -> str:
        """Return the text with only the known secrets masked."""
        for form in self.forms:
            text = text.replace(form, MASK)
        return text

    def within(self, value: Any, *, name: str = "") -> Any:
        """Return the JSON of a driver's file with its strings masked.

        Names, numbers, states and offsets are unchanged: a secret that happens to equal one of them
        must not make the file unreadable.
        """
        if isinstance(value, Mapping):
            return {
                key: self.within(element, name=key if key in _WORDS or key in _ROWS else name)
                for key, element in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.within(element, name=name) for element in value]
        if not isinstance(value, str) or value.startswith(_PLACES):
            return value
        if name in _WORDS:
            return self(value)
        return self.mask_known_secrets(value) if name in _ROWS else value


def mask_text(text: str) -> str:
    """Mask everything in a string that looks like a secret, without knowing secrets by value."""
    return _PATTERNS_ALONE(text)


_PATTERNS_ALONE = Mask()


def _forms(value: str) -> set[str]:
    """Return a secret, the secrets within it, and their spellings in JSON, Python and URLs."""
    parts = {value, value.strip()}
    if len(value) <= _LONGEST_SEARCHED:
        parts |= {line.strip() for line in value.splitlines()[:_LINES]}
    for part in [text for text in parts if len(text) <= _LONGEST_SEARCHED]:
        parts |= {match[2] for pattern in _IN_TEXT for match in pattern.finditer(part)}
        for match in _QUOTED.finditer(part):
            quoted = match[1] if match[1] is not None else match[2]
            parts |= {quoted, re.sub(r"\\(.)", r"\1", quoted)}
    return parts | {
        written
        for part in parts
        for written in (
            quote(part, safe="", errors="replace"),
            quote_plus(part, errors="replace"),
            json.dumps(part)[1:-1],
            json.dumps(part, ensure_ascii=False)[1:-1],
            repr(part)[1:-1],
        )
    }


def secrets_in(value: Any, *, name: str = "") -> set[str]:
    """Return the plain-text secrets in a JSON value, at any depth."""
    if isinstance(value, Mapping):
        return set().union(
            *(
                secrets_in(element, name=name if is_secret_name(name) else str(key))
                for key, element in value.items()
            )
        )
    if isinstance(value, list | tuple):
        return set().union(*(secrets_in(element, name=name) for element in value))
    if not isinstance(value, str) or is_reference(value) or name in _CODE:
        return set()
    if is_secret_name(name) and not is_path_to_secret(name, value):
        return set() if _NO_SECRET.fullmatch(value) else {value}
    return _searcher.get().find(value)


def unmask(value: Any, *, before: Any) -> Any:
    """Return `value` with each unchanged masked string replaced with the original from `before`.

    Lists are compared by position; a masked string without a counterpart remains masked.
    """
    return _unmask(value, before, mask(before))


def _unmask(value: Any, before: Any, shown: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(before, Mapping):
        return {key: _unmask(new, before.get(key), shown.get(key)) for key, new in value.items()}
    if isinstance(value, list | tuple) and isinstance(before, list | tuple):
        padding = [None] * max(0, len(value) - len(before))
        pairs = zip(value, [*before, *padding], [*shown, *padding], strict=False)
        return [_unmask(new, old, shown_part) for new, old, shown_part in pairs]
    if isinstance(value, str) and MASK in value and value == shown:
        return before
    return value


def still_masked(value: Any, *, path: str = "") -> list[str]:
    """Return the dotted paths of strings that contain a mask and so cannot be stored."""
    if isinstance(value, Mapping):
        pairs = [(str(key), element) for key, element in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [(str(position), element) for position, element in enumerate(value)]
    else:
        return [path] if isinstance(value, str) and MASK in value else []
    prefix = f"{path}." if path else ""
    return [
        masked_path
        for key, element in pairs
        for masked_path in still_masked(element, path=prefix + key)
    ]


def references(value: Any) -> set[str]:
    """Return every reference ("env:NAME", "file:NAME") in a JSON value."""
    if isinstance(value, Mapping):
        return set().union(*(references(element) for element in value.values()))
    if isinstance(value, list | tuple):
        return set().union(*(references(element) for element in value))
    return {value} if isinstance(value, str) and is_reference(value) else set()
