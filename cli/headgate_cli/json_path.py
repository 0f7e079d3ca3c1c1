r"""The part of kubectl's JSONPath for `-o jsonpath=TEMPLATE` and `--sort-by PATH`.

A template is text with expressions in braces: a path, `{range PATH}…{end}`, or a quoted string such
as `{"\n"}`. A path consists of `.name` (`\.` for a dot in a name), `['name']`, `[0]`, `[-1]`,
`[0:2]`, `[*]`, `.*` and `[?(@.name=="value")]`, which compares with ==, !=, <, <=, > or >=, or
without a comparison tests whether the field exists. `.items` of a list is the list, as in kubectl.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

#: Returns what a step finds below a value.
Step = Callable[[Any], list[Any]]

_NAME = re.compile(r"\.?((?:[^\s.,{}\[\]\\=!<>]|\\.)+)")
_BRACKET = re.compile(
    r"\[\s*(?:(?P<at>-?\d+)|(?P<low>-?\d*):(?P<high>-?\d*)|(?P<every>\*)"
    r"|'(?P<name>[^']*)'|\"(?P<text>[^\"]*)\"|\?\((?P<filter>.+?)\))\s*\]"
)
_COMPARISON = re.compile(r"(?P<path>@[^=!<>]*?)\s*(?P<sign>==|!=|<=|>=|<|>)\s*(?P<value>.+)")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
#: An expression in braces; braces in quotes do not end it.
_EXPRESSION = re.compile(r"""\{((?:[^{}"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)\}""")


class PathError(ValueError):
    """A path or template that cannot be read."""


@dataclass(frozen=True, slots=True)
class Path:
    """A path to values in a document."""

    text: str
    steps: tuple[Step, ...]

    def of(self, value: Any) -> list[Any]:
        """Return the values that the path leads to, none if a field is missing."""
        values = [value]
        for step in self.steps:
            values = [below for parent in values for below in step(parent)]
        return values


@dataclass(frozen=True, slots=True)
class RangePart:
    """What is printed for each value of a path."""

    path: Path
    parts: "tuple[Part, ...]"


Part = str | Path | RangePart


@dataclass(frozen=True, slots=True)
class Template:
    """Text with paths, and the paths that found nothing when it was last printed."""

    parts: tuple[Part, ...]

    def of(self, value: Any) -> str:
        """Render the template for a document; values of one path are separated by spaces."""
        return "".join(_texts(self.parts, value))

    def missing(self, value: Any) -> list[str]:
        """Return the outermost paths that lead to nothing in a document."""
        paths = [part.path if isinstance(part, RangePart) else part for part in self.parts]
        return [path.text for path in paths if isinstance(path, Path) and not path.of(value)]


def read_path(text: str) -> Path:
    """Parse a path, with or without braces; raise `PathError`."""
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    rest, steps = text.removeprefix("$").removeprefix("@"), list[Step]()
    while rest and rest != ".":
        if rest.startswith(".["):
            rest = rest[1:]
        if match := _BRACKET.match(rest):
            steps.append(_bracket(match))
        elif match := _NAME.match(rest):
            name = re.sub(r"\\(.)", r"\1", match[1])
            steps.append(_every if name == "*" else _field(name))
        else:
            raise PathError(f"{text!r} cannot be read from {rest[:20]!r}: write .name, [0] or [*].")
        rest = rest[match.end() :]
    return Path(text, tuple(steps))


def read_template(text: str) -> Template:
    """Parse a template; without braces, it is a path. Raise `PathError`."""
    if "{" not in text:
        return Template((read_path(text),))
    open_, ranges = [list[Part]()], list[Path]()
    at = 0
    for match in _EXPRESSION.finditer(text):
        open_[-1] += _plain(text[at : match.start()])
        at, expression = match.end(), match[1].strip()
        if expression == "end":
            if not ranges:
                raise PathError("{end} has no {range}.")
            parts = tuple(open_.pop())
            open_[-1].append(RangePart(ranges.pop(), parts))
        elif expression.startswith("range "):
            ranges.append(read_path(expression.removeprefix("range ")))
            open_.append([])
        elif expression[:1] in ("'", '"'):
            open_[-1].append(str(_literal(expression)))
        else:
            open_[-1].append(read_path(expression))
    open_[-1] += _plain(text[at:])
    if ranges:
        raise PathError("{range} has no {end}.")
    return Template(tuple(open_[-1]))


def order(wanted: Path) -> Callable[[Any], tuple[int, Any]]:
    """Return the key that sorts documents by a path: numbers, strings, others, missing ones."""

    def key(document: Any) -> tuple[int, Any]:
        first = next(iter(wanted.of(document)), None)
        if first is None:
            return 3, ""
        if isinstance(first, bool | int | float):
            return 0, first
        return (1, first) if isinstance(first, str) else (2, _text(first))

    return key


def _texts(parts: tuple[Part, ...], value: Any) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Path):
            yield " ".join(map(_text, part.of(value)))
        else:
            for element in part.path.of(value):
                yield from _texts(part.parts, element)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(text: str) -> list[Part]:
    if "{" in text or "}" in text:
        raise PathError(f"{text.strip()!r} has an unmatched brace.")
    return [text] if text else []


def _literal(text: str) -> Any:
    """Return a quoted string, a number, true, false or null; raise `PathError`."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == "'":
        text = json.dumps(text[1:-1]).replace("\\\\", "\\")
    try:
        return json.loads(text)
    except ValueError:
        raise PathError(f"{text} is neither a quoted string nor a number.") from None


def _bracket(match: re.Match[str]) -> Step:
    if match["every"]:
        return _every
    if match["filter"] is not None:
        return _filter(match["filter"])
    if match["at"] is not None:
        at = int(match["at"])
        return lambda value: _slice(value, at, at + 1 if at != -1 else None)
    if match["low"] is not None:
        low, high = (int(match[end]) if match[end] else None for end in ("low", "high"))
        return lambda value: _slice(value, low, high)
    return _field(match["name"] if match["name"] is not None else match["text"])


def _slice(value: Any, low: int | None, high: int | None) -> list[Any]:
    return value[low:high] if isinstance(value, list) else []


def _every(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _field(name: str) -> Step:
    def step(value: Any) -> list[Any]:
        if isinstance(value, list) and name == "items":
            return [value]
        return [value[name]] if isinstance(value, dict) and name in value else []

    return step


def _filter(text: str) -> Step:
    compared = _COMPARISON.fullmatch(text.strip())
    if compared is None:
        path = read_path(text)
        return lambda value: [element for element in _every(value) if path.of(element)]
    path, wanted = read_path(compared["path"]), _literal(compared["value"])
    compare = _COMPARE[compared["sign"]]

    def holds(element: Any) -> bool:
        try:
            return any(compare(compared_value, wanted) for compared_value in path.of(element))
        except TypeError:  # a text and a number have no order
            return False

    return lambda value: [element for element in _every(value) if holds(element)]
