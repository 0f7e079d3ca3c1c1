"""Run parameters: defaults in the definition, values given at a start.

Spark converts text to STRING, whole numbers to INT or BIGINT (by size), decimals to DOUBLE, and
true and false to BOOLEAN; cast in the SQL for another type, as in `CAST(:day AS DATE)`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from headgate_ground.masking import MASK, is_reference, is_secret_name
from queries.domain.accepted_values import unstorable
from queries.domain.definitions.spec import SqlQuery
from queries.domain.definitions.sql_text import parameters
from queries.domain.definitions.sql_verdict import not_bound, without_default
from queries.domain.errors import Invalid, Problem

#: What Spark's grammar accepts after the colon.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_KINDS = {str: "text", int: "a whole number", float: "a decimal", bool: "true or false"}
#: The range of Spark's BIGINT.
_BIGINT = 2**63


def sql_params_problems(spec: SqlQuery) -> list[Problem]:
    """Return what is wrong with the parameters of a SQL query: names, values, use in the SQL."""
    problems = []
    for name, value in spec.params.items():
        field = f"params.{name}"
        if not _NAME.fullmatch(name):
            message, way_out = "is not a valid name.", "Use letters, digits and underscores."
            problems.append(Problem(field, name, message, way_out))
        elif isinstance(value, str) and is_reference(value):
            message = "refers to a secret, which Spark would show in its plans."
            problems.append(Problem(field, value, message, "Use secrets in options only."))
        elif type(value) not in _KINDS:
            message = "is not a value that SQL can use."
            way_out = "Use text, a number, true or false."
            problems.append(Problem(field, str(value)[:200], message, way_out))
        elif type(value) is int and not -_BIGINT <= value < _BIGINT:
            message = "is not within the range of BIGINT."
            problems.append(Problem(field, str(value), message, "Use a smaller number, or text."))
    markers = parameters(spec)
    if markers is None:
        return problems  # only Spark can parse the text
    used_markers, others = markers
    problems += map(not_bound, sorted(others))
    problems += map(without_default, sorted(used_markers - spec.params.keys()))
    for name in sorted(spec.params.keys() - used_markers):
        message = "is not used by the SQL."
        problems.append(
            Problem(f"params.{name}", name, message, f"Use :{name} in the SQL, or remove it.")
        )
    return problems


def accepted(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values given at a start; raise `Invalid` naming each that cannot be used.

    Secrets belong to the definition: their references cannot be given or replaced at a start.
    """
    problems = [problem for name in values if (problem := _problem(defaults, name, values[name]))]
    if problems:
        raise Invalid(problems)
    return {
        name: float(value) if type(defaults[name]) is float else value
        for name, value in values.items()
    }


def givable(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that a start can replace: all except secrets."""
    return {
        name: value for name, value in defaults.items() if _problem(defaults, name, value) is None
    }


def kind_of(default: Any) -> str:
    """Return what to give for a parameter with this default, such as "a whole number"."""
    return _KINDS.get(type(default), "JSON")


def as_text(value: Any) -> str:
    """Return a value as `from_text` reads it."""
    return value if isinstance(value, str) else json.dumps(value)


def from_text(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values; strings are parsed as JSON if the default is not a string.

    A string that is not JSON stays a string, and `accepted` rejects it.
    """
    return {
        name: value if isinstance(defaults.get(name), str) else _read(value)
        for name, value in values.items()
    }


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def effective(defaults: Mapping[str, Any], values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values of a run: the defaults, with the given values that they still accept.

    A newer definition may have removed a name or changed its type; its own default then counts.
    """
    valid = {
        name: value
        for name, value in (values or {}).items()
        if _problem(defaults, name, value) is None
    }
    return {**defaults, **valid}


def _problem(defaults: Mapping[str, Any], name: str, value: Any) -> Problem | None:
    field = f"params.{name}"
    if name not in defaults:
        names = ", ".join(sorted(defaults)) or "none"
        return Problem(
            field,
            name,
            "is not a parameter of the definition.",
            f"It has these parameters: {names}.",
        )
    default = defaults[name]
    if any(isinstance(part, str) and is_reference(part) for part in (default, value)):
        message = "refers to a secret; a start cannot set secrets."
        return Problem(field, MASK, message, "Write the reference in the definition.")
    if is_secret_name(name):
        message = "has the name of a secret; a start cannot set secrets."
        return Problem(field, MASK, message, "Write a reference in the definition.")
    if _is_of_type(value, default):
        return next(unstorable(value, field, name), None)
    kind = _KINDS.get(type(default), "a JSON value of the same type")
    way_out = f"Use {kind}, like the default {json.dumps(default, default=str)}."
    return Problem(field, str(value)[:200], "has a different type than the default.", way_out)


def _is_of_type(value: Any, default: Any) -> bool:
    if type(value) is int and not -_BIGINT <= value < _BIGINT:
        return False
    if type(default) is float:
        return type(value) in {int, float}
    return default is None or type(value) is type(default)
