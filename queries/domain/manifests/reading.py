"""Read manifests from YAML, and insert an environment's values.

YAML is parsed as version 1.2: `on`, `12:30` and `2026-01-05` are strings, and only `true` and
`false` are booleans. Aliases are rejected, because a few lines of them can expand to billions of
nodes. Repeated keys are rejected too, because one of them would be silently lost.
"""

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

import yaml

from headgate_ground.masking import MASK, mask, mask_text, secrets_in
from queries.domain.characters import refuse_characters
from queries.domain.errors import Invalid, Problem

#: Maximum nesting of a manifest, as for an API request body. A definition has about six levels.
DEEPEST = 50

_VALUE = re.compile(r"\$\{values\.([^}]{0,100})\}")
_VALUE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Load scalars by YAML 1.2's core schema; reject aliases and repeated keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {str(name)[:40]!r} is not text", key.start_mark
                )
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name[:40]!r} appears twice", key.start_mark
                )
            seen.add(name)
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found

    def flatten_mapping(self, node: Any) -> None:
        """Treat “<<” like any other key: merging needs aliases."""


#: Tag, pattern of its plain scalars, and their possible first characters.
_CORE = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
        list("-+.0123456789"),
    ),
)
for _tag, _pattern, _firsts in _CORE:
    _known = re.compile(f"(?:{_pattern})$")
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _known, _firsts)


def _whole(loader: Any, node: Any) -> int:
    text = loader.construct_scalar(node)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _number(loader: Any, node: Any) -> float:
    number = float(loader.construct_scalar(node))
    if not isfinite(number):
        message = "this number is too large"
        raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
    return number


_Loader.add_constructor("tag:yaml.org,2002:int", _whole)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def read_text(text: str) -> list[Any]:
    """Return the non-empty documents in a YAML (or JSON) text; of a list, its items.

    Raises `Invalid` with the line if the text cannot be parsed.
    """
    try:
        _look_through(text)
        documents = list(yaml.load_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        said = " ".join(filter(None, (error.context, error.problem)))
        raise _no_yaml(f"{said}{place}", _line(text, mark.line if mark else 0)) from None
    except (yaml.YAMLError, ValueError) as error:  # a character or number out of range
        line = text.count("\n", 0, getattr(error, "position", 0))
        raise _no_yaml(" ".join(str(error).split())[:300], _line(text, line)) from None
    found = (one for held in documents for one in (held if isinstance(held, list) else [held]))
    return [one for one in found if one is not None]


def _look_through(text: str) -> None:
    """Reject aliases and deep nesting before building anything from the text."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                message = f"this is nested more than {DEEPEST} levels deep"
                raise _faulty(message, event)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            raise _faulty("aliases (*name) are not supported", event)


def _faulty(message: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.composer.ComposerError(None, None, message, event.start_mark)


def _line(text: str, number: int) -> str:
    """Return the last non-empty line up to this number (from 0), safe to show."""
    said = [one.strip() for one in text.split("\n")[: number + 1] if one.strip()]
    shown = (
        "".join(one if one.isprintable() else "�" for one in mask_text(said[-1])) if said else ""
    )
    return shown[:200]


def _no_yaml(said: str, line: str) -> Invalid:
    way_out = "Correct the file there."
    return Invalid([Problem("text", line, f"is not readable YAML: {said}.", way_out)])


def value_problems(values: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with an environment's values: names, types, secrets."""
    problems = []
    for name, value in values.items():
        field = f"values.{str(name)[:100]}"
        if not _VALUE_NAME.fullmatch(str(name)):
            way_out = "Use letters, digits and . _ -, starting with a letter or _."
            problems.append(Problem(field, str(name)[:200], "is not a valid name.", way_out))
        elif not isinstance(value, str | int | float):
            way_out = "Write text, a number, true or false."
            shown = json.dumps(mask(value, name=str(name)), default=str)[:200]
            problems.append(Problem(field, shown, "is not a plain value.", way_out))
        elif secrets_in(value, name=str(name)):
            way_out = "Write env:NAME or file:NAME, here or in the manifest."
            problems.append(Problem(field, MASK, "looks like a secret in plain text.", way_out))
    return problems


def with_values(manifest: Any, values: Mapping[str, Any]) -> Any:
    """Return a manifest with `${values.NAME}` replaced in its strings, but not in keys.

    Raises `Invalid` for each name that has no value, and for characters that cannot be stored.
    """
    refuse_characters(manifest)
    problems: list[Problem] = []
    found = _filled(manifest, {name: _text(one) for name, one in values.items()}, "", problems)
    if problems:
        raise Invalid(problems)
    return found


def _filled(part: Any, values: Mapping[str, str], field: str, problems: list[Problem]) -> Any:
    prefix = f"{field}." if field else ""
    if isinstance(part, Mapping):
        return {
            name: _filled(held, values, f"{prefix}{name}", problems) for name, held in part.items()
        }
    if isinstance(part, list):
        return [
            _filled(held, values, f"{prefix}{index}", problems) for index, held in enumerate(part)
        ]
    if not isinstance(part, str) or "${values." not in part:
        return part

    def value(found: re.Match[str]) -> str:
        if found[1] in values:
            return values[found[1]]
        known = f"Known: {', '.join(sorted(values))}." if values else "No values were sent."
        way_out = f"Send it with the set's values. {known}"[:400]
        problems.append(Problem(field or "manifest", found[0], "is not a known value.", way_out))
        return ""

    return _VALUE.sub(value, part)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
