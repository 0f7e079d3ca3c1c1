"""The OpenAPI document: errors for every endpoint, and the definitions' own JSON schemas."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from drf_spectacular.contrib.knox_auth_token import KnoxTokenScheme
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    extend_schema,
    extend_schema_field,
    inline_serializer,
)
from pydantic import TypeAdapter
from rest_framework import serializers

from headgate_ground.masking import mask
from queries.domain.definitions.spec import ApplicationSpec, PoolSpec, QuerySpec


class ByTokenScheme(KnoxTokenScheme):  # type: ignore[misc]  # registers itself
    """Describe our tokens in the document, in the same way as knox's."""

    target_class = "queries.services.access.by_token.ByToken"


View = TypeVar("View", bound=Callable[..., Any])

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The same request with the same key gets the same response for a day.",
)
_REF = "#/components/schemas/{model}"
_SPECS: dict[str, Any] = {
    "QuerySpec": QuerySpec,
    "ApplicationSpec": ApplicationSpec,
    "PoolSpec": PoolSpec,
}
_PROBLEM = {
    "type": "object",
    "description": "An error as defined by RFC 9457.",
    "required": ["type", "title", "status", "detail", "way_out"],
    "properties": {
        "type": {"type": "string", "examples": ["urn:headgate:problem:invalid"]},
        "title": {"type": "string", "description": "The type of the error."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong in this case."},
        "way_out": {"type": "string", "description": "What to do about it; can be empty."},
        "problems": {
            "type": "array",
            "description": "Problems with the input; only with status 422.",
            "items": {
                "type": "object",
                "required": ["field", "value", "message", "way_out"],
                "properties": {
                    "field": {"type": "string", "examples": ["spec.sources.0.options.path"]},
                    "value": {"type": "string"},
                    "message": {"type": "string"},
                    "way_out": {"type": "string"},
                },
            },
        },
    },
}
_ANSWER = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}


class ProblemSchema(AutoSchema):  # type: ignore[misc]  # drf-spectacular has no types
    """Describe an endpoint with the problems that it can return."""

    def get_override_parameters(self) -> list[Any]:
        """Return the header that every POST accepts."""
        return [IDEMPOTENCY_KEY] if self.method == "POST" else []

    def get_summary(self) -> str:
        """Return the first line of the method's docstring, which is shown in lists."""
        return str(self.get_description()).partition("\n")[0]

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Return the operation with 401, 403 and any other error as a problem."""
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is not None:
            responses = operation["responses"]
            responses["401"] = {"description": "Missing or invalid token", "content": _ANSWER}
            responses["403"] = {
                "description": "Not allowed for this role, team or token",
                "content": _ANSWER,
            }
            responses["default"] = {"description": "Any other error", "content": _ANSWER}
        return operation


def add_components(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the JSON schemas of definitions and of the problem to the document's components."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM
    for name, form in _SPECS.items():
        schema = TypeAdapter(form).json_schema(ref_template=_REF)
        schemas.update(schema.pop("$defs", {}))
        schemas[name] = schema
    return result


@extend_schema_field({"type": "object", "additionalProperties": True})
class ObjectField(serializers.JSONField):
    """A JSON object whose keys are chosen by Spark or by the user."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the object; reject anything else."""
        if not isinstance(data, dict):
            raise serializers.ValidationError("The body is not a JSON object.")
        return super().to_internal_value(data)


class LabelsField(serializers.DictField):
    """Labels by name."""

    child = serializers.CharField()


class MaskedObject(ObjectField):
    """A JSON object that is shown with its secrets masked."""

    def to_representation(self, value: Any) -> Any:
        """Return the object, masked."""
        return mask(value)


@extend_schema_field({"$ref": _REF.format(model="QuerySpec")})
class QuerySpecField(MaskedObject):
    """A query's definition."""


@extend_schema_field({"$ref": _REF.format(model="ApplicationSpec")})
class ApplicationSpecField(MaskedObject):
    """An application's definition."""


def describe(**description: Any) -> Callable[[View], View]:
    """Describe a method to the OpenAPI document (`extend_schema`, with types)."""
    decorate: Callable[[View], View] = extend_schema(**description)
    return decorate


class NotShown(serializers.Serializer[Any]):
    """A row of a list that cannot be shown and is omitted from the results."""

    id = serializers.IntegerField(
        allow_null=True, help_text="The row's primary key, if there is one."
    )
    name = serializers.CharField()
    detail = serializers.CharField(help_text="The reason: the error's type and its first line.")


@cache  # one form for all endpoints that list the same rows
def listed(row: type[serializers.Serializer[Any]]) -> Any:
    """Return the form for a page of rows: {"results": […], "next": URL or null}."""
    name = f"{row.__name__.removesuffix('Body')}Page"
    return inline_serializer(
        name,
        {
            "results": row(many=True),
            "next": serializers.CharField(allow_null=True, help_text="The next page."),
            "not_shown": NotShown(
                many=True, required=False, help_text="Rows that are stored but cannot be read."
            ),
        },
    )
