"""What an apply would do, or has done: object by object, field by field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from queries.domain.errors import Problem
from queries.domain.manifests.forms import Kind
from queries.domain.masking import mask


class Outcome(StrEnum):
    """What becomes of one object."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    PRUNED = "pruned"
    TO_BE_PRUNED = "to-be-pruned"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs, as JSON; None where it is not there. Secrets are masked."""

    field: str  # dotted path in the manifest: "spec.trigger.interval"
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Drift:
    """What was edited on a page, or over REST, since a file was applied."""

    changes: tuple[Change, ...]  # from what was applied to what is there
    way_out: str


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """What an apply does to one object, and why."""

    kind: str  # Kind, or what stands there instead
    name: str
    path: str  # of its file; "" for one that no file has any more
    outcome: Outcome
    changes: tuple[Change, ...] = ()
    problems: tuple[Problem, ...] = ()
    drift: Drift | None = None
    revision: int | None = None  # of its definition: the newest; None where it has none


def differences(before: Any, after: Any) -> tuple[Change, ...]:
    """Return the fields that differ between two states in JSON, by field.

    Lists are compared by position, texts whole.
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
    """Return how to bring a file and the edited object together again."""
    what = {Kind.APPLICATION: "application", Kind.QUERY: "query"}.get(kind, "rule")
    where = f" ({source})" if source else ""
    return (
        f"Apply writes the file{where} over it. To keep what was edited, export {what} {name} "
        "into the file, and apply that; or release it from its owner."
    )
