"""Validate an application's definition, field by field, with its code, packages and script."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from headgate_ground.packages import OURS
from queries.domain.catalogs import CatalogSpec, key_problems
from queries.domain.code import references
from queries.domain.code.archives import sha256_of
from queries.domain.code.references import git_problems
from queries.domain.definitions import configuration, declarations
from queries.domain.definitions.allowed_paths import conf_places
from queries.domain.definitions.declarations import Declared, conf_of
from queries.domain.definitions.kubernetes import kubernetes_problems
from queries.domain.definitions.parsing import as_json, mask_problems, once
from queries.domain.definitions.spec import ApplicationSpec, Code, Script
from queries.domain.errors import Problem
from queries.domain.schedules.checks import schedule_problems
from queries.domain.sparks import OURS as SPARKS_OURS
from queries.domain.sparks import command
from queries.domain.validation import formats, pod_rules, spark_rules, tables
from queries.domain.validation.formats import store_problems, yarn_problems

#: The packages that share a driver's import path with users' code: ours, Spark's and py4j.
RESERVED_MODULES = frozenset(
    {
        *OURS,
        "examples",
        "tests",
        "benchmarks",
        "manage",
        "pyspark",
        "py4j",
    }
)
#: Reported for a module that a definition refers to although it has no code.
WITHOUT_CODE = "cannot be found because the application has no code."


@dataclass(frozen=True, slots=True)
class CodeState:
    """What is known about the code that a definition refers to."""

    is_available: bool = False  # it was uploaded or fetched
    modules: frozenset[str] = frozenset()  # names of the modules and packages directly in it


NO_CODE = CodeState()


def code_problems(
    spec: ApplicationSpec, *, code_state: CodeState, hosts: frozenset[str]
) -> list[Problem]:
    """Return what is wrong with an upload or a reference; `hosts` are those listed by an admin."""
    code = spec.code
    if code is None:
        return []
    if bool(code.upload) == bool(code.git):
        message = "sets both an upload and a git repository." if code.upload else "sets no code."
        way_out = 'Write {"upload": "sha256:…"} or {"git": "https://…", "commit": "…"}.'
        return [Problem("code", "", message, way_out)]
    problems = _upload_problems(code, code_state) if code.upload else []
    if code.git:
        problems = git_problems(code.git, code.commit, code.folder, hosts=hosts)
    field = "code.upload" if code.upload else "code.git"
    return problems + reserved(field, code.upload or code.git, code_state.modules)


def _upload_problems(code: Code, code_state: CodeState) -> list[Problem]:
    problems = [
        Problem(f"code.{name}", value[:200], "applies only to code from git.", "Remove it.")
        for name, value in (("commit", code.commit), ("ref", code.ref), ("folder", code.folder))
        if value
    ]
    if sha256_of(code.upload) is None:
        way_out = "Write sha256: and 64 hexadecimal digits, as returned by POST code/."
        problems.append(Problem("code.upload", code.upload, "is not a valid digest.", way_out))
    elif not code_state.is_available:
        way_out = "Upload the code with POST code/, then use the digest it returns."
        problems.append(Problem("code.upload", code.upload, "has not been uploaded.", way_out))
    return problems


def reserved(field: str, value: str, modules: frozenset[str]) -> list[Problem]:
    """Return a problem for each module that a driver imports from elsewhere."""
    return [
        Problem(
            field,
            value,
            f"contains a module named {name}, but the driver imports {name} from elsewhere.",
            f"Rename {name}, or choose a subfolder.",
        )
        for name in sorted(modules & RESERVED_MODULES)
    ]


def package_problems(spec: ApplicationSpec) -> list[Problem]:
    """Return what is wrong with the packages that an application requires."""
    return list(references.read(spec.packages).problems)


_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_MEMORY = re.compile(r"\d+[mg]", re.IGNORECASE)
_ARGUMENTS_AT_MOST = 200
_ARGUMENT_LIMIT = 4_096


def script_problems(spec: ApplicationSpec) -> list[Problem]:
    """Return what is wrong with an application's script, including a missing or unexpected one."""
    script = spec.script
    if spec.kind == "queries":
        if spec.schedule is not None:
            message = "applies only to applications of kind script."
            return [Problem("schedule", spec.schedule.kind, message, "Give it to a query instead.")]
        if script is None:
            return []
        way_out = "Set the kind to script, or remove the script."
        return [Problem("script", "", "applies only to applications of kind script.", way_out)]
    if script is None:
        return [Problem("script.file", "", "is missing.", "Set the script's file or module.")]
    problems = [*_program(script, spec), *_arguments(script), *_submit(script, spec)]
    if spec.require_preflight:
        text = "is not possible for a script because its queries are known only after it starts."
        problems.append(Problem("require_preflight", "true", text, "Turn it off."))
    if spec.schedule is not None and spec.schedule.params:
        text = "cannot be given to a script."
        problems.append(Problem("schedule.params", "", text, "Use the script's arguments."))
    return problems + schedule_problems(spec.schedule, ends=True)


def _program(script: Script, spec: ApplicationSpec) -> Iterable[Problem]:
    if bool(script.file) == bool(script.module):
        both = "is set twice." if script.file else "is missing."
        yield Problem("script.file", script.file[:200], both, "Set either a file or a module.")
        return
    if not spec.has_code:
        field = "script.file" if script.file else "script.module"
        value = script.file or script.module
        way_out = "Add the folder that contains it (python_path), or upload the code."
        message = WITHOUT_CODE
        yield Problem(field, value[:200], message, way_out)
    elif script.file:
        yield from _in_folders("script.file", script.file, spec)
        if not script.file.endswith(".py"):
            message = "is not a Python file."
            yield Problem("script.file", script.file[:200], message, "Use a file that ends in .py.")
    elif not _MODULE.fullmatch(script.module):
        message, way_out = "does not name a module.", 'Write "package.module".'
        yield Problem("script.module", script.module[:200], message, way_out)


def _in_folders(field: str, file: str, spec: ApplicationSpec) -> Iterable[Problem]:
    """Yield what is wrong with a file's path: it is absolute in a folder, or relative in `code`."""
    path, folders = PurePosixPath(file), spec.python_path
    if not file.startswith("/"):
        if spec.code is None:
            yield Problem(field, file[:200], "is not absolute.", "Start it with /.")
        elif ".." in path.parts:
            message, way_out = "points outside the application's code.", "Write it without “..”."
            yield Problem(field, file[:200], message, way_out)
        return
    if ".." in path.parts or not any(path.is_relative_to(folder) for folder in folders):
        under = f"Put it under {' or '.join(folders)}, or add" if folders else "Add"
        way_out = f"{under} its folder to python_path."
        yield Problem(field, file[:200], "is outside the application's code folders.", way_out)


def _arguments(script: Script) -> Iterable[Problem]:
    if len(script.arguments) > _ARGUMENTS_AT_MOST:
        way_out = (
            f"Use at most {_ARGUMENTS_AT_MOST} arguments; put the others into a file in the code "
            "folder."
        )
        count = str(len(script.arguments))
        yield Problem("script.arguments", count, "arguments are too many.", way_out)
    for index, text in enumerate(script.arguments):
        if len(text) > _ARGUMENT_LIMIT or "\0" in text:
            way_out = f"Use at most {_ARGUMENT_LIMIT} characters and no NUL."
            yield Problem(
                f"script.arguments.{index}", text[:100], "is not a valid argument.", way_out
            )


def _submit(script: Script, spec: ApplicationSpec) -> Iterable[Problem]:
    submit = script.submit
    for name, files in (("py_files", submit.py_files), ("files", submit.files)):
        for index, file in enumerate(files):
            yield from _in_folders(f"script.submit.{name}.{index}", file, spec)
    if submit.executor_memory and not _MEMORY.fullmatch(submit.executor_memory):
        message, way_out = "is not an amount of memory.", 'Write "1g" or "1536m".'
        yield Problem(
            "script.submit.executor_memory", submit.executor_memory[:200], message, way_out
        )
    sizes = {
        "executor_memory": submit.executor_memory,
        "executor_cores": submit.executor_cores,
        "num_executors": submit.num_executors,
        "total_executor_cores": submit.total_executor_cores,
    }
    for name, value in sizes.items():
        if value and spec.master.startswith("local"):
            message = f"has no effect with {spec.master}, where the driver is the only executor."
            way_out = "Choose a cluster master, or remove it."
            yield Problem(f"script.submit.{name}", str(value), message, way_out)


#: Spark rejects less: 1.5 × the 300 MB it reserves (INVALID_DRIVER_MEMORY).
MEMORY_MIN_MB = 512

#: "package.module:name", the form used for functions and listeners.
MEMBER = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*):([A-Za-z_]\w*)")

_MASTER = re.compile(
    r"local(\[(\d+|\*)(,\s*\d+)?\])?|spark://[\w.-]+:\d+(,[\w.-]+:\d+)*"
    r"|yarn|k8s://(https?://)?[\w.-]+(:\d+)?"
)
_MEMORY_SETTING = re.compile(r"(\d+)([mg])", re.IGNORECASE)


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
    sparks: frozenset[str] = frozenset({SPARKS_OURS})  # installed
    connectors: frozenset[str] = frozenset()  # installed for the application's Spark
    recipes: frozenset[str] = frozenset()  # connectors that a command downloads
    declared: Mapping[str, Declared] = field(default_factory=dict)  # by connector's name
    #: Those of the application's that exist, by name.
    catalogs: Mapping[str, CatalogSpec] = field(default_factory=dict)
    pod_image: str = ""  # of drivers' pods, unless a definition names one
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
    problems += declarations.untyped(spec.conf, conf)
    named = list(conf_places(spec.conf))
    problems += store_problems(named, spec.connectors, surroundings.recipes)
    problems += yarn_problems(named, spec.master)
    problems += kubernetes_problems(
        spec.master, spec.conf, default_image=pod_rules.image(spec, default=surroundings.pod_image)
    )
    problems += pod_rules.application_problems(spec, default_image=surroundings.pod_image)
    problems += pod_rules.place_problems(named, spec)
    problems += configuration.reference_problems("conf", spec.conf, allowed=surroundings.secret_env)
    problems += configuration.environment_problems(spec.env, allowed=surroundings.secret_env)
    for index, root in enumerate(surroundings.roots):
        problems += _root(f"python_path.{index}", root, surroundings.code_roots)
    problems += code_problems(
        spec, code_state=surroundings.code_state, hosts=surroundings.code_hosts
    )
    problems += package_problems(spec)
    problems += _connectors(spec, surroundings.connectors, surroundings.recipes)
    problems += _catalogs(spec, surroundings.catalogs)
    problems += _listeners(spec)
    problems += script_problems(spec)
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
    memory = _MEMORY_SETTING.fullmatch(spec.memory)
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
    if spec.spark != SPARKS_OURS:
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


def _catalogs(spec: ApplicationSpec, declared: Mapping[str, CatalogSpec]) -> list[Problem]:
    """Return why an application cannot use the catalogs that it names, if they exist."""
    problems = key_problems(spec.conf, spec.catalogs)
    needed = {"iceberg"} if declared else set()
    needed |= {"s3" for catalog in declared.values() if catalog.uses_s3}
    for name in sorted(needed - set(spec.connectors)):
        message = f"must include {name}, which {', '.join(sorted(declared))} requires."
        problems.append(Problem("connectors", "", message, f"Add the connector {name}."))
    return problems


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
