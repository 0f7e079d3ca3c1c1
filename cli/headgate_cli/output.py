"""Output to stdout, notes to stderr, and how a command ends: its exit code and message."""

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from io import StringIO
from typing import Any, ClassVar, TextIO

import typer

from headgate_cli.json_path import PathError, Template, read_template

Row = Mapping[str, Any]
#: Column title -> its cell.
Columns = Mapping[str, Callable[[Row], Any]]


@dataclass(frozen=True, slots=True)
class OutputForm:
    """Output format: one word, or a template for the fields of a document."""

    word: str
    template: Template | None = None

    TABLE: ClassVar["OutputForm"]
    WIDE: ClassVar["OutputForm"]
    JSON: ClassVar["OutputForm"]
    YAML: ClassVar["OutputForm"]
    NAME: ClassVar["OutputForm"]

    def __str__(self) -> str:
        return self.word

    @property
    def is_document(self) -> bool:
        """Return whether the format prints documents as a server returns them."""
        return self in (OutputForm.JSON, OutputForm.YAML) or self.template is not None


OutputForm.TABLE, OutputForm.WIDE, OutputForm.NAME = (
    OutputForm("table"),
    OutputForm("wide"),
    OutputForm("name"),
)
OutputForm.JSON, OutputForm.YAML = OutputForm("json"), OutputForm("yaml")
_FORMS = {
    form.word: form
    for form in (
        OutputForm.TABLE,
        OutputForm.WIDE,
        OutputForm.JSON,
        OutputForm.YAML,
        OutputForm.NAME,
    )
}
_JSONPATH = "jsonpath"


def form_named(text: str | OutputForm) -> OutputForm:
    """Return the format for a name or `jsonpath=TEMPLATE`; raise the library's usage error.

    `wide` is a table with extra columns, if there are any.
    """
    if isinstance(text, OutputForm):  # an option's default
        return text
    word, equals, template = text.partition("=")
    if word == _JSONPATH:
        try:
            return OutputForm(text, read_template(template))
        except PathError as error:
            raise typer.BadParameter(str(error)) from None
    if equals or word not in _FORMS:
        names = ", ".join(_FORMS)
        raise typer.BadParameter(f"{text!r} is not one of {names} or {_JSONPATH}=TEMPLATE.")
    return _FORMS[word]


def forms_named(incomplete: str) -> list[str]:
    """Return the formats that complete a word in a shell."""
    return [word for word in (*_FORMS, f"{_JSONPATH}=") if word.startswith(incomplete)]


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
    """Return a value as a table cell: names and counts separated by commas, none as –.

    A fraction has one digit after the point; the other formats show all that the server answers.
    """
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, dict) and all(type(element) is int for element in value.values()):
        return ", ".join(f"{clean(str(name))} {element}" for name, element in value.items()) or "–"
    if isinstance(value, list) and all(isinstance(element, str) for element in value):
        return ", ".join(map(plain, value)) or "–"
    return plain(value)


#: Names of the streams that nobody reads any more, as after `| head -1`.
_CLOSED = set[str]()


def is_closed() -> bool:
    """Return whether nobody reads the results any longer: commands that only print can end."""
    return "stdout" in _CLOSED


def _put(name: str, text: str) -> None:
    """Write a line to stdout or stderr; drop it if nobody reads it.

    What a command does, and its exit code, do not depend on whether anybody reads its output.
    Raises OSError for any other reason.
    """
    stream: TextIO | None = getattr(sys, name)
    if stream is None:  # closed by the shell
        return
    try:
        stream.write(text + "\n")
        stream.flush()
    except OSError as error:
        _CLOSED.add(name)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # for what is still buffered, which Python writes at exit
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):  # a full disk, for example
            raise


def print_result(text: str) -> None:
    """Print a result."""
    _put("stdout", clean(text))


def note(text: str) -> None:
    """Print notes and errors, which are not results."""
    _put("stderr", clean(text))


def coloured(stream: TextIO | None) -> bool:
    """Return whether to print colours to a stream (https://no-color.org)."""
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")


def paint(text: str, colour: str) -> str:
    """Return a cleaned text for stdout, coloured if it is a terminal."""
    text = clean(text)
    return typer.style(text, fg=colour) if colour and coloured(sys.stdout) else text


def write(painted: str) -> None:
    """Print a line made by `paint`."""
    _put("stdout", painted)


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


def show_document(value: Any, form: OutputForm) -> None:
    """Print a document for scripts: JSON, YAML, or the output of a template."""
    if form.template is not None:
        print_result(form.template.of(value).removesuffix("\n"))
        for path in form.template.missing(value):
            note(f"Note: nothing is at {path}; `-o json` shows the fields.")
    elif form is OutputForm.YAML:
        print_result(yaml_text(value).rstrip("\n"))
    else:
        print_result(json.dumps(value, indent=2, ensure_ascii=False))


def show_rows(
    rows: Sequence[Row],
    columns: Columns,
    form: OutputForm,
    name: Callable[[Row], str],
    single: bool = False,
) -> None:
    """Print rows in the requested form; with `single`, a single row is not printed as a list."""
    if form is OutputForm.NAME:
        for row in rows:
            print_result(name(row))
    elif form in (OutputForm.TABLE, OutputForm.WIDE):
        show_table(rows, columns)
    else:
        show_document(rows[0] if single and rows else list(rows), form)


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
        print_result((indent + "  ".join(cells)).rstrip())
    return widths


def nothing(what: str, *, narrowed: bool) -> str:
    """Return the message for an empty list of `what`."""
    return f"No {what} match." if narrowed else f"There are no {what}."


class ExitCode(IntEnum):
    """The exit codes, as documented in docs/cli.md."""

    DONE = 0
    REFUSED = 1  # nothing was started
    FAILED = 2  # what was started has failed
    TIMED_OUT = 3  # a wait's limit has expired; what was started continues
    DIFFERENT = 4  # diff: something would change
    NO_ANSWER = 5  # the server could not be reached, or could not answer
    USAGE = 64  # the command line is wrong (EX_USAGE of sysexits.h)
    INTERRUPTED = 130  # by Ctrl-C, as in shells


class CommandEnded(Exception):
    """The end of a command, with its message."""

    def __init__(
        self,
        code: ExitCode,
        message: str,
        way_out: str = "",
        problems: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.way_out = code, message, way_out
        self.problems = list(problems)


def refused(message: str, way_out: str = "") -> CommandEnded:
    """Return the end of a command that did not start anything."""
    return CommandEnded(ExitCode.REFUSED, message, way_out)


def print_end(ended: CommandEnded) -> None:
    """Print why a command ends, with each problem's field, value and remedy."""
    note(f"Error: {ended.message}")
    for line in problem_lines(ended.problems):
        note(line)
    if ended.way_out:
        note(f"What to do: {ended.way_out}")


def problem_lines(problems: Iterable[Mapping[str, Any]], indent: str = "") -> list[str]:
    """Return problems as lines: field, value, message, and the remedy below."""
    lines = []
    for problem in problems:
        value = problem.get("value")
        value_text = f" = {plain(value)}" if value not in (None, "") else ""
        problem_line = f"{problem.get('field', '')}{value_text}: {problem.get('message', '')}"
        lines.append(f"{indent}- {clean(problem_line)}")
        if problem.get("way_out"):
            lines.append(f"{indent}  What to do: {clean(str(problem['way_out']))}")
    return lines


def worst(codes: Iterable[int]) -> int:
    """Return the code for several actions: the lowest that is not 0, or 0 if all succeeded."""
    return min((int(code) for code in codes if code), default=int(ExitCode.DONE))
