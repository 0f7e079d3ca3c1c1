"""What a query's state depends on, read from Spark's analyzed plan: one shape per operator.

Spark numbers columns differently in every analysis. Here each expression is written in terms of the
source's columns, so two plans with the same meaning have the same shapes, and a different key under
the same alias has a different shape.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: "name#12", "name#12L", "name#12-T600000ms": how Spark prints a column.
_ID = re.compile(r"#(\d+)L?(?:-T\d+ms)?")
_NAMED = re.compile(r"(?s)(.+)#(\d+)L?(?:-T\d+ms)?")
_TIME = r"Timestamp(?:NTZ)?Type"
#: Prefixes of Spark's window columns, and what follows them, in this order.
_WINDOW = (
    "named_struct(start, knownnullable(precisetimestampconversion(((precisetimestampconversion("
)
_SESSION = "named_struct(start, precisetimestampconversion(precisetimestampconversion("
_COLUMN_ENDS = re.compile(rf", {_TIME}, LongType\)")
_SLIDE = re.compile(r" - (?P<offset>-?\d+)\) % (?P<slide>\d+)\)")
_LENGTH = re.compile(rf"\+ (?P<length>\d+)\), LongType, {_TIME}\)\)\)")
_GAP_ENDS = re.compile(rf"(?: as interval\))? as timestamp(?:_ntz)?\), {_TIME}, LongType\)")
_UNITS = (
    (86_400_000_000, "day"),
    (3_600_000_000, "hour"),
    (60_000_000, "minute"),
    (1_000_000, "second"),
    (1_000, "millisecond"),
    (1, "microsecond"),
)
_LIMIT = 4_000  # characters in an expression; longer ones are not expanded further

#: Nodes that keep state over a stream, in words.
_STATEFUL = {
    "Aggregate": "aggregation",
    "Distinct": "distinct",
    "Deduplicate": "deduplication",
    "DeduplicateWithinWatermark": "deduplication within the watermark",
    "Join": "stream-stream join",
    "GlobalLimit": "limit",
    "FlatMapGroupsWithState": "arbitrary state",
    "FlatMapGroupsInPandasWithState": "arbitrary state",
    "TransformWithState": "arbitrary state",
    "TransformWithStateInPySpark": "arbitrary state",
    "TransformWithStateInPandas": "arbitrary state",
}
#: Nodes that move rows without changing them.
_MOVING = frozenset({"Repartition", "RepartitionByExpression", "RebalancePartitions"})


@dataclass(frozen=True, slots=True)
class OperatorShape:
    """One stateful operator, in terms of the source's columns."""

    kind: str
    keys: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    watermarks: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()  # filters on the rows that reach it, in any order
    joins: tuple[str, ...] = ()
    other: tuple[str, ...] = ()  # other steps that the rows go through, in order


@dataclass(frozen=True, slots=True)
class Shapes:
    """A query's stateful operators, outermost first, and its output mode."""

    operators: tuple[OperatorShape, ...] = ()
    output_mode: str = ""


def of_plan(nodes: Mapping[str, Any], output_mode: str) -> Shapes:
    """Return the shapes of an analyzed plan in the form that a probe driver reports."""
    names = _Names.of(nodes)
    shapes = [_shape(node, names) for node in _walk(nodes) if _keeps_state(node)]
    return Shapes(tuple(shapes), output_mode)


def human(microseconds: int) -> str:
    """Return a duration in the largest unit that divides it evenly."""
    size, unit = next((s, u) for s, u in _UNITS if microseconds % s == 0)
    count = microseconds // size
    return f"{count} {unit}{'' if count == 1 else 's'}"


def conjuncts(condition: str) -> tuple[str, ...]:
    """Return the parts of `(a AND b)`, or the condition itself."""
    text = condition.strip()
    inner = text[1:-1] if _is_wrapped(text) else text
    parts = _split(inner, " AND ")
    if len(parts) == 1:
        return (inner if _is_wrapped(text) else text,)
    return tuple(conjunct for part in parts for conjunct in conjuncts(part))


def _walk(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node["children"]:
        yield from _walk(child)


def _keeps_state(node: Mapping[str, Any]) -> bool:
    if node["op"] not in _STATEFUL or not node["streaming"]:
        return False
    return node["op"] != "Join" or all(child["streaming"] for child in node["children"])


def _shape(node: Mapping[str, Any], names: "_Names") -> OperatorShape:
    keys = tuple(names.plain(key) for key in node.get("keys", ()))
    below = [child_node for child in node["children"] for child_node in _walk(child)]
    own_join = [_join(node, names)] if node["op"] == "Join" else []
    watermarks = (
        _watermark(child_node, names)
        for child_node in below
        if child_node["op"] == "EventTimeWatermark"
    )
    filters = (
        part
        for child_node in below
        if child_node["op"] == "Filter"
        for part in conjuncts(names.plain(child_node["condition"]))
        if not part.startswith("isnotnull(")  # Spark adds it for every window
    )
    return OperatorShape(
        kind=_STATEFUL[node["op"]],
        keys=tuple(key for key in keys if not _is_window(key)),
        aggregates=tuple(names.plain(child_node) for child_node in node.get("aggregates", ())),
        windows=tuple(key for key in keys if _is_window(key)),
        watermarks=tuple(sorted(set(watermarks))),
        filters=tuple(sorted(set(filters))),
        joins=tuple(
            own_join
            + [_join(child_node, names) for child_node in below if child_node["op"] == "Join"]
        ),
        other=tuple(_others(node, below, names)),
    )


def _others(
    node: Mapping[str, Any], below: list[Mapping[str, Any]], names: "_Names"
) -> Iterator[str]:
    """Yield the other steps that rows go through, those without a field in `OperatorShape`."""
    if "text" in node and node["op"] not in ("Distinct",):
        yield names.plain(node["text"])
    if node["op"] == "Distinct":
        top = node["children"][0]
        yield from (names.plain(_left(child_node)) for child_node in top.get("expressions", ()))
    for child_node in below:
        has_own_field = child_node["op"] in _STATEFUL or child_node["op"] in _MOVING
        if "text" in child_node and not has_own_field and child_node["streaming"]:
            yield names.plain(child_node["text"])


def _join(node: Mapping[str, Any], names: "_Names") -> str:
    condition = names.plain(node["condition"])
    return f"{node['join']} on {condition}" if condition else str(node["join"])


def _watermark(node: Mapping[str, Any], names: "_Names") -> str:
    column = names.plain(str(node["column"]).partition(":")[0])
    return f"{column}, {node['delay']}"


def _is_window(key: str) -> bool:
    return key.startswith(("window(", "session_window("))


# --- columns --------------------------------------------------------------------------


@dataclass(slots=True)
class _Names:
    """What each numbered column of a plan is derived from."""

    made_of: dict[str, tuple[str, str]] = field(default_factory=dict)  # id -> (name, expression)
    _plain: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Mapping[str, Any]) -> "_Names":
        names = cls()
        for node in _walk(nodes):
            for text in node.get("expressions", ()):
                names._alias(text)
            for index, column in enumerate(node.get("output", ())):
                names._expanded(column, [row[index] for row in node.get("projections", ())])
            for column, other in node.get("columns", ()):
                names._define(column, other)
        return names

    def plain(self, text: str, depth: int = 0) -> str:
        """Return an expression in terms of the source's columns, without numbers."""
        text = _compact(text)
        pieces, end = [], 0
        for match in _ID.finditer(text):
            before = text[end : match.start()]
            name, expression = self.made_of.get(match[1], ("", ""))
            # Nested more deeply than any plan, or too long to read: keep the name.
            if name and before.endswith(name) and depth < 40 and len(text) < _LIMIT:
                pieces += [before[: -len(name)], self._opened(match[1], expression, depth)]
            else:
                pieces.append(before)
            end = match.end()
        return "".join([*pieces, text[end:]])

    def _opened(self, number: str, expression: str, depth: int) -> str:
        if number not in self._plain:
            self._plain[number] = self.plain(expression, depth + 1)
        return self._plain[number]

    def _alias(self, text: str) -> None:
        expression, _, column = text.rpartition(" AS ")
        match = _NAMED.fullmatch(column)
        if expression and match is not None:
            self.made_of[match[2]] = (match[1], expression)

    def _expanded(self, column: str, values: list[str]) -> None:
        """Register a column of Expand: the same in every row, or one of several windows."""
        if len(set(values)) == 1:
            self._define(column, values[0])
        elif values:
            self._define(column, values[0] if _window(values[0]) else "; ".join(values))

    def _define(self, column: str, expression: str) -> None:
        match = _ID.search(column)
        if match is not None and column != expression:
            self.made_of[match[1]] = (column[: match.start()], expression)


def _compact(text: str) -> str:
    """Rewrite Spark's window arithmetic as the window that it came from."""
    return text if len(text) > _LIMIT else _window(text) or _session_window(text) or text


def _window(text: str) -> str:
    """Return the window that an expression represents, "" if it is not a window.

    As below, each part is searched for from the end of the previous one: a single pattern would try
    every position for each part.
    """
    if len(text) > _LIMIT or not text.startswith(_WINDOW):
        return ""
    ends = _COLUMN_ENDS.search(text, len(_WINDOW) + 1)
    slides = _SLIDE.search(text, ends.end()) if ends else None
    lasts = _LENGTH.fullmatch(text, text.rfind("+ ", slides.end())) if slides else None
    if ends is None or slides is None or lasts is None:
        return ""
    length, slide, offset = int(lasts["length"]), int(slides["slide"]), int(slides["offset"])
    parts = [text[len(_WINDOW) : ends.start()], human(length)]
    parts += [human(slide)] if slide != length or offset else []
    parts += [human(offset)] if offset else []
    return f"window({', '.join(parts)})"


def _session_window(text: str) -> str:
    """Return the session window that an expression represents, "" if it is not one."""
    if not text.startswith(_SESSION):
        return ""
    ends = _COLUMN_ENDS.search(text, len(_SESSION) + 1)
    last = max((match.start() for match in _GAP_ENDS.finditer(text)), default=0)
    plus = text.rfind(" + ", ends.end(), last) if ends else -1
    if ends is None or plus < 0:
        return ""
    begins = plus + len(" + ")
    gap_ends = _GAP_ENDS.search(text, begins)
    assert gap_ends, "the last one is behind the plus"
    gap = text[begins : gap_ends.start()].removeprefix("cast(")
    return f"session_window({text[len(_SESSION) : ends.start()]}, {gap})"


def _left(text: str) -> str:
    expression, _, column = text.rpartition(" AS ")
    return expression if _NAMED.fullmatch(column) and expression else text


# --- parentheses ----------------------------------------------------------------------


def _is_wrapped(text: str) -> bool:
    """Return whether the first parenthesis closes at the very end."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return index == len(text) - 1
    return False


def _split(text: str, separator: str) -> list[str]:
    """Split at separators outside parentheses."""
    parts, depth, begin = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and text.startswith(separator, index):
            parts.append(text[begin:index])
            begin = index + len(separator)
    return [*parts, text[begin:]]
