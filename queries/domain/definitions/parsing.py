"""Parse the JSON form of a definition, and turn pydantic's errors into problems."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from headgate_ground.masking import mask, still_masked
from queries.domain.definitions.spec import (
    QUERY,
    TRIGGERS,
    ApplicationSpec,
    Effect,
    PoolSpec,
    PythonQuery,
    SqlQuery,
    changed_fields,
)
from queries.domain.errors import Invalid, Problem
from queries.domain.former_names import use_instead

#: Members of discriminated unions, which pydantic includes in an error's path: at its beginning
#: (the kind of a query or manifest), after "trigger", and after a manifest's "spec".
_TAGS = frozenset({"sql", "python", *TRIGGERS, "Application", "Query", "AlertRule"})
#: Former name of a field, with its object -> its name.
RENAMED_FIELDS = {
    "schedule.quiet_s": "quiet_period_s",
    "schedule.look_s": "poll_interval_s",
    "schedule.limit_s": "timeout_s",
    "schedule.missed_window_s": "catch_up_window_s",
}
_Spec = TypeVar("_Spec")
_POOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 ._-]{0,79}")


def parse_query(raw: Mapping[str, Any]) -> SqlQuery | PythonQuery:
    """Return a query's definition; raise `Invalid` if its shape is wrong."""
    return parsed(QUERY.validate_python, raw)


def parse_application(raw: Mapping[str, Any]) -> ApplicationSpec:
    """Return an application's definition; raise `Invalid` if its shape is wrong."""
    return parsed(ApplicationSpec.model_validate, raw)


def parse_pool(raw: Mapping[str, Any]) -> PoolSpec:
    """Return a pool's definition; raise `Invalid` if it is not valid."""
    pool = parsed(PoolSpec.model_validate, raw)
    if not _POOL_NAME.fullmatch(pool.name):
        way_out = "Use 1 to 80 letters, digits, spaces and . _ -"
        raise Invalid([Problem("name", pool.name, "is not a valid pool name.", way_out)])
    if pool.name == "default":
        way_out = "Queries without a pool run in it."
        raise Invalid([Problem("name", pool.name, "is Spark's own pool.", way_out)])
    return pool


def parsed(validate: Callable[[Mapping[str, Any]], _Spec], raw: Mapping[str, Any]) -> _Spec:
    """Return a form as validated by pydantic; raise `Invalid` if its shape is wrong."""
    try:
        return validate(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error


def as_json(spec: SqlQuery | PythonQuery | ApplicationSpec | PoolSpec) -> dict[str, Any]:
    """Return the JSON form of a definition; there is only one."""
    return spec.model_dump(mode="json", by_alias=True)


def query_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Effect]:
    """Return the fields that differ between two queries in JSON form, with the effect of each."""
    if before.get("kind") != after.get("kind"):
        return {"kind": Effect.QUERY}
    model = PythonQuery if after.get("kind") == "python" else SqlQuery
    try:
        return changed_fields(model, before, after)
    except ValidationError:  # one of them can no longer be read
        return {} if before == after else {"spec": Effect.QUERY}


def application_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Effect]:
    """Return the fields that differ between two applications in JSON form, with their effects."""
    try:
        return changed_fields(ApplicationSpec, before, after)
    except ValidationError:
        return {} if before == after else {"spec": Effect.DRIVER}


def shape_problems(error: ValidationError) -> list[Problem]:
    """Return pydantic's errors as problems, with paths in JSON form."""
    problems = []
    for details in error.errors(include_url=False):
        kind, loc = details["type"], details["loc"]
        parts = [
            str(part)
            for before, part in zip(("", *loc), loc, strict=False)
            if not (part in _TAGS and before in ("", "trigger", "spec"))
        ]
        if kind.startswith("union_tag"):
            parts.append("kind")
        field = ".".join(parts) or "definition"
        value = _value_text(kind, details["input"], details.get("ctx", {}))
        message, way_out = _plain(kind, details["msg"], details.get("ctx", {}))
        if kind in ("literal_error", "enum"):
            way_out = use_instead(value, details["ctx"]["expected"]) or way_out
        shown = mask({parts[-1] if parts else "": value})
        way_out = _renamed(kind, parts) or way_out
        problems.append(Problem(field, str(next(iter(shown.values())))[:200], message, way_out))
    return problems


def _renamed(kind: str, parts: list[str]) -> str:
    """Return what to write instead of a field's former name; "" for any other error."""
    name = RENAMED_FIELDS.get(".".join(parts[-2:])) if kind == "extra_forbidden" else None
    return f"It is now called {name}: write that instead." if name else ""


def _value_text(kind: str, value: Any, context: Mapping[str, Any]) -> str:
    """Return the value given for a field as a string; "" if there was none."""
    if kind in ("missing", "union_tag_not_found"):
        return ""  # pydantic names the object that lacks the field
    if kind == "union_tag_invalid":
        return str(context.get("tag", ""))
    return json.dumps(mask(value), default=str) if isinstance(value, dict | list) else str(value)


def _plain(kind: str, message: str, context: Mapping[str, Any]) -> tuple[str, str]:
    match kind:
        case "missing":
            return "is missing.", "Set it."
        case "extra_forbidden":
            return "is not a field of a definition.", "Remove it, or check its spelling."
        case "union_tag_invalid" | "union_tag_not_found":
            expected = str(context.get("expected_tags", "'sql', 'python'"))
            return "does not specify the kind.", f"Use one of {expected}."
        case "literal_error" | "enum":
            return "is not an allowed value.", f"Use {context['expected']}."
        case _:
            plain = message.removeprefix("Input ").removeprefix("Value error, ")
            return f"{plain[:1].lower()}{plain[1:]}.", _way_out(kind)


def _way_out(kind: str) -> str:
    """Return what to write instead of a value that pydantic rejects for its type or size."""
    advice = next((words for start, words in _WRITE.items() if kind.startswith(start)), None)
    return advice or "Correct the value."


#: Prefix of pydantic's error types -> what to do.
_WRITE = {
    "string_too": "Write text within the allowed length.",
    "string": "Write text.",
    "int": "Write a whole number.",
    "float": "Write a number.",
    "bool": "Write true or false.",
    "list": "Write a list.",
    "tuple": "Write a list.",
    "too_long": "Send fewer entries.",
    "dict": "Write an object.",
    "model": "Write an object.",
    "datetime": "Write a time with its offset: 2026-01-05T03:00:00+00:00.",
    "greater": "Choose a larger number.",
    "less": "Choose a smaller number.",
}


def mask_problems(form: dict[str, Any]) -> list[Problem]:
    """Return a problem for each string that still contains a mask, which cannot be stored."""
    return [
        Problem(
            field,
            "",
            "still contains the dots that replace a masked secret.",
            'Use a reference: "env:NAME" or "file:NAME".',
        )
        for field in still_masked(form)
    ]


def once(problems: list[Problem]) -> list[Problem]:
    """Return the problems in order, without repeats of the same field and message."""
    return list({(problem.field, problem.message): problem for problem in problems}.values())
