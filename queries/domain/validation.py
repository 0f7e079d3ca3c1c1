"""Say what is wrong with a definition before anything starts: field, value, way out.

Everything here is pure. What must be looked up (names taken, checkpoints held, modules on
disk) is handed in by the catalog, so that one set of rules serves page, API and first run.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from queries.domain import configuration, formats, sql_text, triggers
from queries.domain.errors import Invalid, Problem
from queries.domain.masking import mask, still_masked
from queries.domain.spec import ApplicationSpec, PoolSpec, PythonQuery, QuerySpec, SqlQuery

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
#: The packages that share a driver's import path with users' code: ours, Spark's and py4j.
RESERVED_MODULES = frozenset(
    {
        "queries",
        "listeners",
        "controlplane",
        "headgate_async",
        "examples",
        "tests",
        "benchmarks",
        "manage",
        "pyspark",
        "py4j",
    }
)
#: Spark refuses less: 1.5 × the 300 MB it reserves (INVALID_DRIVER_MEMORY).
MEMORY_MIN_MB = 512

_QUERY: TypeAdapter[SqlQuery | PythonQuery] = TypeAdapter(QuerySpec)
_POOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 ._-]{0,79}")
_MASTER = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?|spark://[\w.-]+:\d+(,[\w.-]+:\d+)*")
_MEMORY = re.compile(r"(\d+)([mg])", re.IGNORECASE)
_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_FUNCTION = re.compile(rf"({_DOTTED}):([A-Za-z_]\w*)")
#: Members of the discriminated unions, which pydantic puts into an error's path: at its
#: beginning (the query's kind) and after "trigger".
_TAGS = frozenset(
    {"sql", "python", "processing_time", "once", "available_now", "continuous", "real_time"}
)


@dataclass(frozen=True, slots=True)
class Root:
    """A code root as it lies on disk."""

    path: str
    exists: bool
    allowed: bool  # lies under a root that the settings allow
    modules: frozenset[str]  # names of the modules and packages directly in it


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What validation may not look up by itself."""

    code_roots: tuple[str, ...] = ()  # allowed ones, for the way out
    roots: tuple[Root, ...] = ()  # the definition's python_path
    connectors: frozenset[str] = frozenset()  # installed
    secret_env: tuple[str, ...] = ()  # names that "env:NAME" may resolve


def parse_query(raw: Mapping[str, Any]) -> SqlQuery | PythonQuery:
    """Return a query's definition; raise `Invalid` where its shape is wrong."""
    try:
        return _QUERY.validate_python(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error


def parse_application(raw: Mapping[str, Any]) -> ApplicationSpec:
    """Return an application's definition; raise `Invalid` where its shape is wrong."""
    try:
        return ApplicationSpec.model_validate(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error


def parse_pool(raw: Mapping[str, Any]) -> PoolSpec:
    """Return a pool's definition; raise `Invalid` where it is wrong."""
    try:
        pool = PoolSpec.model_validate(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error
    if not _POOL_NAME.fullmatch(pool.name):
        way_out = "Use 1 to 80 letters, digits, spaces and . _ -"
        raise Invalid([Problem("name", pool.name, "is no name for a pool.", way_out)])
    if pool.name == "default":
        way_out = "Queries without a pool are in it."
        raise Invalid([Problem("name", pool.name, "is Spark's own pool.", way_out)])
    return pool


def as_json(spec: SqlQuery | PythonQuery | ApplicationSpec | PoolSpec) -> dict[str, Any]:
    """Return the one JSON form of a definition."""
    return spec.model_dump(mode="json", by_alias=True)


def name_problems(name: str, *, taken: bool = False, what: str = "query") -> list[Problem]:
    """Return what is wrong with the name of a query or an application."""
    if not NAME.fullmatch(name):
        return [
            Problem(
                "name",
                name[:200],
                "is not a name that can be used.",
                "Use 1 to 63 lower-case letters, digits and . _ -, first a letter or digit.",
            )
        ]
    if taken:
        return [Problem("name", name, f"is the name of another {what}.", "Choose another.")]
    return []


def query_problems(
    spec: SqlQuery | PythonQuery,
    *,
    application: ApplicationSpec,
    pools: Iterable[str],
    surroundings: Surroundings,
) -> list[Problem]:
    """Return everything that is wrong with a query in its application."""
    problems = _pool(spec.pool, application, sorted(pools))
    problems += configuration.query_conf_problems(spec.conf)
    problems += formats.sink_problems(
        spec.sink, required=isinstance(spec, SqlQuery), connectors=application.connectors
    )
    problems += triggers.trigger_problems(spec)
    if isinstance(spec, SqlQuery):
        problems += formats.source_problems(spec, connectors=application.connectors)
        problems += formats.own_output_problems(spec)
        problems += sql_text.sql_problems(spec)
    else:
        problems += _function(spec, application)
        problems += configuration.secret_problems("params", spec.params)
    return _once(problems + _references(spec, surroundings) + _masks(as_json(spec)))


def application_problems(spec: ApplicationSpec, *, surroundings: Surroundings) -> list[Problem]:
    """Return everything that is wrong with an application."""
    problems = _resources(spec)
    problems += configuration.application_conf_problems(spec.conf)
    problems += configuration.reference_problems("conf", spec.conf, allowed=surroundings.secret_env)
    problems += configuration.environment_problems(spec.env, allowed=surroundings.secret_env)
    for index, root in enumerate(surroundings.roots):
        problems += _root(f"python_path.{index}", root, surroundings.code_roots)
    problems += _connectors(spec, surroundings.connectors)
    problems += _listeners(spec)
    if spec.policy.max_delay_s < spec.policy.base_delay_s:
        problems.append(
            Problem(
                "policy.max_delay_s",
                str(spec.policy.max_delay_s),
                "is less than base_delay_s.",
                "Give the longest delay a value of base_delay_s or more.",
            )
        )
    return _once(problems + _masks(as_json(spec)))


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


def _pool(name: str, application: ApplicationSpec, known: list[str]) -> list[Problem]:
    if not name or name == "default":
        return []
    if name not in known:
        way_out = f"The application has {', '.join(known)}." if known else "Make the pool first."
        return [Problem("pool", name, "is not a pool of the application.", way_out)]
    if application.scheduler_mode != "FAIR":
        return [
            Problem(
                "pool",
                name,
                "does nothing while the application's scheduler mode is FIFO.",
                "Set the scheduler mode to FAIR, or leave the pool empty.",
            )
        ]
    return []


def _function(spec: PythonQuery, application: ApplicationSpec) -> list[Problem]:
    problems = []
    if not _FUNCTION.fullmatch(spec.function):
        problems.append(
            Problem(
                "function",
                spec.function[:200],
                "does not name a function.",
                'Write "module:function", such as "flights_by_hour:build".',
            )
        )
    if not application.python_path:
        problems.append(
            Problem(
                "function",
                spec.function[:200],
                "cannot be found: the application has no Python path.",
                "Set the application's python_path to the folder that holds the module.",
            )
        )
    return problems


def _resources(spec: ApplicationSpec) -> list[Problem]:
    problems = []
    if not _MASTER.fullmatch(spec.master):
        problems.append(
            Problem(
                "master",
                spec.master[:200],
                "is not a master that Headgate launches on.",
                "Use local[N] or spark://host:port.",
            )
        )
    memory = _MEMORY.fullmatch(spec.memory)
    if not memory:
        problems.append(
            Problem("memory", spec.memory[:200], "is not an amount.", 'Write "1g" or "1536m".')
        )
    elif int(memory[1]) * (1024 if memory[2].lower() == "g" else 1) < MEMORY_MIN_MB:
        problems.append(
            Problem("memory", spec.memory, "is too little for Spark.", "Give 512m or more.")
        )
    return problems


def _root(field: str, root: Root, allowed: tuple[str, ...]) -> list[Problem]:
    if not root.path.startswith("/"):
        return [Problem(field, root.path[:200], "is not absolute.", "Begin it with /.")]
    if not root.allowed:
        return [
            Problem(
                field,
                root.path,
                "lies outside of the folders that may hold code.",
                f"Put it under {' or '.join(allowed) or 'what HEADGATE_CODE_ROOTS names'}.",
            )
        ]
    if not root.exists:
        return [Problem(field, root.path, "is not a folder.", "Create it, or correct the path.")]
    return [
        Problem(
            field,
            root.path,
            f"holds a module named {name}, which the driver imports from elsewhere.",
            f"Rename {name}, or choose a folder below.",
        )
        for name in sorted(root.modules & RESERVED_MODULES)
    ]


def _connectors(spec: ApplicationSpec, installed: frozenset[str]) -> list[Problem]:
    return [
        Problem(
            f"connectors.{index}",
            name,
            "is not installed.",
            f"There are {', '.join(sorted(installed))}."
            if installed
            else "No connector is installed on this host: build it into HEADGATE_CONNECTORS first.",
        )
        for index, name in enumerate(spec.connectors)
        if name not in installed
    ]


def _listeners(spec: ApplicationSpec) -> list[Problem]:
    problems = []
    for index, name in enumerate(spec.listeners):
        if not _FUNCTION.fullmatch(name):
            way_out = 'Write "module:Class".'
            problems.append(
                Problem(f"listeners.{index}", name[:200], "does not name a class.", way_out)
            )
        elif not spec.python_path:
            problems.append(
                Problem(
                    f"listeners.{index}",
                    name,
                    "cannot be found: the application has no Python path.",
                    "Set python_path to the folder that holds the module.",
                )
            )
    return problems


def _references(spec: SqlQuery | PythonQuery, surroundings: Surroundings) -> list[Problem]:
    places: list[tuple[str, Mapping[str, object]]] = [("conf", spec.conf)]
    if spec.sink:
        places.append(("sink.options", spec.sink.options))
    if isinstance(spec, SqlQuery):
        places += [(f"sources.{i}.options", one.options) for i, one in enumerate(spec.sources)]
        places += [(f"tables.{i}.options", one.options) for i, one in enumerate(spec.tables)]
    else:
        places.append(("params", spec.params))
    return [
        problem
        for field, values in places
        for problem in configuration.reference_problems(
            field, values, allowed=surroundings.secret_env
        )
    ]


def _masks(form: dict[str, Any]) -> list[Problem]:
    return [
        Problem(
            field,
            "",
            "still holds the dots that hide a secret.",
            'Write the reference, "env:NAME" or "file:NAME".',
        )
        for field in still_masked(form)
    ]


def _once(problems: list[Problem]) -> list[Problem]:
    """Return the problems without repetitions, one a field and message, in order."""
    return list({(each.field, each.message): each for each in problems}.values())
