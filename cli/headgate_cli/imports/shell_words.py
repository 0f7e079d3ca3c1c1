"""Split shell text into commands and words without running anything.

Covers what POSIX shells and systemd's `ExecStart` share: quotes, continuations, comments, variables
and, in shells, operators, redirections and here-documents. A variable becomes `${values.NAME}`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate_cli.output import refused

#: What parentheses contain: further ones to a depth of two.
_INSIDE = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
_SUBSTITUTION = rf"\$\({_INSIDE}\)|`[^`]*`"
_DOUBLE = rf'"(?:\\.|{_SUBSTITUTION}|\$\{{[^}}]*\}}|[^"\\])*"'
_TOKEN = re.compile(
    rf"""(?P<continuation>\\\r?\n)
    |(?P<comment>(?<![^\s;&|()])\#[^\n]*)
    |(?P<newline>\r?\n)
    |(?P<space>[ \t\r]+)
    |(?P<process>[<>]\({_INSIDE}\))
    |(?P<redirection>\d*(?:<<<|<<-?|>>|>&|<&|&>>|&>|[<>]))
    |(?P<operator>&&|\|\||;;|[;&|()])
    |(?P<escape>\\.)
    |(?P<ansi>\$'(?:\\.|[^'\\])*')
    |(?P<single>'[^']*')
    |(?P<double>{_DOUBLE})
    |(?P<substitution>{_SUBSTITUTION})
    |(?P<variable>\$\{{[^}}]*\}}|\$\w+|\$[@*\#?$!-])
    |(?P<plain>[^\s\\'"`$;&|()<>]+|[$])""",
    re.VERBOSE,
)
_IN_QUOTES = re.compile(
    rf"(?P<escape>\\[\"\\$`]|\\\n)|(?P<substitution>{_SUBSTITUTION})"
    r"|(?P<variable>\$\{[^}]*\}|\$\w+|\$[@*#?$!-])|(?P<plain>[^\\$`]+|.)",
    re.DOTALL,
)
_VARIABLE = re.compile(r"\$\{?(\w+)(?::?[-=](.*))?\}?")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


@dataclass(slots=True)
class Word:
    """One word of a command."""

    source: str = ""  # as written
    text: str = ""  # with quotes removed and variables replaced by `${values.NAME}`
    defaults: dict[str, str] = field(default_factory=dict)  # of its variables: `${NAME:-default}`


@dataclass(slots=True)
class Command:
    """A command between two separators."""

    line: int  # of its first word
    words: list[Word] = field(default_factory=list)
    extras: list[str] = field(default_factory=list)  # redirections, here-documents, operators


def commands(text: str, *, operators: bool = True) -> Iterator[Command]:
    """Yield the commands of a script; without `operators`, `;`, `|`, `>` … are ordinary characters.

    Raises `CommandEnded` for a quote that is not closed.
    """
    command, word, position, line = Command(1), None, 0, 1
    pending: list[str] = []  # the delimiters of here-documents
    redirects = False
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise refused(
                f"Line {line}: the quote {text[position]} is not closed.", "Close the quote."
            )
        kind, source = str(token.lastgroup), token[0]
        if not operators and kind in ("operator", "redirection", "comment", "process"):
            kind = "plain"
        if kind == "continuation" and operators:  # it does not end a word, except in a unit
            position, line = token.end(), line + 1
            continue
        if kind in ("continuation", "comment", "newline", "space", "operator", "redirection"):
            if word is not None:
                if redirects:
                    command.extras[-1] += f" {word.source}".rstrip()
                    if command.extras[-1].startswith("<<") and command.extras[-1][2:3] != "<":
                        pending.append(word.text)
                else:
                    command.words.append(word)
                redirects, word = False, None
            elif kind in ("newline", "operator"):
                redirects = False
            if kind == "redirection":
                command.extras.append(source)
                redirects = True
            elif kind in ("newline", "operator"):
                if kind == "operator":
                    command.extras.append(source)
                position = token.end()
                if kind == "newline":
                    for delimiter in pending:
                        end = re.compile(rf"^\t*{re.escape(delimiter)}$", re.M).search(
                            text, position
                        )
                        stop = end.end() if end else len(text)
                        command.extras.append(text[position:stop])
                        position = stop
                    pending = []
                if command.words or command.extras:
                    yield command
                line = text.count("\n", 0, position) + 1
                command = Command(line)
                continue
        else:
            if word is None:
                word = Word()
                if not command.words:
                    command.line = line
            word.source += source
            word.text += _value(kind, source, word.defaults)
        position = token.end()
        line = text.count("\n", 0, position) + 1
    if word is not None:
        if redirects:
            command.extras[-1] += f" {word.source}"
        else:
            command.words.append(word)
    if command.words or command.extras:
        yield command


def _value(kind: str, source: str, defaults: dict[str, str]) -> str:
    match kind:
        case "escape":
            return "" if source == "\\\n" else source[1:]
        case "single":
            return source[1:-1]
        case "ansi":
            return re.sub(r"\\(.)", lambda escape: _ANSI.get(escape[1], escape[0]), source[2:-1])
        case "double":
            parts = _IN_QUOTES.finditer(source[1:-1])
            return "".join(_value(str(part.lastgroup), part[0], defaults) for part in parts)
        case "substitution" | "process":
            return _reference(_parameter(source))
        case "variable":
            named = _VARIABLE.fullmatch(source)
            if named is None or re.match(r"\d", named[1]):
                return _reference(_parameter(source))
            if named[2]:
                defaults[named[1]] = named[2].removesuffix("}")
            return _reference(named[1])
        case _:
            return source


def _reference(name: str) -> str:
    return f"${{values.{name}}}"


def _parameter(source: str) -> str:
    """Return a name for what only a shell can compute: `$(date +%F)` as DATE_F."""
    name = re.sub(r"\W+", "_", source).strip("_").upper()[:60]
    return name if re.match(r"\D", name) else f"ARGUMENT_{name or 'ALL'}"
