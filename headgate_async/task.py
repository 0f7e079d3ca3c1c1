"""Run one task of the operator: rows from Spark to the scheduler's loop and back, with metrics.

Spark puts observed metrics into each progress event, so every listener of a query's progress also
gets these, at no additional cost. Latency and waiting time have their own columns, with one value
per row; all other metrics are summed, in an array that only the first row of an Arrow batch
contains.

A task runs in the Python worker's main thread, which reads Arrow batches from Spark and writes the
result batches back, while the operator's loop makes the calls in its own thread. Neither thread
waits for the end of an Arrow batch: rows are passed on in slices as space becomes free.
"""

import asyncio
import contextlib
import queue
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    StringType,
    StructField,
    StructType,
)

from headgate_async.calls import NAMES, Counts, Outcome, Pace
from headgate_async.operator import Plan
from headgate_async.rows import (
    Row,
    Shape,
    arranged,
    as_json,
    columns_of,
    identity_of,
    row_class,
    rows_of,
)
from headgate_async.scheduler import Scheduler
from headgate_async.worker_state import (
    CLOSE_S,
    AsyncClients,
    OperatorState,
    ThreadClients,
    registry,
)

#: Prefix of an observation's name, followed by the operator's name.
PREFIX = "headgate_async:"

COUNTS, LATENCY, WAITED = "_async_counts", "_async_latency_ms", "_async_waited_ms"
VISIBLE = "_async_kept"
HIDDEN = (COUNTS, LATENCY, WAITED, VISIBLE)
_TYPES = (ArrayType(DoubleType()), DoubleType(), DoubleType(), BooleanType())
FIELDS = tuple(map(StructField, HIDDEN, _TYPES))
_COUNTS_TYPE = pa.list_(pa.float64())
PERCENTILES = (0.5, 0.95, 0.99)
#: Spark's default of 10,000 costs memory for metrics that nobody reads to four digits.
ACCURACY = 1000


def hidden_columns(
    counts: Counts,
    latency: Sequence[float | None],
    waited: Sequence[float | None],
    visible: Sequence[bool],
) -> list[pa.Array]:
    """Return the hidden columns of an Arrow batch."""
    first = [counts.as_list(), *[None] * (len(visible) - 1)]
    return [
        pa.array(first, _COUNTS_TYPE),
        pa.array(latency, pa.float64()),
        pa.array(waited, pa.float64()),
        pa.array(visible, pa.bool_()),
    ]


def observe(df: Any, name: str, *, cap: int) -> Any:
    """Collect the hidden columns in one observation, and drop them."""
    from pyspark.sql import functions as f

    sums = [
        f.sum(f.get(COUNTS, f.lit(at))).alias(count_name) for at, count_name in enumerate(NAMES)
    ]
    watched = df.observe(
        PREFIX + name,
        *sums,
        f.percentile_approx(LATENCY, list(PERCENTILES), ACCURACY).alias("latency_ms"),
        f.percentile_approx(WAITED, list(PERCENTILES), ACCURACY).alias("waited_ms"),
        f.max(f.lit(cap)).alias("cap"),
    )
    return watched.where(VISIBLE).drop(*HIDDEN)


#: The column with the details of a row that was given up; null for all others.
LETTER = "dead_letter"
LETTER_FIELD = StructField(
    LETTER, StructType([StructField(one, StringType()) for one in ("identity", "error", "row")])
)
_LETTER_TYPE = pa.struct([("identity", pa.string()), ("error", pa.string()), ("row", pa.string())])
#: An error's text may quote whole pages of a remote service.
ERROR_CHARACTERS = 2000


class Emission:
    """Makes Arrow batches of a schema from outcomes."""

    def __init__(self, schema: pa.Schema, *, dead_letters: bool) -> None:
        self._schema = schema
        self._shape = Shape(schema.names)
        self._letters = dead_letters
        letter = [LETTER] if dead_letters else []
        self._names = [*schema.names, *letter, *HIDDEN]

    def batch(self, outcomes: Sequence[Outcome], counts: Counts) -> pa.RecordBatch:
        """Return these outcomes as a batch.

        A row without a result still gets a temporary row here, to record its latency; so do counts
        that arrive without an outcome.
        """
        shape, empty = self._shape, (None,) * len(self._schema)
        rows: list[tuple[Any, ...]] = []
        latency: list[float | None] = []
        waited: list[float | None] = []
        visible: list[bool] = []
        letters: list[dict[str, str] | None] = []
        for row, result, error, latency_ms, waited_ms in outcomes:
            if error is not None:
                rows.append(empty)
                letters += [None] * (len(rows) - 1 - len(letters))
                letters.append(_letter(row, error))
            elif type(result) is tuple:
                rows.append(shape.row_of(result))
            else:
                tuples = shape.tuples(result)
                rows += tuples or [empty]
                further = [None] * (len(tuples) - 1)  # the latency is in a result's first row
                latency += [latency_ms, *further]
                waited += [waited_ms, *further]
                visible += [True] * len(tuples) or [False]
                continue
            latency.append(latency_ms)
            waited.append(waited_ms)
            visible.append(True)
        if not rows:
            rows, latency, waited, visible = [empty], [None], [None], [False]
        columns = columns_of(rows, self._schema)
        if self._letters:
            letters += [None] * (len(rows) - len(letters))
            columns.append(pa.array(letters, _LETTER_TYPE))
        columns += hidden_columns(counts, latency, waited, visible)
        return pa.RecordBatch.from_arrays(columns, names=self._names)


def _letter(row: Any, error: BaseException) -> dict[str, str]:
    text = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
    return {"identity": identity_of(row), "error": text, "row": as_json(row)}


_END = object()


def run(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the results for a task's rows; see `map_async`."""
    keeper = registry()
    state = keeper.acquire(plan.operator, lambda: _keep(plan))
    try:
        yield from _Task(plan, state).run(batches)
    finally:
        keeper.release(plan.operator, state)


def _keep(plan: Plan) -> OperatorState:
    state = OperatorState(plan.limiter())
    if plan.blocking:
        state.pool = ThreadPoolExecutor(plan.cap, thread_name_prefix="headgate-async")
    if plan.setup is not None:
        state.clients = (ThreadClients if plan.blocking else AsyncClients)(plan.setup)
    return state


class _Task:
    def __init__(self, plan: Plan, state: OperatorState) -> None:
        self._plan = plan
        self._state = state
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._emission = Emission(plan.schema, dead_letters=plan.rules.dead_letters)
        self._row: type[Row] | None = None
        self._in_task = 0  # rows between an Arrow batch received and one returned
        self._first, self._opened = True, getattr(state.clients, "opened", 0)
        #: Size of a slice in and a list out: a small part of the rows held, but enough to outweigh
        #: the cost of a hop.
        self._slice = max(1, min(512, plan.hold // 8))

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scheduler = self._state.run(self._begin()).result()
        try:
            for rows, keys in self._slices(batches):
                while self._in_task + len(rows) > self._plan.hold:
                    yield self._result_batch(self._inbox.get())
                self._in_task += len(rows)
                self._state.loop.call_soon_threadsafe(_feed, scheduler, rows, keys)
                while not self._inbox.empty():
                    yield self._result_batch(self._inbox.get())
            self._state.loop.call_soon_threadsafe(scheduler.finish)
            while (message := self._inbox.get()) is not _END:
                yield self._result_batch(message)
        finally:
            with contextlib.suppress(TimeoutError):
                self._state.run(scheduler.close(within_s=CLOSE_S)).result(2 * CLOSE_S)

    async def _begin(self) -> Scheduler:
        plan = self._plan
        paced = plan.calls_per_second
        return Scheduler(
            _caller(plan, self._state),
            limiter=self._state.limiter,
            cap=plan.cap,
            give=lambda outcomes, counts: self._inbox.put((outcomes, counts)),
            ended=lambda error: self._inbox.put(_END if error is None else error),
            rules=replace(plan.rules, give_at=self._slice),
            clients=None if plan.blocking else self._state.clients,
            pace=None if paced is None else Pace(paced),
        )

    def _slices(
        self, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[list[Row], list[Hashable]]]:
        plan = self._plan
        if plan.order_by:
            batches = arranged(batches, plan.order_by, rows=max(plan.hold, 50_000))
        for batch in batches:
            if self._row is None:
                self._row = row_class(batch.schema.names, plan.identity)
            # With one call at a time, only the source's order matters.
            ordered = () if plan.in_flight == "sequential" else plan.key
            key = [batch.schema.names.index(name) for name in ordered]
            for at in range(0, batch.num_rows, self._slice):
                yield rows_of(batch.slice(at, self._slice), self._row, key)

    def _result_batch(self, message: Any) -> pa.RecordBatch:
        if isinstance(message, BaseException):
            raise message
        outcomes, counts = message
        self._in_task -= len(outcomes)
        counts.tasks, self._first = float(self._first), False
        opened = getattr(self._state.clients, "opened", 0)
        counts.opened, self._opened = float(opened - self._opened), opened
        return self._emission.batch(outcomes, counts)


def _feed(scheduler: Scheduler, rows: list[Row], keys: list[Hashable]) -> None:
    """Admit rows on the loop; an invalid key must fail the batch, not only the callback."""
    try:
        scheduler.admit(rows, keys)
    except Exception as error:
        scheduler.fail(error)


def _caller(plan: Plan, state: OperatorState) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return the function that the scheduler calls: the user's function itself, if possible."""
    enrich = plan.enrich
    if plan.blocking:
        return _in_thread(plan, state)
    if plan.with_client:
        return enrich
    return lambda row, client: enrich(row)


def _in_thread(plan: Plan, state: OperatorState) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a coroutine function that runs a blocking function in the pool.

    A thread cannot be cancelled, so after its timeout, the call gets the same time again, so that
    the next row of its key does not overtake it. After that, the scheduler gives the call up as
    stuck.
    """
    enrich, pool, clients = plan.enrich, state.pool, state.clients
    assert pool is not None

    def work(row: Row) -> Any:
        if clients is None:
            return enrich(row, None) if plan.with_client else enrich(row)
        client = clients.get()
        try:
            return enrich(row, client) if plan.with_client else enrich(row)
        except BaseException as error:
            if plan.rules.broken(error):
                clients.broke()
            raise

    async def call(row: Row, _client: Any) -> Any:
        future = asyncio.wrap_future(pool.submit(work, row))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.cancel():
                await asyncio.wait({future})
            raise

    return call
