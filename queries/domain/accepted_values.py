"""What values from outside can be: characters and numbers that we can store, and IANA time
zones.

PostgreSQL cannot store U+0000, and half a surrogate pair cannot be encoded. Python reads 1e999 as
infinity, and also NaN, which JSON and PostgreSQL lack. Many rules check each
key and element, so a value with tens of thousands of them would delay every other user.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from math import isfinite
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from headgate_ground.masking import mask
from queries.domain.errors import Invalid, Problem

_REFUSED = re.compile("[\x00\ud800-\udfff]")
#: Maximum keys per object and elements per list. The largest set of manifests has a few thousand.
MOST_KEYS, MOST_ELEMENTS = 1_000, 10_000
#: Maximum number of problems reported for one body.
_MAX_REPORTED = 20
_WAY_OUT = "Remove this character."
_FINITE = "Use a finite number, below 1.8e308."


def with_escapes(text: str) -> str:
    r"""Escape such characters (`\u0000`), so that the string can be stored."""
    return _REFUSED.sub(lambda found: rf"\u{ord(found[0]):04x}", text)


def refuse_characters(value: Any, *, field: str = "") -> None:
    """Raise `Invalid` for each part of a JSON value that cannot be stored or exceeds a limit.

    field: the value's own field name, if it is part of a body.
    """
    if problems := list(islice(unstorable(value, field), _MAX_REPORTED)):
        raise Invalid(problems)


def unstorable(value: Any, field: str, name: str = "") -> Iterator[Problem]:
    """Yield a problem for each part of a JSON value that cannot be stored or exceeds a limit."""
    prefix = f"{field}." if field else ""
    most = MOST_KEYS if isinstance(value, Mapping) else MOST_ELEMENTS
    if isinstance(value, Mapping | list | tuple) and len(value) > most:
        yield Problem(
            field or "body",
            "",
            f"has {len(value):,} entries; at most {most:,} are allowed.",
            "Send fewer entries.",
        )
    elif isinstance(value, Mapping):
        for key, element in value.items():
            at = f"{prefix}{with_escapes(str(key))[:200]}"
            if match := _REFUSED.search(str(key)):
                yield Problem(at, with_escapes(str(key))[:200], _rejection_of(match[0]), _WAY_OUT)
            yield from unstorable(element, at, str(key))
    elif isinstance(value, list | tuple):
        for index, element in enumerate(value):
            yield from unstorable(element, f"{prefix}{index}", name)
    elif isinstance(value, float) and not isfinite(value):
        literal = json.dumps(value)  # NaN, Infinity or -Infinity
        yield Problem(field or "body", literal, f"is {literal}, which JSON does not have.", _FINITE)
    elif isinstance(value, str) and (match := _REFUSED.search(value)):
        shown = with_escapes(mask(value, name=name))[:200]
        yield Problem(field or "body", shown, _rejection_of(match[0]), _WAY_OUT)


def _rejection_of(character: str) -> str:
    return (
        f"contains U+{ord(character):04X}, which JSON and YAML can express but Headgate cannot "
        "store."
    )


#: Files of a host's zone folder that are not zones: its own choice, the default of POSIX, and the
#: value of a system that has not been set up.
_NOT_ZONES = frozenset({"localtime", "posixrules", "Factory"})
#: Folders with copies of all zones, with and without leap seconds; few hosts have them.
_COPIES = ("right/", "posix/")


def zone_problem(field: str, name: str) -> Problem | None:
    """Return a problem with the zone in a field; None if it can be used."""
    way_out = 'Use a name such as "Europe/Berlin" or "UTC".'
    if name.startswith(_COPIES):
        way_out = f'Use "{name.partition("/")[2][:100]}".'
    elif name not in _NOT_ZONES:
        try:
            ZoneInfo(name)
        except (KeyError, OSError, ValueError):
            pass
        else:
            return None
    return Problem(field, name[:200], "is not an IANA time zone.", way_out)


def zone_names() -> frozenset[str]:
    """Return the names from which a user chooses."""
    return frozenset(available_timezones() - _NOT_ZONES)
