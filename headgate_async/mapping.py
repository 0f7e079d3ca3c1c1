"""Define `map_async`, the function that users call."""

import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import Any, Literal

import pyarrow as pa
from pyspark import cloudpickle

from headgate_async import operator as plans
from headgate_async.calls import Backoff, BadArgument, Rules
from headgate_async.operator import keyed_by_kafka
from headgate_async.rows import KAFKA
from headgate_async.task import FIELDS, HIDDEN, LETTER, LETTER_FIELD, observe, run

#: Maximum rows held by a task, from an Arrow batch received to one returned.
MOST_ROWS = 4096


def map_async(
    df: Any,
    enrich: Callable[..., Any],
    *,
    key: str | Sequence[str] | None,
    schema: Any,
    name: str | None = None,
    setup: Callable[[], Any] | None = None,
    in_flight: plans.InFlight = "auto",
    cap: int | None = None,
    shuffle: bool | Literal["auto"] = "auto",
    order_by: str | Sequence[str] | None = None,
    identity: Sequence[str] | None = None,
    timeout_s: float = 30.0,
    retries: int = 3,
    transient: plans.Failure = (ConnectionError, TimeoutError),
    broken: plans.Failure = (ConnectionError, EOFError),
    backoff_s: tuple[float, float] = (0.05, 5.0),
    calls_per_second: float | None = None,
    on_error: Literal["fail", "dead_letter"] = "fail",
    ordered: bool = False,
    hold: int = MOST_ROWS,
) -> Any:
    """Return a DataFrame of the results of `enrich` for each row, with many calls in flight.

    Rows with the same key are processed one after another, in the source's order; other rows are
    processed in parallel.

    - `enrich(row, client)`: a coroutine function, or a blocking function (run in threads). Returns
      one row (a dict or a tuple of the schema's columns), a list of rows, or None for no row.
    - `key`: the column or columns of the key. Rows with equal keys stay in order; rows whose key is
      null are not ordered. None if order does not matter.
    - `schema`: the schema of the result, as DDL text or StructType. All columns are nullable.
    - `name`: the operator's name in metrics; several operators in one query need different names.
      None uses the function's own name.
    - `setup()`: returns an async context manager of a client (for a blocking function: a context
      manager; each thread opens one). The client is opened once per Python worker, kept between
      batches, and reopened after an error matched by `broken`.
    - `in_flight`: calls in flight per task: "auto" finds the number, which is never above `cap` (by
      default 256, or 64 for threads); a number sets it; "sequential" makes one call after the
      other, for comparison.
    - `shuffle`: whether a shuffle brings rows to the task of their key. "auto" does so unless the
      key is the record's own key in the one Kafka topic that is read.
    - `order_by`: the columns that define a key's order after a shuffle; None uses Kafka's partition
      and offset if both are present. `()` means that the order of arrival is sufficient.
    - `identity`: the columns that identify a row; see `Row.identity`.
    - `timeout_s`: the timeout per attempt. `retries`: the number of further attempts after errors
      matched by `transient` (exception classes, or a function that tests an error); the wait before
      each is exponential with full jitter, from `backoff_s` (first, maximum) in seconds.
    - `calls_per_second`: the maximum number of calls started per second, in each task.
    - `on_error`: "fail" makes the batch fail with the error; "dead_letter" returns the row with
      null columns, and with the error, identity and input (as JSON) in the `dead_letter` column.
    - `ordered`: whether to return rows in the order in which they arrived, or as they finish.
    - `hold`: the maximum number of rows held by a task, in addition to one Arrow batch from Spark.

    Exactly-once guarantees do not extend to the remote service: a repeated batch makes its calls
    again, with the same identities. Raises `BadArgument` if an argument is invalid.
    """
    blocking = plans.is_blocking(enrich)
    number, most = plans.checked_in_flight(in_flight, cap=cap, blocking=blocking)
    keys = _columns_named(df, "key", key)
    shuffled = _shuffles(df, keys, shuffle)
    if on_error not in ("fail", "dead_letter"):
        raise BadArgument(f"on_error: {on_error!r} is neither 'fail' nor 'dead_letter'")
    dead_letters = on_error == "dead_letter"
    arrow, spark_schema = _schema(df, schema, dead_letters=dead_letters)
    plan = plans.Plan(
        operator=uuid.uuid4().hex,
        enrich=enrich,
        setup=setup,
        blocking=blocking,
        with_client=plans.takes_client(enrich),
        in_flight=number,
        cap=most,
        rules=Rules(
            timeout_s=plans.positive("timeout_s", timeout_s),
            retries=plans.whole("retries", retries, least=0),
            transient=plans.matcher("transient", transient),
            broken=plans.matcher("broken", broken),
            backoff=_backoff(backoff_s),
            dead_letters=dead_letters,
            ordered=ordered or number == "sequential",
        ),
        calls_per_second=(
            None
            if calls_per_second is None
            else plans.positive("calls_per_second", calls_per_second)
        ),
        key=keys,
        order_by=_order(df, order_by) if shuffled else (),
        identity=None if identity is None else _columns_named(df, "identity", identity),
        hold=max(int(plans.positive("hold", hold)), 4 * most),
        schema=arrow,
    )
    # Executors have nothing of ours installed: the package travels with the function.
    cloudpickle.register_pickle_by_value(sys.modules[__package__])
    rows = _brought_together(df, keys) if shuffled else df
    mapped = rows.mapInArrow(_for_spark(plan), spark_schema)
    return observe(mapped, name or _name(enrich), cap=most)


def _for_spark(plan: plans.Plan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def headgate_async(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(plan, batches)

    return headgate_async


def _brought_together(df: Any, keys: tuple[str, ...]) -> Any:
    """Return the DataFrame with the rows of each key in one task.

    The number of tasks is set explicitly: otherwise, adaptive execution would merge small tasks,
    and calls would wait.
    """
    tasks = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    return df.repartition(tasks, *keys)


def _columns_named(df: Any, argument: str, names: str | Sequence[str] | None) -> tuple[str, ...]:
    columns = (names,) if isinstance(names, str) else tuple(names or ())
    for column in columns:
        if column not in df.columns:
            raise BadArgument(
                f"{argument}: there is no column {column!r}; choose {', '.join(df.columns)}"
            )
    return columns


def _shuffles(df: Any, keys: tuple[str, ...], shuffle: Any) -> bool:
    if shuffle not in (True, False, "auto"):
        raise BadArgument(f"shuffle: {shuffle!r} is neither 'auto', True nor False")
    if shuffle is True and not keys:
        raise BadArgument("shuffle: without a key there is nothing to group; specify a key")
    if shuffle != "auto":
        return bool(shuffle)
    return bool(keys) and not (len(keys) == 1 and keyed_by_kafka(df, keys[0]))


def _order(df: Any, order_by: str | Sequence[str] | None) -> tuple[str, ...]:
    if order_by is not None:
        return _columns_named(df, "order_by", order_by)
    if all(column in df.columns for column in KAFKA):
        return KAFKA
    raise BadArgument(
        "order_by: the shuffle that groups the rows changes their order; specify the columns "
        "that define the order within a key (for Kafka, keep topic, partition and offset in "
        "the rows), use order_by=() if any order will do, or shuffle=False if each key's rows "
        "are already in one task"
    )


def _schema(df: Any, schema: Any, *, dead_letters: bool) -> tuple[pa.Schema, Any]:
    """Return the result's schema for Arrow, and for Spark with the dead letter column."""
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    # Spark 3.5 has only the function that `fromDDL` calls.
    parse = getattr(StructType, "fromDDL", None) or types._parse_datatype_string
    struct_type = schema if isinstance(schema, StructType) else parse(schema)
    own = {*HIDDEN, *([LETTER] if dead_letters else [])}
    for field in struct_type.fieldNames():
        if field in own:
            raise BadArgument(
                f"schema: {field!r} is a column that map_async adds itself; rename it"
            )
    zone = df.sparkSession.conf.get("spark.sql.session.timeZone")
    more = [LETTER_FIELD, *FIELDS] if dead_letters else FIELDS
    # Rows that were given up, and those that only carry metrics, have nulls everywhere.
    fields = [StructField(field.name, field.dataType) for field in struct_type.fields]
    # Before 4.2, Spark does not have the argument and always uses UTC: the instants are the same.
    zoned = {"timezone": zone} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(struct_type, **zoned), StructType([*fields, *more])


def _backoff(value: Any) -> Backoff:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise BadArgument(
            f"backoff_s: {value!r} must be two numbers of seconds: initial and maximum"
        )
    first, most = (plans.positive("backoff_s", number) for number in value)
    return Backoff(first_s=first, most_s=most)


def _name(function: Any) -> str:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
