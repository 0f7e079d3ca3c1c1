"""Characters that JSON and YAML can write, and that no text of ours can hold.

PostgreSQL stores no U+0000, and half of a surrogate pair is no character: nothing can encode it.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from queries.domain.errors import Invalid, Problem
from queries.domain.masking import mask

_REFUSED = re.compile("[\x00\ud800-\udfff]")
#: Problems that are told of one body.
_MOST_TOLD = 20
_WAY_OUT = "Remove this character."


def with_escapes(text: str) -> str:
    r"""Return a text that can be stored and shown: with `\u0000` in place of such a character."""
    return _REFUSED.sub(lambda found: rf"\u{ord(found[0]):04x}", text)


def refuse_characters(value: Any, *, field: str = "") -> None:
    """Raise `Invalid` for each text and key of a JSON value that cannot be stored.

    field: the name of the value itself, where it is a part of a body.
    """
    if problems := list(islice(_problems(value, field, ""), _MOST_TOLD)):
        raise Invalid(problems)


def _problems(value: Any, field: str, name: str) -> Iterator[Problem]:
    prefix = f"{field}." if field else ""
    if isinstance(value, Mapping):
        for key, held in value.items():
            at = f"{prefix}{with_escapes(str(key))[:200]}"
            if found := _REFUSED.search(str(key)):
                yield Problem(at, with_escapes(str(key))[:200], _said(found[0]), _WAY_OUT)
            yield from _problems(held, at, str(key))
    elif isinstance(value, list | tuple):
        for index, held in enumerate(value):
            yield from _problems(held, f"{prefix}{index}", name)
    elif isinstance(value, str) and (found := _REFUSED.search(value)):
        shown = with_escapes(mask(value, name=name))[:200]
        yield Problem(field or "body", shown, _said(found[0]), _WAY_OUT)


def _said(character: str) -> str:
    return f"contains U+{ord(character):04X}: JSON and YAML can write it, but no text can hold it."
