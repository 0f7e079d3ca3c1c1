"""Find what is wrong with a definition before anything starts: field, value, remedy.

Everything here is pure. What must be looked up (names taken, checkpoints in use, modules on disk)
is passed in by the catalog, so that the pages, the API and the first run share one set of rules.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from queries.domain.catalogs import catalog_conf, key_problems
from queries.domain.definitions import configuration, declarations, sql_text
from queries.domain.definitions.allowed_paths import places
from queries.domain.definitions.declarations import conf_of
from queries.domain.definitions.parsing import as_json, mask_problems, once
from queries.domain.definitions.spec import (
    ApplicationSpec,
    PythonQuery,
    Sink,
    Source,
    SqlQuery,
    Table,
)
from queries.domain.errors import Invalid, Problem
from queries.domain.schedules.checks import schedule_problems
from queries.domain.schedules.planning import rendered
from queries.domain.triggers import async_progress, limits
from queries.domain.triggers.cores import Ground, ground_of
from queries.domain.validation import formats, pod_rules, spark_rules, tables
from queries.domain.validation.application_rules import MEMBER, WITHOUT_CODE, ValidationContext
from queries.domain.validation.formats import store_problems, yarn_problems
from queries.domain.validation.params import accepted, sql_params_problems
from queries.domain.validation.thresholds import threshold_problems

#: A planned time with which a schedule's values are tried; which one does not matter.
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)
LONGEST_NAME = 63  # of a query or an application
NAME = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{LONGEST_NAME - 1}}}")


def name_problems(name: str, *, in_use: bool = False, what: str = "query") -> list[Problem]:
    """Return what is wrong with the name of a query or an application."""
    if not NAME.fullmatch(name):
        return [
            Problem(
                "name",
                name[:200],
                "is not a valid name.",
                "Use 1 to 63 lowercase letters, digits and . _ -, starting with a letter or digit.",
            )
        ]
    if in_use:
        return [Problem("name", name, f"is the name of another {what}.", "Choose another name.")]
    return []


def query_problems(
    spec: SqlQuery | PythonQuery,
    *,
    application: ApplicationSpec,
    pools: Iterable[str],
    surroundings: ValidationContext,
) -> list[Problem]:
    """Return everything that is wrong with a query in its application."""
    problems = _pool(spec.pool, application, sorted(pools))
    problems += configuration.query_conf_problems(spec.conf)
    conf = {**conf_of(surroundings.declared.values()), **application.conf, **spec.conf}
    problems += key_problems(spec.conf, application.catalogs)
    problems += declarations.untyped(spec.conf, conf)
    for catalog in surroundings.catalogs.values():
        conf |= catalog_conf(catalog)
    offer = formats.ConnectorOffer(
        application.connectors, application.spark, conf, declared=surroundings.declared
    )
    named = list(places(spec))
    problems += store_problems(named, application.connectors, surroundings.recipes)
    problems += yarn_problems(named, application.master)
    problems += pod_rules.place_problems(named, application)
    problems += formats.sink_problems(spec.sink, required=isinstance(spec, SqlQuery), offer=offer)
    problems += spark_rules.query_problems(spec, application.spark)
    problems += threshold_problems(spec.thresholds)
    problems += limits.trigger_problems(spec, ground(spec, application, surroundings))
    problems += _schedule_problems(spec)
    problems += async_progress.evolution_problems(spec, application.conf, application.spark)
    problems += spark_rules.naming_problems(spec, application.conf)
    if isinstance(spec, SqlQuery):
        problems += formats.source_problems(spec, offer=offer)
        problems += formats.own_output_problems(spec)
        problems += sql_text.sql_problems(spec)
        problems += sql_params_problems(spec)
        problems += tables.catalog_problems(sql_text.catalog_names(spec), conf)
    else:
        problems += _function(spec, application)
    problems += configuration.secret_problems("params", spec.params)
    return once(problems + _references(spec, surroundings) + mask_problems(as_json(spec)))


def _schedule_problems(spec: SqlQuery | PythonQuery) -> list[Problem]:
    problems = schedule_problems(spec.schedule, ends=spec.trigger.ends)
    if spec.schedule is None or problems:
        return problems
    try:
        accepted(spec.params, rendered(spec.schedule, _ANY_TIME))
    except Invalid as error:
        return [replace(problem, field=f"schedule.{problem.field}") for problem in error.problems]
    return []


def option_reach(spec: SqlQuery | PythonQuery) -> list[Problem]:
    """Return a problem for each option that reaches beyond its format.

    A definition that was saved before this rule existed may contain such an option; it must never
    be started.
    """
    parts: dict[str, Source | Table | Sink] = {"sink": spec.sink} if spec.sink else {}
    if isinstance(spec, SqlQuery):
        parts |= {f"sources.{index}": source for index, source in enumerate(spec.sources)}
        parts |= {f"tables.{index}": table for index, table in enumerate(spec.tables)}
    return [
        problem
        for field, part in parts.items()
        for problem in spark_rules.refused(f"{field}.options", part.format, part.options)
    ]


def ground(
    spec: SqlQuery | PythonQuery, application: ApplicationSpec, surroundings: ValidationContext
) -> Ground:
    """Return the conditions for a query's trigger: cores, partitions, cores held by others."""
    return ground_of(
        spec,
        application,
        host_cores=surroundings.host_cores,
        partitions=surroundings.partitions,
        beside=surroundings.beside,
    )


def _pool(name: str, application: ApplicationSpec, pools: list[str]) -> list[Problem]:
    if not name or name == "default":
        return []
    if name not in pools:
        way_out = f"Choose {', '.join(pools)}." if pools else "Create the pool first."
        return [Problem("pool", name, "is not a pool of the application.", way_out)]
    if application.scheduler_mode != "FAIR":
        message = "has no effect while the application's scheduler mode is FIFO."
        way_out = "Set the scheduler mode to FAIR, or leave the pool empty."
        return [Problem("pool", name, message, way_out)]
    return []


def _function(spec: PythonQuery, application: ApplicationSpec) -> list[Problem]:
    problems = []
    if not MEMBER.fullmatch(spec.function):
        message = "does not name a function."
        way_out = 'Write "module:function", such as "flights_by_hour:build".'
        problems.append(Problem("function", spec.function[:200], message, way_out))
    if not application.has_code:
        message = WITHOUT_CODE
        way_out = "Add the folder that contains the module (python_path), or upload the code."
        problems.append(Problem("function", spec.function[:200], message, way_out))
    return problems


def _references(spec: SqlQuery | PythonQuery, surroundings: ValidationContext) -> list[Problem]:
    places: list[tuple[str, Mapping[str, object]]] = [("conf", spec.conf), ("params", spec.params)]
    if spec.sink:
        places.append(("sink.options", spec.sink.options))
    if isinstance(spec, SqlQuery):
        places += [(f"sources.{i}.options", part.options) for i, part in enumerate(spec.sources)]
        places += [(f"tables.{i}.options", part.options) for i, part in enumerate(spec.tables)]
    return [
        problem
        for field, values in places
        for problem in configuration.reference_problems(
            field, values, allowed=surroundings.secret_env
        )
    ]
