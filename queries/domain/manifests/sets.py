"""A set of manifests sent by CI: read from YAML, with its owner and the effects of an apply.

YAML is parsed as version 1.2: `on`, `12:30` and `2026-01-05` are strings, and only `true` and
`false` are booleans. Aliases are rejected, because a few lines of them can expand to billions of
nodes. Repeated keys are rejected too, because one of them would be silently lost.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from headgate_ground.masking import MASK, mask, mask_text, secrets_in
from queries.domain.accepted_values import refuse_characters
from queries.domain.code.references import GitRef
from queries.domain.definitions.parsing import shape_problems
from queries.domain.definitions.spec import StrictForm
from queries.domain.errors import Invalid, Problem
from queries.domain.manifests.forms import Kind


class Outcome(StrEnum):
    """What happens to one object."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    PRUNED = "pruned"
    TO_BE_PRUNED = "to-be-pruned"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Change:
    """One changed field, as JSON; None if it is missing. Secrets are masked."""

    field: str  # dotted path in the manifest: "spec.trigger.interval"
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Drift:
    """Changes made on a page or through REST since a file was applied."""

    changes: tuple[Change, ...]  # from the applied to the current state
    way_out: str


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """What an apply does to one object, and why."""

    kind: str  # the `Kind`, or the text found in its place
    name: str
    path: str  # path of its file; "" if no file contains it any more
    outcome: Outcome
    changes: tuple[Change, ...] = ()
    problems: tuple[Problem, ...] = ()
    drift: Drift | None = None
    revision: int | None = None  # newest revision of its definition; None if it has none
    skipped: tuple[dict[str, Any], ...] = ()  # skipped checks, as JSON
    state_change: tuple[str, ...] = ()  # effects on the state in the checkpoint
    effect: str | None = None  # of its changes (`Effect.words`); None if there are none
    notes: tuple[str, ...] = ()  # a sentence for each value that is stored in another form


def differences(before: Any, after: Any) -> tuple[Change, ...]:
    """Return the fields that differ between two states in JSON, by field.

    Lists are compared by position, strings in full.
    """
    return tuple(
        Change(field, _shown(field, old), _shown(field, new))
        for field, old, new in _differing(before, after, "")
    )


def _differing(before: Any, after: Any, field: str) -> Iterator[tuple[str, Any, Any]]:
    if before == after:
        return
    prefix = f"{field}." if field else ""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            yield from _differing(before.get(name), after.get(name), f"{prefix}{name}")
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            old = before[index] if index < len(before) else None
            new = after[index] if index < len(after) else None
            yield from _differing(old, new, f"{prefix}{index}")
    else:
        yield field, before, after


def _shown(field: str, value: Any) -> Any:
    return mask(value, name=field.rpartition(".")[2])


def settle(kind: Kind, name: str, source: str) -> str:
    """Return how to reconcile a file with an object that was edited."""
    what = {Kind.APPLICATION: "application", Kind.QUERY: "query"}.get(kind, "rule")
    where = f" ({source})" if source else ""
    return (
        f"The next apply will overwrite the edits with the file{where}. To keep them, export "
        f"{what} {name} into the file and apply the file, or release it from its owner."
    )


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
    """Return the non-empty documents in YAML or JSON; for a list, its items.

    Raises `Invalid` with the line if it cannot be parsed.
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
    """Reject aliases and deep nesting before building anything from the YAML."""
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


#: Maximum files per set. More would hold the database's write lock for over a second.
MOST_FILES = 2000
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,79}")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class SetSource(StrictForm):
    """The origin of a set."""

    repository: str = Field(default="", max_length=500)
    commit: str = Field(default="", max_length=64)  # full hash

    def text(self) -> str:
        """Return the origin in readable form; "" if both fields are empty."""
        return " at ".join(part for part in (self.repository, self.commit[:12]) if part)


class SetFile(StrictForm):
    """One file: its manifest, or its YAML, which may contain several manifests."""

    path: str = Field(default="", max_length=500)
    manifest: dict[str, Any] | None = None
    text: str | None = None


class ApplySet(StrictForm):
    """The request for an apply."""

    owner: str
    source: SetSource = Field(default_factory=SetSource)
    values: dict[str, Any] = Field(default_factory=dict)
    manifests: list[SetFile] = Field(max_length=MOST_FILES)
    dry_run: bool = False
    prune: bool = False
    prune_running: bool = False
    accept_state_change: bool = False  # start changes that silently alter the meaning of state
    require_checked: bool = False  # refuse queries whose SQL could not be checked
    #: As returned by a dry run: these branches and tags are not resolved again.
    resolved: tuple[GitRef, ...] = ()


_SET: TypeAdapter[ApplySet] = TypeAdapter(ApplySet)


def parse_set(raw: Any) -> ApplySet:
    """Return a set; raise `Invalid` with every error by field."""
    if not isinstance(raw, Mapping):
        way_out = "Send owner and manifests."
        raise Invalid([Problem("body", str(raw)[:200], "is not a JSON object.", way_out)])
    try:
        found = _SET.validate_python(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error
    problems = list(_problems(found))
    if problems:
        raise Invalid(problems)
    source = found.source.model_copy(update={"repository": mask_text(found.source.repository)})
    return found.model_copy(update={"source": source})


def _problems(asked: ApplySet) -> Iterable[Problem]:
    if not _OWNER.fullmatch(asked.owner):
        way_out = "Use 1 to 80 letters, digits and . _ / -, such as the repository's name."
        yield Problem("owner", asked.owner[:200], "is not a valid owner name.", way_out)
    commit = asked.source.commit
    if commit and not _COMMIT.fullmatch(commit):
        way_out = "Send all 40 hexadecimal digits, or omit it."
        yield Problem("source.commit", commit[:200], "is not a full commit hash.", way_out)
    yield from value_problems(asked.values)
    for index, file in enumerate(asked.manifests):
        if (file.manifest is None) == (file.text is None):
            way_out = "Send either manifest or text."
            given = "neither" if file.text is None else "manifest and text"
            yield Problem(
                f"manifests.{index}", file.path or given, "must contain one manifest.", way_out
            )
    if asked.prune_running and not asked.prune:
        way_out = "Send prune too, or omit both."
        yield Problem("prune_running", "true", "has no effect without prune.", way_out)
