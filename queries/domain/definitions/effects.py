"""What must happen before a changed field of a definition takes effect.

Each field of the models in `spec` declares its effect there, and only there; saves, deploys, drift,
the preflight's digest and the pages all use that declaration. Flink's Kubernetes operator does the
same with annotations (`@SpecDiff`).
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from pydantic import BaseModel

from queries.domain.sparks import PINS


class Effect(IntEnum):
    """What a change requires, weakest first; each field has one of these as its metadata."""

    words: str

    def __new__(cls, rank: int, words: str) -> "Effect":
        """Return a member that compares by its rank."""
        member = int.__new__(cls, rank)
        member._value_, member.words = rank, words
        return member

    NONE = 0, "none"  # takes effect when saved
    QUERY = 1, "query restart"
    DRIVER = 2, "driver restart"
    CHECKPOINT = 3, "new checkpoint"  # the current one keeps its original value


#: Configuration that a checkpoint keeps from its first batch on, regardless of later definitions.
#: Contains the keys of all versions: keys that the application's version lacks are rejected.
PINNED = frozenset(PINS)


def declared(model: type[BaseModel]) -> dict[str, Effect]:
    """Return each field's effect by JSON name; raise `KeyError` if a field does not declare one."""
    by_field = {}
    for name, field in model.model_fields.items():
        effects = [annotation for annotation in field.metadata if isinstance(annotation, Effect)]
        if len(effects) != 1:
            raise KeyError(f"{model.__name__}.{name} declares {len(effects)} effects")
        by_field[field.alias or name] = effects[0]
    return by_field


def changed_fields(
    model: type[BaseModel], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Effect]:
    """Return the fields that differ between two definitions in JSON, with the effect of each.

    Missing fields count as their defaults. Configuration is compared key by key.
    """
    old, new = _whole(model, before), _whole(model, after)
    changed = {}
    for name, effect in declared(model).items():
        if old.get(name) == new.get(name):
            continue
        if name != "conf":
            changed[name] = effect
            continue
        sides = (old.get(name) or {}, new.get(name) or {})
        for key in sorted(sides[0].keys() | sides[1].keys()):
            if sides[0].get(key) != sides[1].get(key):
                changed[f"conf.{key}"] = Effect.CHECKPOINT if key in PINNED else effect
    return changed


def strongest(changes: Mapping[str, Effect]) -> Effect:
    """Return the strongest effect of these changes."""
    return max(changes.values(), default=Effect.NONE)


def _whole(model: type[BaseModel], spec: Mapping[str, Any]) -> dict[str, Any]:
    return model.model_validate(spec).model_dump(mode="json", by_alias=True)
