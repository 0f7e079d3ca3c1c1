"""The OpenAPI document states the limits that the server enforces: each is tried, and one more."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from rest_framework.test import APIClient

from queries.api.docs import example
from tests.api.document import document
from tests.scenarios.stage import Stage

JSON = dict[str, Any]
Place = tuple[str | int, ...]

#: Type -> the keyword of its limit, and a size far above any, in a body that is not too large.
LIMITS = {
    "string": ("maxLength", 300_000),
    "array": ("maxItems", 2_500),
    "object": ("maxProperties", 900),
    "integer": ("maximum", 2**62),
}
SAMPLE = [
    ("post", "/api/v1/alert-rules/"),
    ("post", "/api/v1/applications/"),
    ("post", "/api/v1/deploys/"),
    ("post", "/api/v1/maintenance/"),
    ("post", "/api/v1/queries/"),
    ("put", "/api/v1/queries/{name}/labels/"),
    ("post", "/api/v1/queries/{name}/snapshots/"),
    ("post", "/api/v1/queries/{name}/x-ray/"),
    ("post", "/api/v1/teams/"),
    ("post", "/api/v1/tokens/"),
]
#: What else is wrong with these, whatever their size: they refer to something, or depend on it.
OTHERWISE = {
    ("/api/v1/deploys/", "good.minutes"),  # within the deadline of a wave
    ("/api/v1/queries/", "application"),
}


@pytest.fixture
def spec(story: None) -> JSON:
    """Return the definition of a query that is there."""
    stage = Stage()
    stage.application("flights")
    found: JSON = stage.query("delays", "flights").revisions.get().spec
    return found


def _schema(schema: JSON) -> JSON:
    """Return a schema itself, or its first alternative."""
    while True:
        if "$ref" in schema:
            schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        elif several := schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf"):
            schema = several[0]
        else:
            return schema


def _fields(schema: JSON, at: Place = ()) -> Iterator[tuple[Place, JSON, str]]:
    """Yield the fields of a body whose values have a size, with places and types."""
    schema = _schema(schema)
    kinds = schema.get("type")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    free = kind != "object" or (schema.get("additionalProperties") and "properties" not in schema)
    chosen = {"enum", "const"} & set(schema) or (kind == "string" and "format" in schema)
    if at and kind in LIMITS and free and not chosen:
        yield at, schema, kind
    for name, held in schema.get("properties", {}).items():
        yield from _fields(held, (*at, name))
    if "items" in schema:
        yield from _fields(schema["items"], (*at, 0))


def _example(schema: JSON) -> Any:
    return example(schema, document()["components"]["schemas"])


def _put(body: Any, at: Place, schema: JSON, value: Any) -> Any:
    """Return a body with a value at a place, which is made where the body lacks it."""
    if not at:
        return value
    step, schema = at[0], _schema(schema)
    if isinstance(step, int):
        return [_put((body or [None])[0], at[1:], schema["items"], value)]
    inner, body = schema["properties"][step], body or {}
    return body | {step: _put(body.get(step) or _example(inner), at[1:], inner, value)}


def _sized(kind: str, schema: JSON, size: int) -> Any:
    match kind:
        case "string":
            return "x" * size
        case "array":
            return [_example(schema["items"])] * size
        case "object":
            return {f"k{number}": "x" for number in range(size)}
        case _:
            return size


def _said(answer: Any, at: Place) -> set[str]:
    """Return what is wrong with the value at a place, without values and numbers."""
    assert answer.status_code < 500, (at, answer.content)
    problems = answer.json().get("problems", [])
    field = ".".join(map(str, at))
    fields = (field, field.removeprefix("spec."), field.removeprefix("apply."))
    return {
        re.sub(r"'[^']*'|x{9,}|\d", "", problem["message"])
        for problem in problems
        if problem["field"] in fields
    }


@pytest.mark.parametrize(("method", "path"), SAMPLE)
def test_a_limit_is_in_the_document_and_the_server_refuses_one_more(
    as_admin: APIClient, spec: JSON, method: str, path: str
) -> None:
    operation = document()["paths"][path][method]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    whole = _example(schema) | ({"name": "new", "spec": spec} if "queries/" in path[-9:] else {})
    address = path.replace("{name}", "delays")
    undeclared, untrue = [], []
    for at, field, kind in _fields(schema):
        if (path, ".".join(map(str, at))) in OTHERWISE:
            continue

        def said(size: int, at: Place = at, field: JSON = field, kind: str = kind) -> set[str]:
            body = _put(whole, at, schema, _sized(kind, field, size))
            return _said(getattr(as_admin, method)(address, body, format="json"), at)

        keyword, huge = LIMITS[kind]
        usual = said(max(2 if kind in ("array", "object") else 1, field.get("minimum", 0)))
        if (most := field.get(keyword)) is None:
            undeclared += [(at, text) for text in said(huge) - usual]
        elif said(most) - usual or not said(most + 1) - usual:
            untrue.append((at, most))
    assert (undeclared, untrue) == ([], [])


def test_the_limits_of_parameters_are_in_the_document(as_admin: APIClient, spec: JSON) -> None:
    tried = 0
    for path, methods in document()["paths"].items():
        if "get" not in methods or re.search(r"{(?!name)\w+}", path):
            continue
        for parameter in methods["get"].get("parameters", ()):
            schema = parameter["schema"]
            if "maximum" not in schema or path.endswith("/export/"):
                continue
            name, most = parameter["name"], schema["maximum"]
            address = path.replace("{name}", "flights" if "/applications/" in path else "delays")
            assert not _said(as_admin.get(address, {name: most}), (name,)), (path, name)
            assert _said(as_admin.get(address, {name: most + 1}), (name,)), (path, name)
            tried += 1
    assert tried > 20
    hours = document()["paths"]["/api/v1/applications/{name}/waits/"]["get"]["parameters"][0]
    assert hours["schema"]["maximum"] == 168


def test_a_key_has_a_limit(as_admin: APIClient) -> None:
    operation = document()["paths"]["/api/v1/teams/"]["post"]
    key = next(one for one in operation["parameters"] if one["name"] == "Idempotency-Key")
    most = key["schema"]["maxLength"]
    for size, status in ((most, 201), (most + 1, 422)):
        headers = {"Idempotency-Key": "k" * size}
        answer = as_admin.post("/api/v1/teams/", {"name": "data"}, format="json", headers=headers)
        assert answer.status_code == status


@pytest.mark.parametrize("path", ["/api/v1/teams/", "/api/v1/apply/"])
def test_the_largest_body_is_in_the_document(as_admin: APIClient, path: str) -> None:
    operation = document()["paths"][path]["post"]
    most = operation["requestBody"]["x-max-bytes"]
    assert f"{most:,} bytes" in operation["responses"]["413"]["description"]
    for size, too_large in ((most, False), (most + 1, True)):
        body = b"{" + b" " * (size - 2) + b"}"
        answer = as_admin.post(path, body, content_type="application/json")
        assert (answer.status_code == 413) is too_large, answer.content


def test_what_passes_by_itself_is_described_with_the_time_to_wait() -> None:
    for methods in document()["paths"].values():
        for operation in methods.values():
            for status in ("429", "503"):
                assert "Retry-After" in operation["responses"][status]["headers"]


def test_every_operation_is_in_a_section_with_a_description() -> None:
    sections = {tag["name"]: tag["description"] for tag in document()["tags"]}
    used = {
        tag
        for methods in document()["paths"].values()
        for operation in methods.values()
        for tag in operation["tags"]
    }
    assert used == set(sections)
    assert all(about.endswith(".") for about in sections.values())
    assert document()["paths"]["/api/v1/queries:stop/"]["post"]["tags"] == ["Queries"]
    assert document()["paths"]["/api/v1/applications/{name}/owner/"]["get"]["tags"] == ["Manifests"]
