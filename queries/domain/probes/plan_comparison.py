"""Changes to a query that Spark accepts but that alter the meaning of its state.

Spark compares the types of state, not its meaning. If a sum is replaced with a maximum, a window is
doubled, or the key is replaced with another one of the same type, the query continues from the old
state without an error, and the results are wrong until the last old group is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from queries.domain.probes.plan_shapes import Shape, Shapes

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
class Difference:
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


def compare(old: Shapes, new: Shapes) -> tuple[Difference, ...]:
    """Return how two forms of a query differ in what their state depends on.

    If either form has no state, there are no differences that affect a checkpoint.
    """
    if not old.operators and not new.operators:
        return ()
    found: list[Difference] = []
    if old.output_mode != new.output_mode:
        found.append(Difference(Property.OUTPUT_MODE, old.output_mode, new.output_mode))
    before, after = [each.kind for each in old.operators], [each.kind for each in new.operators]
    if before != after:
        found.append(Difference(Property.OPERATORS, _listed(before), _listed(after)))
        return tuple(found)
    for one, other in zip(old.operators, new.operators, strict=True):
        found += _operator(one, other)
    return tuple(dict.fromkeys(found))


def in_words(
    by_spark: tuple[Difference, ...], by_text: tuple[Difference, ...]
) -> tuple[Difference, ...]:
    """Return the differences between Spark's plans, in the author's wording where that is possible.

    If both comparisons found the same number of differences of a kind, these are the same ones.
    """

    def of(found: tuple[Difference, ...], what: str) -> list[Difference]:
        return [each for each in found if each.what == what]

    chosen: list[Difference] = []
    for what in dict.fromkeys(each.what for each in by_spark):
        mine, theirs = of(by_spark, what), of(by_text, what)
        chosen += theirs if len(mine) == len(theirs) else mine
    return tuple(chosen)


def pinned(wanted: Mapping[str, str], held: Mapping[str, str]) -> tuple[Difference, ...]:
    """Return configuration that a checkpoint pins to a value other than the definition's.

    `held` comes from the newest offset log; Spark uses these values and mentions that only in its
    log.
    """
    return tuple(
        Difference(key, held[key], value)
        for key, value in sorted(wanted.items())
        if key in held and held[key] != value
    )


def _operator(old: Shape, new: Shape) -> list[Difference]:
    return [
        *_by_place(Property.KEY, old.keys, new.keys),
        *_by_place(Property.WINDOW, old.windows, new.windows),
        *_by_place(Property.AGGREGATE, old.aggregates, new.aggregates),
        *_as_sets(Property.WATERMARK, old.watermarks, new.watermarks),
        *_as_sets(Property.FILTER, old.filters, new.filters),
        *_by_place(Property.JOIN, old.joins, new.joins),
        *_by_place(Property.OTHER, old.other, new.other),
    ]


def _by_place(what: Property, old: tuple[str, ...], new: tuple[str, ...]) -> list[Difference]:
    """Compare properties that Spark identifies by position, because state has no names for them."""
    if len(old) == len(new):
        return [Difference(what, a, b) for a, b in zip(old, new, strict=True) if a != b]
    return _as_sets(what, old, new)


def _as_sets(what: Property, old: tuple[str, ...], new: tuple[str, ...]) -> list[Difference]:
    gone = [each for each in old if each not in new]
    come = [each for each in new if each not in old]
    if len(gone) == len(come):
        return [Difference(what, a, b) for a, b in zip(gone, come, strict=True)]
    return [Difference(what, a, "") for a in gone] + [Difference(what, "", b) for b in come]


def _listed(words: list[str]) -> str:
    return ", ".join(words)
