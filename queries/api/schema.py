"""The OpenAPI document: errors for every endpoint, and the definitions' own JSON schemas."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from drf_spectacular.contrib.knox_auth_token import KnoxTokenScheme
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import (
    OpenApiParameter,
    extend_schema,
    extend_schema_field,
    inline_serializer,
)
from pydantic import TypeAdapter
from rest_framework import serializers

from headgate_ground.labels import MOST_LABELS
from headgate_ground.masking import mask
from queries.domain.definitions.spec import ApplicationSpec, PoolSpec, QuerySpec
from queries.services.idempotency_keys import LONGEST_KEY


class ByTokenScheme(KnoxTokenScheme):  # type: ignore[misc]  # registers itself
    """Describe our tokens in the document, in the same way as knox's."""

    target_class = "queries.services.access.tokens.ByToken"


View = TypeVar("View", bound=Callable[..., Any])

#: The document's sections in order: what each is about, and the parts of a path that belong to it.
_SECTIONS = {
    "Queries": ("Create, change, start, stop and delete queries.", "queries"),
    "Query history": (
        "What a query did: its runs, batches, revisions and losses.",
        "runs batches progress revisions losses",
    ),
    "Diagnosis": (
        "Why a query is slow or waits, and what it would do.",
        "advice async exposure lag preflight records thread-dump thresholds waits x-ray",
    ),
    "Checkpoints": (
        "Checkpoints and their snapshots, and moving a query to another batch.",
        "checkpoints snapshots rewind reset clone",
    ),
    "Applications": ("The drivers that run queries, their pools and logs.", "applications"),
    "Schedules": ("Queries and scripts that run at planned times.", "schedules schedule"),
    "Manifests": (
        "Sets of definitions from a repository, and who owns what they define.",
        "apply export owner manifest.json",
    ),
    "Deploys": ("Sets that are applied in waves, and rolled back.", "deploys"),
    "Code": ("Uploaded code, and the hosts from which code is fetched.", "code code-hosts"),
    "Spark and connectors": ("Installed versions of Spark and connectors.", "sparks connectors"),
    "Data and secrets": (
        "Which data, catalogs and secrets applications may use.",
        "allowed-paths catalogs secrets secret-bindings",
    ),
    "Failures": ("Failures, grouped by their cause.", "failures failure-groups"),
    "Alerts": (
        "Incidents, the channels they are sent to, and maintenance windows.",
        "incidents alert-channels alert-rules maintenance",
    ),
    "Lineage": ("Which queries read what others write.", "lineage"),
    "Operations": ("Requests that take a while, and their steps.", "operations"),
    "Access": (
        "Users' tokens, teams and roles, and the audit log.",
        "me tokens teams team group-roles audit",
    ),
    "System": ("The state of Headgate itself.", "system"),
}
TAGS = [{"name": name, "description": about} for name, (about, _) in _SECTIONS.items()]
_TAG_OF = {part: name for name, (_, parts) in _SECTIONS.items() for part in parts.split()}

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
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
                    "line": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "The line of the SQL, if it is known.",
                    },
                    "column": {"type": "integer", "minimum": 1},
                },
            },
        },
    },
}
_ANSWER = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds after which to send the request again, where they are known.",
        "schema": {"type": "integer", "minimum": 0},
    }
}


#: What passes by itself: a program waits, and sends the same request again.
_LATER = {
    "429": "Too many requests, or too many wrong tokens from this address",
    "503": "The database is busy, or a part of the system is not responding",
}


class ProblemSchema(AutoSchema):  # type: ignore[misc]  # drf-spectacular has no types
    """Describe an endpoint with the problems that it can return."""

    def get_override_parameters(self) -> list[Any]:
        """Return the header that every POST accepts."""
        return [IDEMPOTENCY_KEY] if self.method == "POST" else []

    def get_tags(self) -> list[str]:
        """Return the section of the last part of the path that belongs to one."""
        parts = self.path.replace(":", "/").split("/")
        return [next(_TAG_OF[part] for part in reversed(parts) if part in _TAG_OF)]

    def get_summary(self) -> str:
        """Return the first line of the method's docstring, which is shown in lists."""
        return str(self.get_description()).partition("\n")[0]

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Return the operation with the errors that it can return as problems."""
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is not None:
            responses = operation["responses"]
            if body := operation.get("requestBody"):
                most = max(parser.most() for parser in self.view.parser_classes)
                body["x-max-bytes"] = most
                responses["413"] = {
                    "description": f"The body is larger than {most:,} bytes",
                    "content": _ANSWER,
                }
            for status, problem in _LATER.items():
                responses[status] = {
                    "description": problem,
                    "headers": _RETRY_AFTER,
                    "content": _ANSWER,
                }
            responses["401"] = {"description": "Missing or invalid token", "content": _ANSWER}
            responses["403"] = {
                "description": "Not allowed for this role, team or token",
                "content": _ANSWER,
            }
            responses["default"] = {"description": "Any other error", "content": _ANSWER}
        return operation


def add_components(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the sections, and the JSON schemas of definitions and of the problem, to the document."""
    result["tags"] = TAGS
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


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 63},
        "maxProperties": MOST_LABELS,
    }
)
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
