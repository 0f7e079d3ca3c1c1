"""Write the field tables in docs/ from the definition models.

    python bootstrap/reference.py

A page has a table between `<!-- reference: NAME -->` and `<!-- end -->`; `TABLES` has the models of
each name. A field's type, default and limits come from the model, and its meaning from the comment
above or next to it. `tests/documentation/test_reference.py` fails if a table is out of date.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from queries.domain.definitions import spec  # noqa: E402
from queries.domain.restart import RestartPolicy  # noqa: E402
from queries.domain.triggers.kinds import KINDS  # noqa: E402

DOCS = REPOSITORY / "docs"
#: Name of a table -> its models, whose fields are listed one after the other; a field that several
#: of them have is listed once.
TABLES: Mapping[str, tuple[type[BaseModel], ...]] = {
    "query": (spec.SqlQuery, spec.PythonQuery),
    "source": (spec.Source,),
    "watermark": (spec.Watermark,),
    "table": (spec.Table,),
    "sink": (spec.Sink,),
    "schedule": (spec.Schedule,),
    "threshold": (spec.Threshold,),
    "application": (spec.ApplicationSpec,),
    "code": (spec.Code,),
    "script": (spec.Script,),
    "submit": (spec.Submit,),
    "pool": (spec.PoolSpec,),
    "policy": (RestartPolicy,),
}
_TRIGGERS = "triggers"  # a table of its own, with a row for each kind
#: Models that have a table or a section -> its heading in docs/definitions.md.
_LINKS: Mapping[Any, str] = {
    spec.Source: "source",
    spec.Watermark: "watermark",
    spec.Table: "table",
    spec.Sink: "sink",
    spec.Schedule: "schedule",
    spec.Threshold: "thresholds",
    spec.Code: "code",
    spec.Script: "script",
    spec.Submit: "submit",
}
_NO_LIMIT = 1e9  # a limit beyond it only keeps numbers storable
_BLOCK = re.compile(r"(<!-- reference: (\w+) -->\n).*?(<!-- end -->)", re.S)
_HEAD = "| field | type | default | meaning |\n|---|---|---|---|\n"


def fields_of(models: tuple[type[BaseModel], ...]) -> Iterator[tuple[str, FieldInfo, str]]:
    """Yield the JSON name, the field and the meaning of each field, without the discriminator."""
    listed = set()
    for model in models:
        meanings = comments(model)
        for name, field in model.model_fields.items():
            shown = field.alias or name
            if shown in listed or (len(models) > 1 and shown == "kind"):
                continue
            listed.add(shown)
            yield shown, field, meanings.get(name, "")


def comments(model: type[BaseModel]) -> dict[str, str]:
    """Return the comment of each field of a model and of its parents, by the field's name."""
    found: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if not issubclass(parent, BaseModel) or parent is BaseModel:
            continue
        source = dedent(inspect.getsource(parent))
        lines = source.splitlines()
        for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = _comment(lines, node)
    return found


def _comment(lines: list[str], node: ast.AnnAssign) -> str:
    above: list[str] = []
    at = node.lineno - 2
    while at >= 0 and (match := re.fullmatch(r"\s*#:? ?(.*)", lines[at])):
        above.insert(0, match[1])
        at -= 1
    # Only a comment that follows the whole statement is the field's own.
    beside = lines[node.end_lineno - 1][node.end_col_offset :] if node.end_lineno else ""
    text = " ".join([*above, beside.strip().lstrip("# ")]).strip()
    return re.sub(r" +", " ", text)


def type_words(annotation: Any, *, place: str = "") -> str:
    """Return a description of a field's type; `place` is the page with the `_LINKS` headings."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _LINKS:
        return f"[object]({place}#{_LINKS[annotation]})"
    if origin is Annotated:
        return type_words(arguments[0], place=place)
    if origin in (Union, UnionType):
        parts = [type_words(one, place=place) for one in arguments if one is not NoneType]
        return " or ".join(dict.fromkeys(parts))
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in arguments)
    if origin is tuple:
        return f"list of {_plural(type_words(arguments[0], place=place))}"
    if origin is dict:
        return "object"
    names = {str: "string", int: "whole number", float: "number", bool: "`true`, `false`"}
    if annotation in names:
        return names[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "object"
    raise TypeError(f"no words for {annotation!r}")


def _plural(word: str) -> str:
    return {"string": "strings"}.get(word) or word.replace("[object]", "[objects]")


def limits(field: FieldInfo) -> str:
    """Return the limits of a number or a length, "10 to 86,400"; "" if there are none."""
    found: dict[str, Any] = {}
    for one in field.metadata:
        for name in ("ge", "gt", "le", "lt", "max_length"):
            if getattr(one, name, None) is not None:
                found[name] = getattr(one, name)
    extra = field.json_schema_extra
    longest = found.get("max_length", extra.get("maxLength") if isinstance(extra, dict) else None)
    if longest is not None:
        return f"at most {longest:,}"
    if "le" not in found:
        return ""
    if "gt" in found:
        return f"more than {found['gt']:,}, at most {found['le']:,}"
    low, high = found.get("ge", 0), found["le"]
    return f"{low:,} to {high:,}" if high < _NO_LIMIT else f"from {low:,}"


def default_words(field: FieldInfo) -> str:
    """Return a field's default as JSON, "required", or "" if it means that nothing is set."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or value is None or value in ("", (), {}):
        return ""
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def table(name: str, *, page: str) -> str:
    """Return one table as Markdown, for a docs page."""
    if name == _TRIGGERS:
        return _trigger_table()
    place = "" if page == "definitions.md" else "definitions.md"
    return _HEAD + rows_of(TABLES[name], place=place)


def rows_of(models: tuple[type[BaseModel], ...], *, place: str) -> str:
    """Return the rows of these models' fields; `place` is the page that their links lead to."""
    rows = []
    for shown, field, meaning in fields_of(models):
        kind = type_words(field.annotation, place=place)
        if within := limits(field):
            kind += f", {within}"
        first = meaning[:1].upper() if re.match(r"[a-z]+[ ,;:]", meaning) else meaning[:1]
        text = (first + meaning[1:]).rstrip(".").replace("|", "\\|")
        rows.append(f"| `{shown}` | {kind} | {default_words(field)} | {text} |\n")
    return "".join(rows)


def _trigger_table() -> str:
    rows = []
    for kind, profile in KINDS.items():
        field = spec.TRIGGERS[kind].model_fields.get("interval")
        interval, default = "–", ""
        if field is not None:
            interval = comments(spec.TRIGGERS[kind])["interval"]
            default = default_words(field)
        rows.append(f"| `{kind.value}` | {interval} | {default} | {profile.costs} |\n")
    return "| `kind` | `interval` | default | meaning |\n|---|---|---|---|\n" + "".join(rows)


def renewed(text: str, *, page: str) -> str:
    """Return a page's text with its tables regenerated from the current models."""
    return _BLOCK.sub(lambda found: f"{found[1]}{table(found[2], page=page)}{found[3]}", text)


def names_in(text: str) -> list[str]:
    """Return the names of a page's tables."""
    return [found[2] for found in _BLOCK.finditer(text)]


def main() -> None:
    """Rewrite the tables of all pages."""
    for file in sorted(DOCS.glob("*.md")):
        text = file.read_text()
        after = renewed(text, page=file.name)
        if after != text:
            file.write_text(after)
            sys.stdout.write(f"{file.relative_to(REPOSITORY)} is renewed\n")


if __name__ == "__main__":
    main()
