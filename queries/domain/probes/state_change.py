"""Find how a new definition changes the meaning of a checkpoint's state, before it starts."""

from dataclasses import dataclass
from typing import Any

from queries.domain.definitions.spec import SqlQuery
from queries.domain.probes.plan_comparison import Property, ShapeDifference, compare, in_words
from queries.domain.probes.plan_shapes import OperatorShape, Shapes
from queries.domain.probes.plan_texts import of_text

#: Differences that change the form of the state: Spark rejects them if one side has none.
_FORM = frozenset({Property.KEY, Property.WINDOW, Property.AGGREGATE, Property.OPERATORS})


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """One form of a query: its definition, and its state according to Spark's analyzer."""

    spec: SqlQuery
    shapes: Shapes | None  # None: not analyzed


@dataclass(frozen=True, slots=True)
class StateChange:
    """Differences from the definition that wrote the checkpoint."""

    refused: tuple[str, ...]  # Spark will refuse to start
    silent: tuple[str, ...]  # Spark will start, and results will be wrong
    unknown: str = ""  # why it cannot be determined; "" if it can


def state_change(old: AnalyzedQuery, new: AnalyzedQuery) -> StateChange:
    """Return how two forms of a query differ.

    Spark's plans are compared; if they are missing, the texts are, as far as they can be parsed
    without Spark.
    """
    was, now = of_text(old.spec), of_text(new.spec)
    by_text = compare(was, now) if was is not None and now is not None else None
    if old.shapes is not None and new.shapes is not None:
        differences = in_words(compare(old.shapes, new.shapes), by_text or ())
    elif by_text is not None:
        differences = by_text
    else:
        return StateChange((), (), "neither Spark's plans nor the SQL texts are known.")
    refused = [difference for difference in differences if _changes_form(difference)]
    silent = [difference for difference in differences if not _changes_form(difference)]
    return StateChange(_sentences(refused), _sentences(silent))


def _sentences(differences: list[ShapeDifference]) -> tuple[str, ...]:
    return tuple(difference.sentence() for difference in differences)


def _changes_form(difference: ShapeDifference) -> bool:
    counted = difference.what in _FORM and not (difference.old and difference.new)
    return counted or difference.what == Property.OPERATORS


def shapes_of(stored: dict[str, Any] | None) -> Shapes | None:
    """Return the shapes stored with a revision; None if missing or from a later release."""
    if stored is None:
        return None
    try:
        operators = tuple(
            OperatorShape(
                operator["kind"],
                **{name: tuple(operator[name]) for name in operator.keys() - {"kind"}},
            )
            for operator in stored["operators"]
        )
        return Shapes(operators, stored["output_mode"])
    except (KeyError, TypeError, AttributeError):
        return None
