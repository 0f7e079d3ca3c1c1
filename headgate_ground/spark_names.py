"""What Spark's internals are called in each version: the only place that knows.

Drivers and the parser's process use private classes and methods of Spark and PySpark. Constants are
the names in the newest version; `class_named` returns the name in the JVM's own version.

Source: the jars and the Python packages of 3.5.9, 4.0.5, 4.1.4, 4.2.1 and 4.3.0.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

_STREAMING = "org.apache.spark.sql.execution.streaming."
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."

#: The bus that passes the events of queries to listeners.
LISTENER_BUS = f"{_STREAMING}runtime.StreamingQueryListenerBus"
#: What warns of batches that take longer than their trigger's interval.
TRIGGER_TIMER = f"{_STREAMING}runtime.ProcessingTimeExecutor"
#: The trait of CALL, which runs a catalog's procedure, such as Iceberg's remove_orphan_files.
CALL = f"{_LOGICAL}ExecutableDuringAnalysis"
#: Traits of every node that changes something.
COMMANDS = (
    f"{_LOGICAL}Command",
    f"{_LOGICAL}ParsedStatement",
    CALL,
)
LOGICAL_PLAN = f"{_LOGICAL}LogicalPlan"
#: A relation of files, and a table of files, which know their paths.
FILE_RELATION = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
FILE_TABLE = "org.apache.spark.sql.execution.datasources.v2.FileTable"
#: All of these classes.
CLASSES = (
    *(LISTENER_BUS, TRIGGER_TIMER, *COMMANDS, LOGICAL_PLAN),
    *(FILE_RELATION, FILE_TABLE),
)


class Former(NamedTuple):
    """Until which version a class had another name, or did not exist."""

    since: tuple[int, int]  # the first version with the newest name
    name: str  # before; "" if there was no such class


FORMER: Mapping[str, Former] = {
    LISTENER_BUS: Former((4, 1), f"{_STREAMING}StreamingQueryListenerBus"),
    TRIGGER_TIMER: Former((4, 1), f"{_STREAMING}ProcessingTimeExecutor"),
    # Before, only the command of an extension was a CALL, and is a ParsedStatement or a Command.
    CALL: Former((4, 0), ""),
}


def class_named(name: str, version: str) -> str:
    """Return what one of `CLASSES` is called in a version, such as "3.5.9"; "" if it lacks it."""
    former = FORMER.get(name)
    return name if former is None or _release(version) >= former.since else former.name


def every_name(name: str) -> list[str]:
    """Return all names of one of `CLASSES`, the newest first."""
    return [name, *([FORMER[name].name] if name in FORMER else [])]


def _is_since(jvm: Any, *since: int) -> bool:
    return _release(_version(jvm)) >= since


def _version(jvm: Any) -> str:
    return str(jvm.org.apache.spark.SparkBuildInfo.spark_version())


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def classes(names: Iterable[str], jvm: Any) -> list[Any]:
    """Return the Java classes of some of `CLASSES`; py4j raises Java's error if one is missing.

    A class that the JVM's version is known to lack is left out.
    """
    version = _version(jvm)
    in_version = (class_named(name, version) for name in names)
    return [jvm.java.lang.Class.forName(name) for name in in_version if name]


def sequence(values: Iterable[Any], jvm: Any) -> Any:
    """Return a Scala sequence."""
    listed = jvm.java.util.ArrayList()
    for value in values:
        listed.add(value)
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(listed)


def is_recursive(with_node: Any, jvm: Any) -> bool:
    """Return whether the relations of a parsed WITH can read themselves."""
    return _is_since(jvm, 4, 0) and bool(with_node.allowRecursion())


def is_call(by_identifier: Any, jvm: Any) -> bool:
    """Return whether a parsed `ExpressionWithUnresolvedIdentifier` is a call, not a column."""
    if _is_since(jvm, 4, 0):
        return not by_identifier.otherExprs().isEmpty()
    # The arguments are inside what builds the expression from a name.
    made = by_identifier.exprBuilder().apply(sequence(["name"], jvm))
    return str(made.getClass().getSimpleName()) != "UnresolvedAttribute"


def with_watermark(attribute: Any, delay: Any, plan: Any, jvm: Any) -> Any:
    """Return a plan with a watermark that Spark has not resolved yet."""
    node = jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark
    identity = [jvm.java.util.UUID.randomUUID()] if _is_since(jvm, 4, 0) else []
    return node(*identity, attribute, delay, plan)


def complete_progress(progress: dict[str, Any]) -> dict[str, Any]:
    """Return a batch's progress with its duration, which the JSON of Spark 3.5 lacks."""
    spent = progress.get("durationMs") or {}
    if "batchDuration" in progress or "triggerExecution" not in spent:
        return progress
    return {**progress, "batchDuration": spent["triggerExecution"]}


def activate(session: Any) -> None:
    """Make a session the active one of the calling thread."""
    class_of = getattr(session, "_get_j_spark_session_class", None)  # since 4.0
    kind = session._jvm.SparkSession if class_of is None else class_of(session._jvm)
    kind.setActiveSession(session._jsparkSession)


def condition(error: Any) -> str:
    """Return the condition of an exception, of Java or PySpark; "" if it has none."""
    for method in ("getCondition", "getErrorClass"):  # the second is the name before 4.0
        # Any Java method can be tried; throwables without a condition answer with an error.
        with suppress(Exception):
            if name := getattr(error, method)():
                return str(name)
    return ""
