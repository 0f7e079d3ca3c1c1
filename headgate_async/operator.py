"""Check one operator on the driver: its arguments, and whether a key's rows arrive in order.

A Kafka producer writes all records of a key to one partition, and Spark reads a partition in one
task, in the order of its offsets. Therefore, if the key is the record's own key, no shuffle is
needed.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from py4j.protocol import Py4JError

from headgate_async.calls import BadArgument, Rules
from headgate_async.limiter import Auto, Fixed, Limiter

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


def _is_kafka_key(plan: Any, expression_id: int) -> bool:
    names = {column.exprId().id(): column.name() for column in _all(plan.output())}
    if names.get(expression_id) != "key" or str(plan.sourceName()).lower() != "kafka":
        return False
    options = {key.lower(): value for key, value in dict(plan.extraOptions()).items()}
    topics = [topic for topic in options.get("subscribe", "").split(",") if topic.strip()]
    return len(topics) == 1 and not any(name in options for name in _SPLITS)


Failure = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]
InFlight = int | Literal["auto", "sequential"]

#: A blocking call needs a thread, which costs memory, so there are fewer than coroutines.
MOST_THREADS = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a task needs to know about its operator."""

    operator: str  # an ID: the key of what is kept in a Python worker
    enrich: Callable[..., Any]
    setup: Callable[[], Any] | None
    blocking: bool
    with_client: bool  # the function takes the client after the row
    in_flight: InFlight
    cap: int
    rules: Rules
    calls_per_second: float | None  # per task
    key: tuple[str, ...]
    order_by: tuple[str, ...]  # to sort a task's rows by; () takes them in order of arrival
    identity: tuple[str, ...] | None
    hold: int  # rows
    schema: pa.Schema  # what the function returns

    def limiter(self) -> Limiter:
        """Return a new limiter."""
        if self.in_flight == "auto":
            return Auto(self.cap)
        return Fixed(1 if self.in_flight == "sequential" else self.in_flight)


def is_blocking(function: Callable[..., Any]) -> bool:
    """Return whether a function must run in a thread, because it is not a coroutine function."""
    call = getattr(function, "__call__", None)  # noqa: B004 - of an object with a coroutine for it
    return not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call))


def takes_client(function: Callable[..., Any]) -> bool:
    """Return whether a function takes the client after the row."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return True
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters) > 1


def matcher(argument: str, named: Failure) -> Callable[[BaseException], bool]:
    """Return a test for errors, from exception classes or from a function that tests them."""
    if isinstance(named, type) and issubclass(named, BaseException):
        named = (named,)
    if isinstance(named, tuple):
        if not all(
            isinstance(error_class, type) and issubclass(error_class, BaseException)
            for error_class in named
        ):
            raise BadArgument(f"{argument}: {named!r} must contain only exception classes")
        classes = named
        return lambda error: isinstance(error, classes)
    if callable(named) and not isinstance(named, type):
        return named
    raise BadArgument(
        f"{argument}: {named!r} is not an exception class, a tuple of them, or a function"
    )


def checked_in_flight(in_flight: Any, *, cap: int | None, blocking: bool) -> tuple[InFlight, int]:
    """Return the requested number of calls in flight, and the cap for it."""
    most = cap if cap is not None else (MOST_THREADS if blocking else 256)
    whole("cap", most)
    if in_flight in ("auto", "sequential"):
        return in_flight, 1 if in_flight == "sequential" else most
    if isinstance(in_flight, bool) or not isinstance(in_flight, int):
        raise BadArgument(
            f"in_flight: {in_flight!r} is neither a whole number, 'auto' nor 'sequential'"
        )
    whole("in_flight", in_flight)
    if cap is not None and in_flight > cap:
        raise BadArgument(f"in_flight: {in_flight} is more than the cap of {cap}")
    return in_flight, in_flight


def whole(argument: str, value: Any, *, least: int = 1) -> int:
    """Return an integer of at least `least`, or raise `BadArgument`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadArgument(f"{argument}: {value!r} must be a whole number of {least} or more")
    return value


def positive(argument: str, value: Any) -> float:
    """Return a number above 0, or raise `BadArgument`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise BadArgument(f"{argument}: {value!r} must be a number above 0")
    return float(value)
