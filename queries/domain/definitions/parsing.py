"""The JSON form of a definition, and what pydantic finds wrong with it, as problems."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from queries.domain.definitions.spec import ApplicationSpec, PoolSpec, PythonQuery, SqlQuery
from queries.domain.errors import Problem
from queries.domain.masking import mask, still_masked

#: Members of the discriminated unions, which pydantic puts into an error's path: at its
#: beginning (the query's kind) and after "trigger".
_TAGS = frozenset(
    {"sql", "python", "processing_time", "once", "available_now", "continuous", "real_time"}
)


def as_json(spec: SqlQuery | PythonQuery | ApplicationSpec | PoolSpec) -> dict[str, Any]:
    """Return the one JSON form of a definition."""
    return spec.model_dump(mode="json", by_alias=True)


def shape_problems(error: ValidationError) -> list[Problem]:
    """Return pydantic's findings as problems with the path of the JSON form."""
    problems = []
    for found in error.errors(include_url=False):
        kind, loc = found["type"], found["loc"]
        parts = [
            str(part)
            for before, part in zip(("", *loc), loc, strict=False)
            if not (part in _TAGS and before in ("", "trigger"))
        ]
        if kind.startswith("union_tag"):
            parts.append("kind")
        field = ".".join(parts) or "definition"
        value = "" if isinstance(found["input"], dict | list) else str(found["input"])
        message, way_out = _plain(kind, found["msg"], found.get("ctx", {}))
        shown = mask({parts[-1] if parts else "": value})
        problems.append(Problem(field, str(next(iter(shown.values())))[:200], message, way_out))
    return problems


def _plain(kind: str, message: str, context: Mapping[str, Any]) -> tuple[str, str]:
    match kind:
        case "missing":
            return "is missing.", "Give it."
        case "extra_forbidden":
            return "is not a field of a definition.", "Remove it, or check its spelling."
        case "union_tag_invalid" | "union_tag_not_found":
            expected = str(context.get("expected_tags", "'sql', 'python'"))
            return "does not say which kind this is.", f"Use one of {expected}."
        case "literal_error":
            return "is not one of the values that can be used.", f"Use {context['expected']}."
        case _:
            plain = message.removeprefix("Input ").removeprefix("Value error, ")
            return f"{plain[:1].lower()}{plain[1:]}.", ""


def mask_problems(form: dict[str, Any]) -> list[Problem]:
    """Return a problem for each text that still hides a secret and so cannot be stored."""
    return [
        Problem(
            field,
            "",
            "still holds the dots that hide a secret.",
            'Write the reference, "env:NAME" or "file:NAME".',
        )
        for field in still_masked(form)
    ]


def once(problems: list[Problem]) -> list[Problem]:
    """Return the problems without repetitions, one a field and message, in order."""
    return list({(each.field, each.message): each for each in problems}.values())
