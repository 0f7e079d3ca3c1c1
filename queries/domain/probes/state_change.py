"""Find how a new definition changes the meaning of a checkpoint's state, before it starts."""

from dataclasses import dataclass
from typing import Any

from queries.domain.definitions.spec import SqlQuery
from queries.domain.probes.plan_comparison import Difference, Property, compare, in_words
from queries.domain.probes.plan_shapes import Shape, Shapes
from queries.domain.probes.plan_texts import of_text

#: Differences that change the form of the state: Spark rejects them if one side has none.
_FORM = frozenset({Property.KEY, Property.WINDOW, Property.AGGREGATE, Property.OPERATORS})


@dataclass(frozen=True, slots=True)
class Seen:
    """One form of a query: its definition, and its state according to Spark's analyzer."""

    spec: SqlQuery
    shapes: Shapes | None  # None: not analyzed


@dataclass(frozen=True, slots=True)
class StateChange:
    """Differences from the definition that wrote the checkpoint."""

    refused: tuple[str, ...]  # Spark will refuse to start
    silent: tuple[str, ...]  # Spark will start, and results will be wrong
    unknown: str = ""  # why it cannot be determined; "" if it can


def state_change(old: Seen, new: Seen) -> StateChange:
    """Return how two forms of a query differ.

    Spark's plans are compared; if they are missing, the texts are, as far as they can be parsed
    without Spark.
    """
    was, now = of_text(old.spec), of_text(new.spec)
    by_text = compare(was, now) if was is not None and now is not None else None
    if old.shapes is not None and new.shapes is not None:
        found = in_words(compare(old.shapes, new.shapes), by_text or ())
    elif by_text is not None:
        found = by_text
    else:
        return StateChange((), (), "neither Spark's plans nor the SQL texts are known.")
    refused = [one for one in found if _changes_form(one)]
    silent = [one for one in found if not _changes_form(one)]
    return StateChange(_said(refused), _said(silent))


def _said(found: list[Difference]) -> tuple[str, ...]:
    return tuple(one.sentence() for one in found)


def _changes_form(one: Difference) -> bool:
    counted = one.what in _FORM and not (one.old and one.new)
    return counted or one.what == Property.OPERATORS


def shapes_of(kept: dict[str, Any] | None) -> Shapes | None:
    """Return the shapes stored with a revision; None if missing or from a later release."""
    if kept is None:
        return None
    try:
        operators = tuple(
            Shape(one["kind"], **{name: tuple(one[name]) for name in one.keys() - {"kind"}})
            for one in kept["operators"]
        )
        return Shapes(operators, kept["output_mode"])
    except (KeyError, TypeError, AttributeError):
        return None
