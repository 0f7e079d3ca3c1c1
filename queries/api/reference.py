"""The OpenAPI document in a readable form: sections of operations, forms of bodies, examples."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

JSON = dict[str, Any]

#: Responses that every operation has; the page shows them once.
_EVERYWHERE = ("401", "403", "413", "429", "503", "default")
_METHODS = ("get", "post", "put", "patch", "delete")
#: Maximum depth of nested forms in an example.
_DEEPEST = 4
_LIMITS = (
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("exclusiveMinimum", "more than {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("maxItems", "at most {} entries"),
    ("maxProperties", "at most {} entries"),
    ("format", "{}"),
)


@dataclass(frozen=True, slots=True)
class Type:
    """A type: its text, and the name of its form ("" if it has none)."""

    before: str
    form: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, or a field of a form."""

    name: str
    types: tuple[Type, ...]  # alternatives
    required: bool
    text: str  # its description, values, limits and default
    place: str = ""  # for a parameter: "path" | "query" | "header"


@dataclass(frozen=True, slots=True)
class Answer:
    """One response of an operation."""

    status: str
    text: str
    types: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one URL."""

    id: str
    method: str
    path: str
    summary: str
    text: str  # its description without the summary
    parameters: tuple[Field, ...]
    body: tuple[Type, ...]
    answers: tuple[Answer, ...]
    curl: str


@dataclass(frozen=True, slots=True)
class Section:
    """The operations on one kind of object."""

    name: str
    operations: tuple[Operation, ...]

    @property
    def id(self) -> str:
        """Return the name as a fragment of an address."""
        return self.name.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a body, or of part of a body."""

    name: str
    text: str
    fields: tuple[Field, ...]
    either: tuple[Type, ...]  # the forms in a union
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """The complete reference."""

    version: str
    sections: tuple[Section, ...]
    forms: tuple[Form, ...]


def reference(document: JSON, *, origin: str) -> Reference:
    """Return the reference for an OpenAPI 3.1 document; examples call `origin`."""
    schemas: JSON = document["components"]["schemas"]
    sections: dict[str, list[Operation]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                made = _operation(path, method, methods[method], schemas, origin)
                sections[methods[method]["tags"][0]].append(made)
    return Reference(
        version=document["openapi"],
        sections=tuple(Section(name, tuple(found)) for name, found in sections.items()),
        forms=tuple(_form(name, schemas[name]) for name in sorted(schemas)),
    )


def _operation(path: str, method: str, told: JSON, schemas: JSON, origin: str) -> Operation:
    summary, description = told.get("summary", ""), told.get("description", "")
    body = _content(told.get("requestBody", {}))
    return Operation(
        id=told["operationId"],
        method=method.upper(),
        path=path,
        summary=summary,
        text=description.removeprefix(summary).strip(),
        parameters=tuple(
            Field(
                name=one["name"],
                types=_types(one["schema"]),
                required=one.get("required", False),
                text=_text(one["schema"], one.get("description", "")),
                place=one["in"],
            )
            for one in told.get("parameters", ())
        ),
        body=_types(body) if body else (),
        answers=tuple(
            Answer(status, answer.get("description", ""), _types(schema) if schema else ())
            for status, answer in told["responses"].items()
            if status not in _EVERYWHERE
            for schema in (_content(answer),)
        ),
        curl=_curl(origin, path, method.upper(), example(body, schemas) if body else None),
    )


def _content(held: JSON) -> JSON:
    """Return the schema of a request or response body; {} if there is none."""
    found: JSON = next((one.get("schema", {}) for one in held.get("content", {}).values()), {})
    return found


def _curl(origin: str, path: str, method: str, body: Any) -> str:
    """Return a shell command; placeholders are in capitals."""
    address = "/".join(
        part[1:-1].upper() if part.startswith("{") else part for part in path.split("/")
    )
    lines = [f"curl -s{'' if method == 'GET' else f' -X {method}'} {origin}{address}"]
    lines.append('-H "Authorization: Token $HEADGATE_TOKEN"')
    if body is not None:
        lines.append("-H 'Content-Type: application/json'")
        lines.append(f"-d {shlex.quote(json.dumps(body, ensure_ascii=False))}")
    return " \\\n  ".join(lines)


# --- forms ----------------------------------------------------------------------------------
def _form(name: str, schema: JSON) -> Form:
    needed = schema.get("required", ())
    properties: JSON = schema.get("properties", {})
    return Form(
        name=name,
        text=schema.get("description", "") if "enum" not in schema else "",
        fields=tuple(
            Field(field, _types(held), field in needed, _text(held))
            for field, held in properties.items()
        ),
        either=() if properties or "enum" in schema else _types(schema),
        values=_values(schema),
    )


def _types(schema: JSON) -> tuple[Type, ...]:
    """Return a schema's alternatives."""
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return tuple(one for held in schema[several] for one in _types(held))
    if "$ref" in schema:
        return (Type("", schema["$ref"].rpartition("/")[2]),)
    kinds = schema.get("type", "any")
    if kinds == "array":
        return tuple(
            Type(f"list of {one.before}", one.form) for one in _types(schema.get("items", {}))
        )
    held = schema.get("additionalProperties")
    if kinds == "object" and isinstance(held, dict) and held:
        return tuple(Type(f"object of {one.before}", one.form) for one in _types(held))
    return tuple(Type(kind) for kind in (kinds if isinstance(kinds, list) else [kinds]))


def _text(schema: JSON, description: str = "") -> str:
    """Return a field's description, values, limits and default, as sentences."""
    said = [description or schema.get("description", "")]
    if values := _values(schema):
        said.append(f"One of {', '.join(values)}.")
    if limits := [words.format(schema[key]) for key, words in _LIMITS if key in schema]:
        said.append(f"{', '.join(limits).capitalize()}.")
    default = schema.get("default")
    if default not in (None, "", [], {}):
        said.append(f"Default {json.dumps(default)}.")
    return " ".join(one.strip() for one in said if one.strip()).replace("`", "")


def _values(schema: JSON) -> tuple[str, ...]:
    if "const" in schema:
        return (str(schema["const"]),)
    listed = schema.get("enum") or schema.get("items", {}).get("enum") or ()
    return tuple(str(one) for one in listed if one not in ("", None))


# --- examples -------------------------------------------------------------------------------
def example(schema: JSON, schemas: JSON, *, deep: int = 0) -> Any:
    """Return a small example of a schema: required fields, and the first alternatives."""
    if "$ref" in schema:
        return example(schemas[schema["$ref"].rpartition("/")[2]], schemas, deep=deep + 1)
    if told := list(_told(schema)):
        return told[0]
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return example(schema[several][0], schemas, deep=deep)
    kinds = schema.get("type", "string")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    if kind == "object":
        needed = schema.get("required", ()) if deep < _DEEPEST else ()
        properties: JSON = schema.get("properties", {})
        return {name: example(properties[name], schemas, deep=deep) for name in needed}
    if kind == "array":
        return [] if deep >= _DEEPEST else [example(schema.get("items", {}), schemas, deep=deep)]
    plain: JSON = {"integer": schema.get("minimum", 1), "number": 1.0, "boolean": True}
    return plain.get(kind, "…")


def _told(schema: JSON) -> Iterator[Any]:
    """Yield the values given in the schema itself."""
    yield from schema.get("examples", ())
    if "const" in schema:
        yield schema["const"]
    yield from (one for one in schema.get("enum", ()) if one not in ("", None))
    if schema.get("default") not in (None, "", [], {}):
        yield schema["default"]
