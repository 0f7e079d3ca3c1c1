"""Output: tables and documents to stdout, notes and progress to stderr."""

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
#: Column title -> its cell.
Columns = Mapping[str, Callable[[Row], Any]]


class Form(StrEnum):
    """Output format."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class ListForm(StrEnum):
    """How a list is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def clean(text: str) -> str:
    """Return text from the server without terminal escapes and control characters.

    Newlines and tabs are kept.
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
    """Return a value as one short line: a string unchanged, anything else as JSON; null as –."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return clean(" ".join(value.split()))
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return clean(json.dumps(value, ensure_ascii=False, sort_keys=True))


def in_cell(value: Any) -> str:
    """Return a value as a table cell: names separated by spaces, an empty list as –."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(map(plain, value)) or "–"
    return plain(value)


def say(text: str) -> None:
    """Print a result."""
    sys.stdout.write(clean(text) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print notes and errors, which are not results."""
    sys.stderr.write(clean(text) + "\n")
    sys.stderr.flush()


def coloured(stream: TextIO) -> bool:
    """Return whether to print colours to a stream (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def paint(text: str, colour: str) -> str:
    """Return a cleaned text for stdout, coloured if it is a terminal."""
    text = clean(text)
    return typer.style(text, fg=colour) if colour and coloured(sys.stdout) else text


def write(painted: str) -> None:
    """Print a line made by `paint`."""
    sys.stdout.write(painted + "\n")
    sys.stdout.flush()


def yaml_text(value: Any) -> str:
    """Return a document as YAML."""
    from ruamel.yaml import YAML  # commands that do not print YAML need not wait for it

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.allow_unicode, yaml.width = True, 100
    target = StringIO()
    yaml.dump(value, target)
    return target.getvalue()


def show_document(value: Any, form: Form) -> None:
    """Print a document for scripts: JSON or YAML."""
    if form is Form.YAML:
        say(yaml_text(value).rstrip("\n"))
    else:
        say(json.dumps(value, indent=2, ensure_ascii=False))


def show_rows(
    rows: Sequence[Row], columns: Columns, form: Form, name: Callable[[Row], str], one: bool = False
) -> None:
    """Print rows in the requested form; with `one`, a single row is not printed as a list."""
    if form is Form.NAME:
        for row in rows:
            say(name(row))
    elif form is Form.TABLE:
        show_table(rows, columns)
    else:
        show_document(rows[0] if one and rows else list(rows), form)


def show_table(rows: Iterable[Row], columns: Columns, indent: str = "") -> None:
    """Print aligned columns below their titles."""
    show_lines([list(columns), *(cells_of(row, columns) for row in rows)], indent=indent)


def cells_of(row: Row, columns: Columns) -> list[str]:
    """Return a row's cells as a table shows them."""
    return [in_cell(cell(row)) for cell in columns.values()]


def show_lines(
    lines: Sequence[Sequence[str]], least: Sequence[int] = (), indent: str = ""
) -> list[int]:
    """Print lines of cells in columns at least `least` wide; return the widths."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths = [max(pair) for pair in zip(widths, least or widths, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        say((indent + "  ".join(cells)).rstrip())
    return widths


def nothing(what: str, *, narrowed: bool) -> str:
    """Return the message for an empty list of `what`."""
    return f"No {what} match." if narrowed else f"There are no {what}."
