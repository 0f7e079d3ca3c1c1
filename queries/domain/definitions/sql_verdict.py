"""What Spark's own parser says of a SQL text, and the problem that a refusal is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from queries.domain.errors import Problem

#: "[PARSE_SYNTAX_ERROR] Syntax error at or near 'b': extra input 'b'. SQLSTATE: 42601 (line 1, …"
_SAID = re.compile(r"\[[A-Z_.0-9]{1,100}\]\s?([^\n]{1,400}?)(?:\s?SQLSTATE|\n|$)")
#: Configuration that gives Spark another grammar than the parser alone has.
_OWN_GRAMMAR = re.compile(
    r"spark\.sql\.(extensions|parser\..*|ansi\.(enforceReservedKeywords|doubleQuotedIdentifiers))"
)


@dataclass(frozen=True, slots=True)
class SqlVerdict:
    """What the parser says; `line` and `column` count from 1, None where it names no place."""

    ok: bool
    message: str = ""  # Spark's, whole
    line: int | None = None
    column: int | None = None


def has_own_grammar(conf: Mapping[str, object]) -> bool:
    """Tell whether Spark would read a text by other rules than its parser has by default."""
    return any(_OWN_GRAMMAR.fullmatch(key) for key in conf)


def refused(text: str, verdict: SqlVerdict) -> Problem:
    """Return a refusal as a problem that shows the line, with a caret under the place."""
    found = _SAID.search(verdict.message)
    said = found[1].strip() if found else " ".join(verdict.message.split())[:400]
    if verdict.line is None or verdict.column is None:
        return Problem("sql", text[:200], f"is no Spark SQL: {said}", "Correct the text.")
    lines = text.splitlines() or [""]
    line = lines[min(verdict.line, len(lines)) - 1].replace("\t", " ")
    place = f"line {verdict.line}, column {verdict.column}"
    begin = max(0, verdict.column - 80)  # of a very long line, what stands before the place
    shown, caret = line[begin : begin + 120], " " * (verdict.column - 1 - begin) + "^"
    return Problem("sql", text[:200], f"is no Spark SQL: {said} ({place})", f"\n{shown}\n{caret}")
