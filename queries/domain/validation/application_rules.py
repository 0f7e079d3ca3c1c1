"""Validate an application's definition, field by field."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from queries.domain.definitions import catalogs, configuration
from queries.domain.definitions.data_roots import conf_places
from queries.domain.definitions.declared_connectors import Declared, conf_of
from queries.domain.definitions.parsing import as_json, mask_problems, once
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import Problem
from queries.domain.sparks import OURS, command
from queries.domain.validation import formats, script_rules, spark_rules, tables
from queries.domain.validation.code_rules import (
    NO_CODE,
    WITHOUT_CODE,
    CodeState,
    code_problems,
    package_problems,
    reserved,
)
from queries.domain.validation.stores import store_problems, yarn_problems

#: Spark rejects less: 1.5 × the 300 MB it reserves (INVALID_DRIVER_MEMORY).
MEMORY_MIN_MB = 512

#: "package.module:name", the form used for functions and listeners.
MEMBER = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*):([A-Za-z_]\w*)")

_MASTER = re.compile(
    r"local(\[(\d+|\*)(,\s*\d+)?\])?|spark://[\w.-]+:\d+(,[\w.-]+:\d+)*"
    r"|yarn|k8s://(https?://)?[\w.-]+(:\d+)?"
)
_MEMORY = re.compile(r"(\d+)([mg])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Root:
    """A code root as found on disk."""

    path: str
    exists: bool
    allowed: bool  # within a root that the settings allow
    modules: frozenset[str]  # names of the modules and packages directly in it


@dataclass(frozen=True, slots=True)
class ValidationContext:
    """What validation needs but must not look up itself."""

    code_roots: tuple[str, ...] = ()  # allowed ones, for error messages
    roots: tuple[Root, ...] = ()  # the definition's python_path
    code_state: CodeState = NO_CODE  # the definition's code
    code_hosts: frozenset[str] = frozenset()  # listed by an admin
    sparks: frozenset[str] = frozenset({OURS})  # installed
    connectors: frozenset[str] = frozenset()  # installed for the application's Spark
    recipes: frozenset[str] = frozenset()  # connectors that a command downloads
    declared: Mapping[str, Declared] = field(default_factory=dict)  # by connector's name
    secret_env: tuple[str, ...] = ()  # names that "env:NAME" may resolve
    host_cores: int | None = None  # of this host, for local[*]
    partitions: Mapping[str, int] = field(default_factory=dict)  # by source name, as looked up
    beside: Mapping[str, int] = field(default_factory=dict)  # cores held by other queries


def application_problems(
    spec: ApplicationSpec, *, surroundings: ValidationContext
) -> list[Problem]:
    """Return everything that is wrong with an application."""
    problems = _spark(spec, surroundings.sparks) + _resources(spec)
    problems += configuration.application_conf_problems(spec.conf)
    problems += spark_rules.conf_problems(spec.conf, spec.spark)
    conf = {**conf_of(surroundings.declared.values()), **spec.conf}
    problems += catalogs.untyped(spec.conf, conf)
    named = list(conf_places(spec.conf))
    problems += store_problems(named, spec.connectors, surroundings.recipes)
    problems += yarn_problems(named, spec.master)
    problems += configuration.reference_problems("conf", spec.conf, allowed=surroundings.secret_env)
    problems += configuration.environment_problems(spec.env, allowed=surroundings.secret_env)
    for index, root in enumerate(surroundings.roots):
        problems += _root(f"python_path.{index}", root, surroundings.code_roots)
    problems += code_problems(
        spec, code_state=surroundings.code_state, hosts=surroundings.code_hosts
    )
    problems += package_problems(spec)
    problems += _connectors(spec, surroundings.connectors, surroundings.recipes)
    problems += _listeners(spec)
    problems += script_rules.script_problems(spec)
    problems += _standby(spec)
    if spec.policy.max_delay_s < spec.policy.base_delay_s:
        problems.append(
            Problem(
                "policy.max_delay_s",
                str(spec.policy.max_delay_s),
                "is less than base_delay_s.",
                "Set max_delay_s to base_delay_s or more.",
            )
        )
    return once(problems + mask_problems(as_json(spec)))


def _spark(spec: ApplicationSpec, installed: frozenset[str]) -> list[Problem]:
    if spec.spark in installed:
        return []
    way_out = f"Run `{command(spec.spark)}` there, or choose {', '.join(sorted(installed))}."
    return [Problem("spark", spec.spark, "is not installed on this host.", way_out)]


def _resources(spec: ApplicationSpec) -> list[Problem]:
    problems = []
    if not _MASTER.fullmatch(spec.master):
        message = "is not a master that Headgate supports."
        way_out = "Use local[N], spark://host:port, yarn or k8s://https://host:port."
        problems.append(Problem("master", spec.master[:200], message, way_out))
    memory = _MEMORY.fullmatch(spec.memory)
    if not memory:
        message = "is not an amount of memory."
        problems.append(Problem("memory", spec.memory[:200], message, 'Write "1g" or "1536m".'))
    elif int(memory[1]) * (1024 if memory[2].lower() == "g" else 1) < MEMORY_MIN_MB:
        way_out = "Use 512m or more."
        problems.append(Problem("memory", spec.memory, "is too little for Spark.", way_out))
    return problems


def _standby(spec: ApplicationSpec) -> list[Problem]:
    if spec.standby == "none":
        return []
    if spec.kind == "script":
        message, way_out = "needs defined queries: a script starts Spark itself.", 'Choose "none".'
    elif not spec.master.startswith("local"):
        message = (
            f"needs a local master: with {spec.master}, it would hold executors of the cluster."
        )
        way_out = 'Choose "none", or local[N].'
    else:
        return []
    return [Problem("standby", spec.standby, message, way_out)]


def _root(field: str, root: Root, allowed: tuple[str, ...]) -> list[Problem]:
    if not root.path.startswith("/"):
        return [Problem(field, root.path[:200], "is not absolute.", "Start it with /.")]
    if not root.allowed:
        way_out = f"Put it under {' or '.join(allowed) or 'a folder in HEADGATE_CODE_ROOTS'}."
        return [Problem(field, root.path, "is outside the folders allowed for code.", way_out)]
    if not root.exists:
        return [Problem(field, root.path, "is not a folder.", "Create it, or correct the path.")]
    return reserved(field, root.path, root.modules)


def _connectors(
    spec: ApplicationSpec, installed: frozenset[str], recipes: frozenset[str]
) -> list[Problem]:
    missing = "is not an installed connector."
    if spec.spark != OURS:
        missing = f"is not installed for Spark {spec.spark}."
    others = f" Choose {', '.join(sorted(installed))}." if installed else ""
    return [
        Problem(
            f"connectors.{index}",
            name[:200],
            *(
                tables.no_release(name, spec.spark)
                or (missing, formats.connector_way_out(name, recipes, spec.spark) + others)
            ),
        )
        for index, name in enumerate(spec.connectors)
        if name not in installed
    ]


def _listeners(spec: ApplicationSpec) -> list[Problem]:
    problems = []
    for index, name in enumerate(spec.listeners):
        if not MEMBER.fullmatch(name):
            way_out = 'Write "module:Class".'
            message = "does not name a class."
            problems.append(Problem(f"listeners.{index}", name[:200], message, way_out))
        elif not spec.has_code:
            message = WITHOUT_CODE
            way_out = "Add the folder that contains the module (python_path), or upload the code."
            problems.append(Problem(f"listeners.{index}", name, message, way_out))
    return problems
