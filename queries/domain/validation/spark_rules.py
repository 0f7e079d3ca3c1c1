"""Reject what the application's version of Spark lacks, and name a version that has it."""

from collections.abc import Mapping

from queries.domain.definitions.spec import PythonQuery, RealTime, SqlQuery
from queries.domain.errors import Problem
from queries.domain.sparks import (
    FEATURES_SINCE,
    TRIGGERS_SINCE,
    Feature,
    Spark,
    has_feature,
    has_trigger,
    is_older,
)
from queries.domain.sparks.pinned import SINK_NAMES, SOURCE_NAMES, key_since
from queries.domain.triggers.async_progress import FIELD, has_async_progress, stateful_because


def query_problems(spec: SqlQuery | PythonQuery, spark: Spark) -> list[Problem]:
    """Return a problem for each thing that a query uses and a version of Spark lacks."""
    kind = str(spec.trigger.kind)
    problems = conf_problems(spec.conf, spark)
    if not has_trigger(spark, kind):
        message = f"does not exist in the application's Spark {spark}."
        way_out = f"Use Spark {TRIGGERS_SINCE[kind]} or newer, or a processing-time trigger."
        return [*problems, Problem("trigger.kind", kind, message, way_out)]
    return problems + (_in_real_time(spec, spark) if isinstance(spec.trigger, RealTime) else [])


def conf_problems(conf: Mapping[str, str], spark: Spark) -> list[Problem]:
    """Return the configuration keys that a version of Spark would silently ignore."""
    return [
        Problem(
            f"conf.{key}",
            value[:200],
            f"does not exist in the application's Spark {spark}, which would ignore it.",
            f"Use Spark {since} or newer, or remove it.",
        )
        for key, value in conf.items()
        if is_older(spark, since := key_since(key))
    ]


def naming_problems(
    spec: SqlQuery | PythonQuery, application_conf: Mapping[str, str]
) -> list[Problem]:
    """Return a problem if Spark would insist on names that Headgate's sources and sinks lack.

    With source or sink evolution, Spark refuses to start a query in which one has no name
    (STREAMING_QUERY_EVOLUTION_ERROR). A Python function can name the sources, and the sink that it
    writes to itself.
    """
    conf = {**application_conf, **spec.conf}
    unnamed = {SOURCE_NAMES: "sources"} if isinstance(spec, SqlQuery) else {}
    if spec.sink is not None:
        unnamed[SINK_NAMES] = "sink"
    return [
        Problem(
            f"conf.{key}",
            conf[key],
            f"changes what a checkpoint contains, and requires names that this query's {what} "
            "cannot have: Spark would refuse to start it.",
            f"Remove it, or use a Python function that names its {what} with name().",
        )
        for key, what in unnamed.items()
        if conf.get(key, "").lower() == "true"
    ]


def _in_real_time(spec: SqlQuery | PythonQuery, spark: Spark) -> list[Problem]:
    problems = []
    because = stateful_because(spec) if isinstance(spec, SqlQuery) else ""
    if because and not has_feature(spark, Feature.STATE_IN_REAL_TIME):
        message = (
            f"is not supported by Spark {spark} for stateful queries, and this query {because}."
        )
        way_out = (
            f"Use Spark {FEATURES_SINCE[Feature.STATE_IN_REAL_TIME]} or newer, or a "
            "processing-time trigger."
        )
        problems.append(Problem("trigger.kind", "real_time", message, way_out))
    if has_async_progress(spec) and not has_feature(spark, Feature.ASYNC_IN_REAL_TIME):
        message = f"is not supported in real-time mode by Spark {spark}."
        way_out = f"Use Spark {FEATURES_SINCE[Feature.ASYNC_IN_REAL_TIME]} or newer, or remove it."
        problems.append(Problem(FIELD, "true", message, way_out))
    return problems
