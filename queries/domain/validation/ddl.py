"""Parse a DDL schema ("id BIGINT, name STRING") far enough to find typos.

Spark has the final say; only what cannot be right is rejected here.
"""

import re

_TYPES = frozenset(
    {"string", "char", "varchar", "boolean", "byte", "tinyint", "short", "smallint", "int"}
    | {"integer", "long", "bigint", "float", "real", "double", "decimal", "dec", "numeric"}
    | {"date", "timestamp", "timestamp_ntz", "timestamp_ltz", "time", "binary", "array", "map"}
    | {"struct", "interval", "variant", "void", "null", "geometry", "geography"}
)
_COLUMN = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s:`,<>()]+)(?:\s*:\s*|\s+)([A-Za-z_]+)(.*)", re.DOTALL)


class NotASchema(ValueError):
    """The text is not a DDL schema; the message is a sentence without the field."""


def columns(ddl: str) -> dict[str, str]:
    """Return each column's name -> type in lower case; raise `NotASchema` with the reason."""
    types: dict[str, str] = {}
    for part in _split(ddl):
        column = _COLUMN.fullmatch(part)
        if not column:
            raise NotASchema(f"does not give a name and a type in {part.strip()!r}.")
        name, kind = column[1].strip("`"), column[2].lower()
        if kind not in _TYPES:
            raise NotASchema(
                f"gives column {name} the type {column[2]}: {column[2]} is not a Spark type."
            )
        if name.lower() in {former.lower() for former in types}:
            raise NotASchema(f"names column {name} twice.")
        types[name] = kind
    return types


def _split(ddl: str) -> list[str]:
    """Split at the commas outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in ddl:
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        if depth < 0:
            break
        if character == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    if depth or quote:
        raise NotASchema("has brackets or quotes that are not closed.")
    return parts
