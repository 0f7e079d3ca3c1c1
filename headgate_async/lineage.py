"""Find out from a stream's plan whether the rows of a key already arrive in one task, in order.

A Kafka producer writes all records of a key to one partition, and Spark reads a partition in one
task, in the order of its offsets. Therefore, if the key is the record's own key, no shuffle is
needed.
"""

from typing import Any

from py4j.protocol import Py4JError

#: Source options that let one key's records be read by several tasks.
_SPLITS = ("minpartitions", "maxrecordsperpartition")
_THROUGH = {"Filter", "SubqueryAlias", "EventTimeWatermark", "View", "LocalLimit", "CollectMetrics"}


def keyed_by_kafka(df: Any, name: str) -> bool:
    """Return whether a column is the key of the one Kafka topic that a stream reads.

    Casts, renamings, filters and watermarks between the source and the column are followed; for
    anything else between them, the result is False.
    """
    try:
        plan = df._jdf.queryExecution().analyzed()
        return _follow(plan, _expression_id(plan, name))
    except (Py4JError, AttributeError):  # another Spark, another plan: a shuffle is always right
        return False


def _follow(plan: Any, wanted: int | None) -> bool:
    while wanted is not None:
        kind = plan.nodeName()
        if kind == "Project":
            wanted = _through_project(plan, wanted)
        elif kind.startswith("StreamingRelation"):
            return _is_kafka_key(plan, wanted)
        elif kind not in _THROUGH:
            return False
        if plan.children().size() != 1:
            return False
        plan = plan.children().apply(0)
    return False


def _all(listed: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [listed.apply(at) for at in range(listed.size())]


def _expression_id(plan: Any, name: str) -> int | None:
    named = [column for column in _all(plan.output()) if column.name() == name]
    return named[0].exprId().id() if len(named) == 1 else None


def _through_project(plan: Any, wanted: int) -> int | None:
    return next(
        (
            _source_of(expression)
            for expression in _all(plan.projectList())
            if expression.exprId().id() == wanted
        ),
        None,
    )


def _source_of(expression: Any) -> int | None:
    """Return the attribute that an expression passes on, or None if it creates a new value."""
    while expression.nodeName() in ("Alias", "Cast"):
        # Bytes as text are still one key each; as numbers, "1" and "01" would be the same.
        if expression.dataType().simpleString() not in ("string", "binary"):
            return None
        expression = expression.children().apply(0)
    return expression.exprId().id() if expression.nodeName() == "AttributeReference" else None


def _is_kafka_key(plan: Any, wanted: int) -> bool:
    names = {part.exprId().id(): part.name() for part in _all(plan.output())}
    if names.get(wanted) != "key" or str(plan.sourceName()).lower() != "kafka":
        return False
    options = {key.lower(): value for key, value in dict(plan.extraOptions()).items()}
    topics = [part for part in options.get("subscribe", "").split(",") if part.strip()]
    return len(topics) == 1 and not any(name in options for name in _SPLITS)
