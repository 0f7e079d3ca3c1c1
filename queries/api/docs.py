"""The API's description: the OpenAPI document, its readable form, and the page that shows it."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpResponse
from django.shortcuts import render
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.exceptions import NotAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.schema import describe

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
    """A type as a string, and the name of its form ("" if it has none)."""

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
class DocumentedResponse:
    """One response of an operation."""

    status: str
    text: str
    types: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class DocumentedOperation:
    """One method of one URL."""

    id: str
    method: str
    path: str
    summary: str
    text: str  # its description without the summary
    parameters: tuple[Field, ...]
    body: tuple[Type, ...]
    answers: tuple[DocumentedResponse, ...]
    curl: str


@dataclass(frozen=True, slots=True)
class OperationSection:
    """The operations on one kind of object."""

    name: str
    operations: tuple[DocumentedOperation, ...]

    @property
    def id(self) -> str:
        """Return the name as a fragment of an address."""
        return self.name.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True)
class BodyForm:
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
    sections: tuple[OperationSection, ...]
    forms: tuple[BodyForm, ...]


def reference(document: JSON, *, origin: str) -> Reference:
    """Return the reference for an OpenAPI 3.1 document; examples call `origin`."""
    schemas: JSON = document["components"]["schemas"]
    sections: dict[str, list[DocumentedOperation]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                made = _operation(path, method, methods[method], schemas, origin)
                sections[methods[method]["tags"][0]].append(made)
    return Reference(
        version=document["openapi"],
        sections=tuple(
            OperationSection(name, tuple(operations)) for name, operations in sections.items()
        ),
        forms=tuple(_form(name, schemas[name]) for name in sorted(schemas)),
    )


def _operation(
    path: str, method: str, definition: JSON, schemas: JSON, origin: str
) -> DocumentedOperation:
    summary, description = definition.get("summary", ""), definition.get("description", "")
    body = _content(definition.get("requestBody", {}))
    return DocumentedOperation(
        id=definition["operationId"],
        method=method.upper(),
        path=path,
        summary=summary,
        text=description.removeprefix(summary).strip(),
        parameters=tuple(
            Field(
                name=parameter["name"],
                types=_types(parameter["schema"]),
                required=parameter.get("required", False),
                text=_text(parameter["schema"], parameter.get("description", "")),
                place=parameter["in"],
            )
            for parameter in definition.get("parameters", ())
        ),
        body=_types(body) if body else (),
        answers=tuple(
            DocumentedResponse(
                status, answer.get("description", ""), _types(schema) if schema else ()
            )
            for status, answer in definition["responses"].items()
            if status not in _EVERYWHERE
            for schema in (_content(answer),)
        ),
        curl=_curl(origin, path, method.upper(), example(body, schemas) if body else None),
    )


def _content(body: JSON) -> JSON:
    """Return the schema of a request or response body; {} if there is none."""
    schema: JSON = next(
        (media_type.get("schema", {}) for media_type in body.get("content", {}).values()), {}
    )
    return schema


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
def _form(name: str, schema: JSON) -> BodyForm:
    needed = schema.get("required", ())
    properties: JSON = schema.get("properties", {})
    return BodyForm(
        name=name,
        text=schema.get("description", "") if "enum" not in schema else "",
        fields=tuple(
            Field(field, _types(property_schema), field in needed, _text(property_schema))
            for field, property_schema in properties.items()
        ),
        either=() if properties or "enum" in schema else _types(schema),
        values=_values(schema),
    )


def _types(schema: JSON) -> tuple[Type, ...]:
    """Return a schema's alternatives."""
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return tuple(
                nested_type
                for nested_schema in schema[several]
                for nested_type in _types(nested_schema)
            )
    if "$ref" in schema:
        return (Type("", schema["$ref"].rpartition("/")[2]),)
    kinds = schema.get("type", "any")
    if kinds == "array":
        return tuple(
            Type(f"list of {nested_type.before}", nested_type.form)
            for nested_type in _types(schema.get("items", {}))
        )
    nested_schema = schema.get("additionalProperties")
    if kinds == "object" and isinstance(nested_schema, dict) and nested_schema:
        return tuple(
            Type(f"object of {nested_type.before}", nested_type.form)
            for nested_type in _types(nested_schema)
        )
    return tuple(Type(kind) for kind in (kinds if isinstance(kinds, list) else [kinds]))


def _text(schema: JSON, description: str = "") -> str:
    """Return a field's description, values, limits and default, as sentences."""
    sentences = [description or schema.get("description", "")]
    if values := _values(schema):
        sentences.append(f"One of {', '.join(values)}.")
    if limits := [words.format(schema[key]) for key, words in _LIMITS if key in schema]:
        sentences.append(f"{', '.join(limits).capitalize()}.")
    default = schema.get("default")
    if default not in (None, "", [], {}):
        sentences.append(f"Default {json.dumps(default)}.")
    return " ".join(sentence.strip() for sentence in sentences if sentence.strip()).replace("`", "")


def _values(schema: JSON) -> tuple[str, ...]:
    if "const" in schema:
        return (str(schema["const"]),)
    listed = schema.get("enum") or schema.get("items", {}).get("enum") or ()
    return tuple(str(value) for value in listed if value not in ("", None))


# --- examples -------------------------------------------------------------------------------
def example(schema: JSON, schemas: JSON, *, deep: int = 0) -> Any:
    """Return a small example of a schema: required fields, and the first alternatives."""
    if "$ref" in schema:
        return example(schemas[schema["$ref"].rpartition("/")[2]], schemas, deep=deep + 1)
    if examples := list(_examples(schema)):
        return examples[0]
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


def _examples(schema: JSON) -> Iterator[Any]:
    """Yield the values given in the schema itself."""
    yield from schema.get("examples", ())
    if "const" in schema:
        yield schema["const"]
    yield from (value for value in schema.get("enum", ()) if value not in ("", None))
    if schema.get("default") not in (None, "", [], {}):
        yield schema["default"]


class SchemaView(ApiView, SpectacularJSONAPIView):  # type: ignore[misc]
    """The OpenAPI 3.1 document."""

    renderer_classes = SpectacularJSONAPIView.renderer_classes


@cache
def _document() -> dict[str, Any]:
    """Return the OpenAPI document, which never changes within a process."""
    document: dict[str, Any] = SchemaGenerator(api_version="1").get_schema(public=True)
    return json.loads(JSONRenderer().render(document))  # type: ignore[no-any-return]


class DocsView(ApiView):
    """The page with the document: every operation with its fields, responses and an example."""

    @describe(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Show everything on one page."""
        origin = request.build_absolute_uri("/")[:-1]
        context = {"api": reference(_document(), origin=origin)}
        return render(request._request, "api/docs.html", context)

    def handle_exception(self, exc: Exception) -> Any:
        """Redirect an anonymous user to the sign-in page, because this URL is for browsers."""
        if isinstance(exc, NotAuthenticated):
            return redirect_to_login(self.request.get_full_path())
        self.request.accepted_renderer = JSONRenderer()
        return super().handle_exception(exc)


class NothingHereView(ApiView):
    """Respond to any other URL below the API's root with a problem, not a page."""

    @describe(exclude=True)
    def get(self, request: Request, rest: str = "") -> Response:
        """Report that this URL does not exist."""
        raise Http404

    post = put = patch = delete = get
