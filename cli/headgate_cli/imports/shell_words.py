"""Split shell text into commands and words without running anything.

Covers what POSIX shells and systemd's `ExecStart` share: quotes, continuations, comments, variables
and, in shells, operators, redirections and here-documents. A variable becomes `${values.NAME}`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate_cli.imports.rules import RULES
from headgate_cli.output import refused

#: What parentheses contain: further ones to a depth of two.
_INSIDE = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
_SUBSTITUTION = rf"[$<>]\({_INSIDE}\)|`[^`]*`"
_BRACED = r"\$\{(?:[^}$]|\$(?!\{)|\$\{[^}]*\})*\}"
_VARIABLE = rf"{_BRACED}|\$\w+|\$[@*\#?$!-]"
_DOUBLE = rf'"(?:\\.|{_SUBSTITUTION}|{_BRACED}|[^"\\])*"'
_QUOTED = rf"""\\\r?\n|\\.|\$'(?:\\.|[^'\\])*'|'[^']*'|{_DOUBLE}|{_SUBSTITUTION}|{_VARIABLE}"""


def _tokens(word: str, others: str = r"(?!)") -> re.Pattern[str]:
    return re.compile(
        rf"(?P<newline>\r?\n)|(?P<space>[ \t\r]+)|{others}|(?P<word>(?:{word})+)", re.DOTALL
    )


_WORD = rf"{_QUOTED}|[^\s\\'\"`$;&|()<>]|\$(?!')"
_SHELL = _tokens(
    _WORD,
    rf"(?P<comment>\#[^\n]*)"
    rf"|(?P<redirection>\d*(?:<<<|<<-?|>>|>&|<&|&>>|&>|[<>](?!\())[ \t]*(?P<target>(?:{_WORD})*))"
    r"|(?P<operator>&&|\|\||;;|[;&|()])",
)
_UNIT = _tokens(rf"{_QUOTED}|[^\s\\'\"$]|\$(?!')")
#: The parts of a word, and those of what double quotes contain.
_PARTS = re.compile(
    rf"(?P<none>\\\r?\n)|\\(?P<escape>.)|\$'(?P<ansi>(?:\\.|[^'\\])*)'|'(?P<single>[^']*)'"
    rf"|(?P<double>{_DOUBLE})|(?P<substitution>{_SUBSTITUTION})|(?P<variable>{_VARIABLE})|(?P<plain>.)",
    re.DOTALL,
)
_IN_QUOTES = re.compile(
    rf"(?P<none>\\\r?\n)|\\(?P<escape>[\"\\$`])|(?P<substitution>{_SUBSTITUTION.replace('<>', '')})"
    rf"|(?P<variable>{_VARIABLE})|(?P<plain>.)",
    re.DOTALL,
)
_NAMED = re.compile(r"\$\{?(\w+)(?::?[-=](.*))?\}?", re.DOTALL)
_ANSI = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(slots=True)
class Word:
    """One word of a command."""

    source: str = ""  # as written
    text: str = ""  # with quotes removed and variables replaced by `${values.NAME}`
    defaults: dict[str, str] = field(default_factory=dict)  # of its variables: `${NAME:-default}`
    scripts: list[str] = field(default_factory=list)  # in `$(…)`


@dataclass(slots=True)
class Command:
    """A command between two separators."""

    line: int  # of its first word
    words: list[Word] = field(default_factory=list)
    extras: list[str] = field(default_factory=list)  # redirections, here-documents, operators
    scripts: list[tuple[int, str]] = field(default_factory=list)  # here-documents, with their lines


def commands(text: str, *, operators: bool = True, line: int = 1) -> Iterator[Command]:
    """Yield the commands of a script; without `operators`, `;`, `|`, `>` … are ordinary characters.

    `line` is the number of the first line. Raises `CommandEnded` for a quote that is not closed.
    """
    tokens = _SHELL if operators else _UNIT
    command, position, first = Command(line), 0, line
    pending: list[str] = []  # the delimiters of here-documents
    while position < len(text):
        line = first + text.count("\n", 0, position)
        token = tokens.match(text, position)
        if token is None:
            raise refused(
                f"Line {line}: the quote {text[position]} is not closed.", "Close the quote."
            )
        position, source = token.end(), token[0]
        match token.lastgroup:
            case "word":
                word = _word(source)
                if word.source:
                    command.line = command.line if command.words else line
                    command.words.append(word)
            case "redirection":
                command.extras.append(source)
                if source.lstrip("0123456789").startswith("<<") and "<<<" not in source:
                    pending.append(_word(token["target"]).text)
            case "operator" | "newline":
                if token.lastgroup == "operator":
                    command.extras.append(source)
                else:
                    for delimiter in pending:
                        start = position
                        end = re.compile(rf"^\t*{re.escape(delimiter)}\r?$", re.M).search(
                            text, position
                        )
                        position = end.end() if end else len(text)
                        command.extras.append(text[start:position])
                        body = text[start : end.start() if end else position]
                        command.scripts.append((first + text.count("\n", 0, start), body))
                    pending = []
                if command.words or command.extras:
                    yield command
                command = Command(first + text.count("\n", 0, position))
    if command.words or command.extras:
        yield command


def _word(source: str) -> Word:
    word = Word(re.sub(r"^(\\\r?\n)+|(\\\r?\n)+$", "", source))
    word.text = _text(word, source, _PARTS)
    return word


def _text(word: Word, source: str, parts: re.Pattern[str]) -> str:
    text = ""
    for part in parts.finditer(source):
        kind, value = str(part.lastgroup), part[str(part.lastgroup)]
        match kind:
            case "none":
                value = ""
            case "ansi":
                value = re.sub(r"\\(.)", lambda escape: _ANSI.get(escape[1], escape[1]), value)
            case "double":
                value = _text(word, value[1:-1], _IN_QUOTES)
            case "substitution":
                word.scripts.append(value.strip("`") if value[0] == "`" else value[2:-1])
                value = f"${{values.{_parameter(value)}}}"
            case "variable":
                named = _NAMED.fullmatch(value)
                name = _parameter(value)
                if named:
                    name = f"ARGUMENT_{named[1]}" if re.match("[0-9]", named[1]) else named[1]
                if named and named[2]:
                    word.defaults[name] = _text(word, named[2].removesuffix("}"), _PARTS)
                value = f"${{values.{name}}}"
        text += value
    return text


def _parameter(source: str) -> str:
    """Return a name for what only a shell can compute: `$(date +%F)` as DATE_F."""
    name = re.sub(r"\W+", "_", RULES.masked(source)).strip("_").upper()[:60]
    return name if re.match(r"\D", name) else f"ARGUMENT_{name or 'ALL'}"
