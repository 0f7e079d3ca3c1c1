"""What is printed: tables and documents to stdout, notes and progress to stderr."""

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from io import StringIO
from typing import Any, TextIO

import typer

Row = Mapping[str, Any]
#: Title of a column -> its cell.
Columns = Mapping[str, Callable[[Row], Any]]


class Form(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def clean(text: str) -> str:
    """Return a text of the server without what a terminal would obey: escapes, control characters.

    Lines and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Co", "Cs")
        else "�"
        for char in text
    )


def plain(value: Any) -> str:
    """Return a value as one short line: a text as it is, anything else as JSON; null as –."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return clean(" ".join(value.split()))
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return clean(json.dumps(value, ensure_ascii=False, sort_keys=True))


def in_cell(value: Any) -> str:
    """Return a value as a cell of a table: names stand side by side, none as –."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(map(plain, value)) or "–"
    return plain(value)


def say(text: str) -> None:
    """Print a result."""
    sys.stdout.write(clean(text) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print what is no result: notes, errors."""
    sys.stderr.write(clean(text) + "\n")
    sys.stderr.flush()


def coloured(stream: TextIO) -> bool:
    """Tell whether colours are wanted there (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def paint(text: str, colour: str) -> str:
    """Return a cleaned text for stdout, in a colour where it is a terminal."""
    text = clean(text)
    return typer.style(text, fg=colour) if colour and coloured(sys.stdout) else text


def write(painted: str) -> None:
    """Print a line that `paint` has made."""
    sys.stdout.write(painted + "\n")
    sys.stdout.flush()


def yaml_text(value: Any) -> str:
    """Return a document as YAML."""
    from ruamel.yaml import YAML  # what prints no YAML need not wait for it

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.allow_unicode, yaml.width = True, 100
    target = StringIO()
    yaml.dump(value, target)
    return target.getvalue()


def show_document(value: Any, form: Form) -> None:
    """Print what a script reads: JSON or YAML."""
    if form is Form.YAML:
        say(yaml_text(value).rstrip("\n"))
    else:
        say(json.dumps(value, indent=2, ensure_ascii=False))


def show_rows(
    rows: Sequence[Row], columns: Columns, form: Form, name: Callable[[Row], str], one: bool = False
) -> None:
    """Print rows in the form that is asked for; with `one`, the single row is no list."""
    if form is Form.NAME:
        for row in rows:
            say(name(row))
    elif form is Form.TABLE:
        show_table(rows, columns)
    else:
        show_document(rows[0] if one and rows else list(rows), form)


def show_table(rows: Iterable[Row], columns: Columns, indent: str = "") -> None:
    """Print aligned columns below their titles."""
    lines = [list(columns), *([in_cell(cell(row)) for cell in columns.values()] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        say((indent + "  ".join(cells)).rstrip())
