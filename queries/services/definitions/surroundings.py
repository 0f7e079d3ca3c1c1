"""Look up facts for validation: settings, this host's folders and connectors, places outside
allowed paths.
"""

import ast
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings

from listeners.loops.backlogs import loop_errors
from queries.code_roots import has_module
from queries.domain.code.archives import sha256_of
from queries.domain.definitions.allowed_paths import (
    AllowedPaths,
    conf_places,
    fixed_part,
    places,
    resolved,
)
from queries.domain.definitions.locations import NotALocation, local_path
from queries.domain.definitions.spec import ApplicationSpec, Code, PythonQuery
from queries.domain.errors import Problem
from queries.domain.validation.application_rules import CodeState, Root, ValidationContext
from queries.models.applications import Application, UploadedCode
from queries.models.definitions import Checkpoint, Query
from queries.selectors.catalogs import catalog_specs
from queries.selectors.code import code_hosts, root_of
from queries.selectors.definitions.definitions import declared_connectors, ready_connectors, recipes
from queries.selectors.rows import newest_revisions
from queries.selectors.secrets import all_given_roots
from queries.selectors.spark_folders import installed_sparks
from queries.selectors.supervision.applications import newest_application_revisions
from queries.selectors.triggers.cores import parsed_or_none
from queries.services.local_roots import allowed_paths, follow, is_own, outside


def look(application: ApplicationSpec) -> ValidationContext:
    """Return the facts of this host that an application's definition depends on."""
    return ValidationContext(
        code_roots=tuple(str(root) for root in settings.CODE_ROOTS),
        roots=tuple(_root(path) for path in application.python_path),
        code_state=_kept(application.code),
        code_hosts=code_hosts() if application.code else frozenset(),
        sparks=installed_sparks(),
        connectors=ready_connectors(application.spark),
        recipes=recipes(application.spark),
        declared=declared_connectors(application.spark),
        catalogs=catalog_specs(application.catalogs),
        pod_image=settings.POD_IMAGE,
        secret_env=tuple(settings.SECRET_ENV_ALLOWLIST),
        host_cores=os.cpu_count(),
    )


def function_problems(spec: PythonQuery, application: ApplicationSpec) -> list[Problem]:
    """Return a problem if the module or the function certainly does not exist."""
    return _member_problems("function", spec.function, application, "function")


def listener_problems(application: ApplicationSpec) -> list[Problem]:
    """Return a problem for each listener whose module or class certainly does not exist."""
    return [
        problem
        for index, name in enumerate(application.listeners)
        for problem in _member_problems(f"listeners.{index}", name, application, "class")
    ]


def script_problems(application: ApplicationSpec) -> list[Problem]:
    """Return a problem for each file or module of the script that certainly does not exist."""
    script = application.script
    roots = tuple(root for root in application.python_path if _root(root).allowed)
    kept = root_of(application.code)
    if application.code is not None and kept is None:
        return []  # fetched at the start, or already reported as missing
    roots = (*roots, *([str(kept)] if kept is not None else []))
    if application.kind != "script" or script is None or not roots:
        return []
    named = {"script.file": script.file} if script.file else {}
    for name, files in (("py_files", script.submit.py_files), ("files", script.submit.files)):
        named |= {f"script.submit.{name}.{place}": file for place, file in enumerate(files)}
    problems = [
        Problem(field, file, "is not a file on this host.", "Correct the path, or create the file.")
        for field, file in named.items()
        if any(_is_missing(file, root) for root in (roots if file.startswith("/") else roots[-1:]))
    ]
    if script.module and not has_module(roots, script.module):
        message = f"cannot be found in {_folders(application)}."
        way_out = "Correct the name, or add the module to the application's code."
        problems.append(Problem("script.module", script.module, message, way_out))
    return problems


def _is_missing(file: str, root: str) -> bool:
    """Return whether a file belongs in a root but does not exist."""
    place = Path(root) / file
    return place.is_relative_to(root) and ".." not in place.parts and not place.is_file()


def _folders(application: ApplicationSpec) -> str:
    kept = ["the application's code"] if application.code is not None else []
    return ", ".join([*application.python_path, *kept])


def _root(path: str) -> Root:
    folder = Path(path)
    resolved = folder.resolve()
    exists = folder.is_absolute() and resolved.is_dir()
    allowed = any(resolved.is_relative_to(root) for root in settings.CODE_ROOTS)
    modules = _modules(resolved) if exists and allowed else frozenset()
    return Root(path=path, exists=exists, allowed=allowed, modules=modules)


def _modules(folder: Path) -> frozenset[str]:
    return frozenset(
        each.name.split(".")[0]
        for each in folder.iterdir()
        if each.is_dir() or each.suffix in (".py", ".so", ".pyc")
    )


def _kept(code: Code | None) -> CodeState:
    """Return the metadata of uploaded code, or of code fetched from git."""
    if code is None:
        return CodeState()
    root = root_of(code)
    known = root is not None
    if code.upload:
        known = UploadedCode.objects.filter(sha256=sha256_of(code.upload)).exists()
    return CodeState(known, _modules(root) if root is not None else frozenset())


def _member_problems(
    field: str, text: str, application: ApplicationSpec, what: str
) -> list[Problem]:
    module, _, member = text.partition(":")
    roots = [Path(root) for root in application.python_path if _root(root).allowed]
    if application.code is not None:
        kept = root_of(application.code)
        if kept is None:
            return []  # fetched at the start, or already reported as missing
        roots.append(kept)
    if not member or not roots:
        return []  # already reported by the rules for forms
    relative = Path(*module.split("."))
    candidates = [
        path
        for root in roots
        for path in (root / relative.with_suffix(".py"), root / relative / "__init__.py")
    ]
    source = next((path for path in candidates if path.is_file()), None)
    if source is None:
        return [
            Problem(
                field,
                text,
                f"cannot be found: there is no module {module} in {_folders(application)}.",
                "Correct the name, or add the module to the application's code.",
            )
        ]
    try:
        tree = ast.parse(source.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return [Problem(field, text, f"cannot be read{line}: {error}.", f"Fix {source.name}.")]
    if member in _names(tree) or "*" in _names(tree):
        return []
    return [
        Problem(
            field,
            text,
            f"cannot be found: {source.name} contains no {what} {member}.",
            f"Correct the name, or write the {what}.",
        )
    ]


def _names(tree: ast.Module) -> set[str]:
    """Return every name that a module may define at its top level, including "*"."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(each.asname or each.name).split(".")[0] for each in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


_each = loop_errors("places in use", logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class Outside:
    """A place that an existing definition names and that is not in any allowed path."""

    application: str  # its name
    about: str  # "query delays" or "application flights"
    field: str
    text: str
    root: str  # the folder or URL prefix that would allow it


def places_outside() -> Iterator[Outside]:
    """Yield the places in existing definitions that are outside the allowed paths."""
    given = all_given_roots()

    @cache  # resolve links once per application, not per query
    def roots_of(application: str, *, checkpoints: bool = False) -> AllowedPaths:
        mine = given.get(application, ())
        return allowed_paths(application, checkpoints=checkpoints, granted_roots=mine)

    living = Query.objects.filter(archived_at=None).values_list("pk", "name", "application__name")
    queries = {pk: (name, application) for pk, name, application in living}
    for pk, revision in sorted(newest_revisions(list(queries)).items()):
        name, application = queries[pk]
        spec = parsed_or_none(revision.spec)
        if spec is not None:
            for problem in outside(places(spec), roots_of(application)):
                yield _outside(application, f"query {name}", problem)
    used = Checkpoint.objects.filter(query__in=queries, retired_at=None).order_by("query")
    for pk, location in used.values_list("query", "location"):
        name, application = queries[pk]
        roots = roots_of(application, checkpoints=True)
        for problem in outside([("checkpoint", location)], roots):
            yield _outside(application, f"query {name}", problem)
    applications = dict(Application.objects.filter(archived_at=None).values_list("pk", "name"))
    for pk, newest in sorted(newest_application_revisions(list(applications)).items()):
        name = applications[pk]
        with _each.isolate_errors(f"application {name}"):
            conf = ApplicationSpec.model_validate(newest.spec).conf
            for problem in outside(conf_places(conf), roots_of(name)):
                yield _outside(name, f"application {name}", problem)


def _outside(application: str, about: str, problem: Problem) -> Outside:
    """Propose the folder that contains a place, so that its neighbours are allowed too.

    No folder is proposed if it is one of the control plane's own.
    """
    field, text = problem.field, problem.value
    try:
        location = resolved(fixed_part(text), follow)
    except NotALocation:
        return Outside(application, about, field, text, "")
    parent = location.rpartition("/")[0]
    root = local_path(parent) or parent
    return Outside(application, about, field, text, "" if is_own(root) else root)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A root that would include the places that an application names; "" if there is none."""

    application: str
    root: str
    places: tuple[Outside, ...]


def proposals() -> list[Proposal]:
    """Propose roots that would include the places outside, by application; none is granted."""
    found: dict[tuple[str, str], list[Outside]] = {}
    for one in places_outside():
        found.setdefault((one.application, one.root), []).append(one)
    return [Proposal(*key, tuple(places)) for key, places in sorted(found.items())]
