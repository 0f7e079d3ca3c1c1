"""Differences between two forms of a definition, as readable lines."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from queries.domain.counts import counted

#: The display order of a definition's fields, regardless of their order in the JSON.
_ORDER = (
    "kind sources tables sql function params sink trigger spark master memory scheduler_mode "
    "failure_scope python_path connectors listeners env pool conf name format schema options"
)
_PLACES = {key: place for place, key in enumerate(_ORDER.split())}
#: Unchanged lines shown around a change.
CONTEXT_LINES = 3


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a diff: its kind, and its line number on each side."""

    kind: str  # "same" | "added" | "removed" | "skipped"
    before: int | None
    after: int | None
    text: str


class _Readable(yaml.SafeDumper):
    """YAML with block style for text, so that SQL is shown as written."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Readable.add_representer(str, _text)


def readable(spec: Mapping[str, Any]) -> str:
    """Return a definition as YAML, in display order, without empty fields."""
    return yaml.dump(_tidy(spec), Dumper=_Readable, sort_keys=False, allow_unicode=True, width=100)


def _tidy(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: _tidy(value[key]) for key in sorted(value, key=_place)}
        return {key: held for key, held in kept.items() if held not in ("", None, [], {})}
    if isinstance(value, list | tuple):
        return [_tidy(held) for held in value]
    if isinstance(value, str):  # YAML's block style cannot represent spaces at the end of a line
        return "\n".join(line.rstrip().expandtabs(4) for line in value.strip().splitlines())
    return value


def _place(key: str) -> int:
    return _PLACES.get(key, len(_PLACES))


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[DiffLine]:
    """Return the lines that differ, with some context; empty if there are none."""
    old = readable(before).splitlines() if before else []
    new = readable(after).splitlines()
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    lines: list[DiffLine] = []
    end = 0
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        start = group[0][1]
        if start > end:
            lines.append(_skipped(start - end))
        end = group[-1][2]
        for tag, i1, i2, j1, j2 in group:
            lines += _block(tag, old[i1:i2], new[j1:j2], i1 + 1, j1 + 1)
    if lines and end < len(old):
        lines.append(_skipped(len(old) - end))
    return lines


def _skipped(count: int) -> DiffLine:
    return DiffLine("skipped", None, None, counted(count, "unchanged line"))


def _block(tag: str, old: list[str], new: list[str], i: int, j: int) -> list[DiffLine]:
    if tag == "equal":
        return [DiffLine("same", i + k, j + k, line) for k, line in enumerate(old)]
    removed = [DiffLine("removed", i + k, None, line) for k, line in enumerate(old)]
    added = [DiffLine("added", None, j + k, line) for k, line in enumerate(new)]
    return removed + added
