"""Changes to a query that Spark accepts but that alter the meaning of its state.

Spark compares the types of state, not its meaning. If a sum is replaced with a maximum, a window is
doubled, or the key is replaced with another one of the same type, the query continues from the old
state without an error, and the results are wrong until the last old group is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from queries.domain.probes.plan_shapes import OperatorShape, Shapes

SILENT = "Spark will not object, but the existing state was computed by the old definition."


class Property(StrEnum):
    """What state depends on, in the words of pages."""

    OUTPUT_MODE = "output mode"
    OPERATORS = "stateful operators"
    KEY = "grouping key"
    WINDOW = "window"
    AGGREGATE = "aggregate"
    WATERMARK = "watermark"
    FILTER = "filter"
    JOIN = "join"
    OTHER = "operator"


@dataclass(frozen=True, slots=True)
class ShapeDifference:
    """One property that state depends on, before and now."""

    what: str  # a `Property`, or a configuration key
    old: str  # "" if there was none
    new: str  # "" if it is gone

    def sentence(self) -> str:
        """Return the difference as one line of text."""
        if not self.old:
            return f"{self.what} added: {self.new}"
        if not self.new:
            return f"{self.what} removed: {self.old}"
        return f"{self.what}: {self.old} → {self.new}"


def compare(old: Shapes, new: Shapes) -> tuple[ShapeDifference, ...]:
    """Return how two forms of a query differ in what their state depends on.

    If either form has no state, there are no differences that affect a checkpoint.
    """
    if not old.operators and not new.operators:
        return ()
    differences: list[ShapeDifference] = []
    if old.output_mode != new.output_mode:
        differences.append(ShapeDifference(Property.OUTPUT_MODE, old.output_mode, new.output_mode))
    before, after = (
        [operator.kind for operator in old.operators],
        [operator.kind for operator in new.operators],
    )
    if before != after:
        differences.append(ShapeDifference(Property.OPERATORS, _listed(before), _listed(after)))
        return tuple(differences)
    for older, newer in zip(old.operators, new.operators, strict=True):
        differences += _operator(older, newer)
    return tuple(dict.fromkeys(differences))


def in_words(
    by_spark: tuple[ShapeDifference, ...], by_text: tuple[ShapeDifference, ...]
) -> tuple[ShapeDifference, ...]:
    """Return the differences between Spark's plans, in the author's wording where that is possible.

    If both comparisons found the same number of differences of a kind, these are the same ones.
    """

    def of(differences: tuple[ShapeDifference, ...], what: str) -> list[ShapeDifference]:
        return [difference for difference in differences if difference.what == what]

    chosen: list[ShapeDifference] = []
    for what in dict.fromkeys(plan_difference.what for plan_difference in by_spark):
        mine, theirs = of(by_spark, what), of(by_text, what)
        chosen += theirs if len(mine) == len(theirs) else mine
    return tuple(chosen)


def pinned(wanted: Mapping[str, str], logged: Mapping[str, str]) -> tuple[ShapeDifference, ...]:
    """Return configuration that a checkpoint pins to a value other than the definition's.

    `logged` comes from the newest offset log; Spark uses these values and mentions that only in its
    log.
    """
    return tuple(
        ShapeDifference(key, logged[key], value)
        for key, value in sorted(wanted.items())
        if key in logged and logged[key] != value
    )


def _operator(old: OperatorShape, new: OperatorShape) -> list[ShapeDifference]:
    return [
        *_by_position(Property.KEY, old.keys, new.keys),
        *_by_position(Property.WINDOW, old.windows, new.windows),
        *_by_position(Property.AGGREGATE, old.aggregates, new.aggregates),
        *_as_sets(Property.WATERMARK, old.watermarks, new.watermarks),
        *_as_sets(Property.FILTER, old.filters, new.filters),
        *_by_position(Property.JOIN, old.joins, new.joins),
        *_by_position(Property.OTHER, old.other, new.other),
    ]


def _by_position(
    what: Property, old: tuple[str, ...], new: tuple[str, ...]
) -> list[ShapeDifference]:
    """Compare properties that Spark identifies by position, because state has no names for them."""
    if len(old) == len(new):
        return [ShapeDifference(what, a, b) for a, b in zip(old, new, strict=True) if a != b]
    return _as_sets(what, old, new)


def _as_sets(what: Property, old: tuple[str, ...], new: tuple[str, ...]) -> list[ShapeDifference]:
    removed = [value for value in old if value not in new]
    added = [value for value in new if value not in old]
    if len(removed) == len(added):
        return [ShapeDifference(what, a, b) for a, b in zip(removed, added, strict=True)]
    return [ShapeDifference(what, a, "") for a in removed] + [
        ShapeDifference(what, "", b) for b in added
    ]


def _listed(words: list[str]) -> str:
    return ", ".join(words)
