"""Run one task of the operator: pass rows from Spark to the scheduler's loop, and back.

A task runs in the Python worker's main thread, which reads Arrow batches from Spark and writes the
result batches back, while the operator's loop makes the calls in its own thread. Neither thread
waits for the end of an Arrow batch: rows are passed on in slices as space becomes free.
"""

import asyncio
import contextlib
import queue
from collections.abc import Awaitable, Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headgate_async.calls import Pace
from headgate_async.clients import AsyncClients, ThreadClients
from headgate_async.operator import Plan
from headgate_async.output import Emission
from headgate_async.rows import Row, row_class, rows_of
from headgate_async.scheduler import Scheduler
from headgate_async.sorting import arranged
from headgate_async.worker_state import CLOSE_S, OperatorState, registry

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
