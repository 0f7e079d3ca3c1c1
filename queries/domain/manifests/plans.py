"""What an apply would do, or has done, for each object and field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headgate_ground.masking import mask
from queries.domain.errors import Problem
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


def differences(before: Any, after: Any) -> tuple[Change, ...]:
    """Return the fields that differ between two states in JSON, by field.

    Lists are compared by position, strings as a whole.
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
