"""Schedule calls: in order within a key, in parallel across keys, within the limit.

Pure asyncio, for one event loop; it knows nothing about Spark or Arrow. Rows enter through `admit`,
and their outcomes leave through the `give` callback in lists.

There is no lock, semaphore or task per call. A *lane* is a task that makes one call after the
other: as many lanes run as calls can be in flight, and each lane ends a call and begins the next
one in the same step of the loop. A key is *busy* while one of its rows is being called or waits for
another attempt; the key's later rows wait in a queue for that key, and the lane that ends a call
continues with this queue. Therefore, the busiest key never waits for a slot.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any

from headgate_async.calls import (
    AsyncMapError,
    CallStuck,
    CallTimedOut,
    Counts,
    Entry,
    NoClients,
    Outcome,
    Pace,
    Rules,
)
from headgate_async.limiter import Limiter, Window

#: A lane whose calls end without ever waiting yields to the others after this many.
UNBROKEN = 64
_NEVER = float("inf")
#: Creates a named tuple without its Python constructor, which would cost as much as the rest.
_new = tuple.__new__


class Scheduler:
    """Calls `call(row, client)` for each row admitted.

    `give(outcomes, counts)` is called with each full list, and with the remaining outcomes once
    `finish` has been called and all calls are done; then `ended(None)` is called. If a row fails
    for good without dead letters, `ended(error)` is called immediately. After that, `give` is not
    called again.
    """

    def __init__(
        self,
        call: Callable[[Any, Any], Awaitable[Any]],
        *,
        limiter: Limiter,
        cap: int,
        give: Callable[[list[Outcome], Counts], None],
        ended: Callable[[BaseException | None], None],
        rules: Rules,
        clients: Any = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._call = call
        self._limiter = limiter
        self._cap = cap
        self._give = give
        self._ended: Callable[[BaseException | None], None] | None = ended  # None: over
        self._rules = rules
        self._clients = clients if clients is not None else NoClients()
        self._pace = pace
        self._clock = clock
        self._cpu = cpu
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Entry] = deque()
        self._behind: dict[Hashable, deque[Entry] | None] = {}  # busy keys
        self._admitted = 0  # admitted, without an outcome yet
        self._seq = 0
        self._finishing = False
        self._done: list[Outcome] = []
        self._due = 0  # ordered: the next in the source's order
        self._early: dict[int, Outcome] = {}  # ordered: finished before their turn
        self._allowed = max(1, min(limiter.allowed, cap))
        self._active = 0  # lanes that are awake
        self._lanes: list[asyncio.Task[None]] = []
        self._parked: list[asyncio.Future[None]] = []
        self._deadlines: list[float] = []  # of each lane's call
        self._cancelled: list[bool] = []  # whether the lane's call has passed its deadline
        self._watch: asyncio.TimerHandle | None = None
        self._later: set[asyncio.TimerHandle] = set()  # rows that wait for another attempt
        self._counts = Counts()
        now = clock()
        self._counted_at = (now, cpu())
        self._opened_at = now
        self._open_until = now + limiter.window_s
        self._open = [0, 0.0, 0, 0]  # calls, latency, failed, bound: the limiter's window

    # --- in ---------------------------------------------------------------------------

    def admit(self, rows: Sequence[Any], keys: Iterable[Hashable]) -> None:
        """Admit rows in the source's order, with their keys; None means a row without order."""
        seq, now = self._seq, self._clock()
        behind, ready, new = self._behind, self._ready, _new
        for key, row in zip(keys, rows, strict=True):
            if key is None:
                ready.append(new(Entry, (seq, None, row, 0.0, 0)))
            elif key in behind:
                waiting = behind[key]
                if waiting is None:
                    behind[key] = waiting = deque()
                waiting.append(new(Entry, (seq, key, row, now, 0)))
            else:
                behind[key] = None
                ready.append(new(Entry, (seq, key, row, 0.0, 0)))
            seq += 1
        self._admitted += seq - self._seq
        self._seq = seq
        self._wake()

    def finish(self) -> None:
        """Signal that no more rows will be admitted."""
        self._finishing = True
        self._settle()

    def fail(self, error: BaseException) -> None:
        """End everything with an error."""
        self._end(error)

    async def close(self, *, within_s: float = 5.0) -> None:
        """Cancel the calls in flight, without further outcomes; return once all calls have ended.

        If a call continues after its cancellation, wait at most `within_s` for it.
        """
        self._stop()
        if self._lanes:
            await asyncio.wait(self._lanes, timeout=within_s)

    # --- lanes ------------------------------------------------------------------------

    def _wake(self) -> None:
        for _ in range(min(len(self._ready), self._allowed - self._active)):
            self._active += 1
            if self._parked:
                self._parked.pop().set_result(None)
            else:
                number = len(self._lanes)
                self._deadlines.append(_NEVER)
                self._cancelled.append(False)
                lane = self._loop.create_task(self._lane(number))
                lane.add_done_callback(self._lane_ended)
                self._lanes.append(lane)

    async def _lane(self, number: int) -> None:
        """Make calls as long as there are any; the step from call to call is the hot path."""
        deadlines, ready, clock, rules = self._deadlines, self._ready, self._clock, self._rules
        call, clients, pace, timeout_s = self._call, self._clients, self._pace, rules.timeout_s
        cancelled_at, ended, unbroken = self._cancelled, -1.0, 0
        while self._ended is not None:
            if not ready or self._active > self._allowed:
                await self._park()
                ended = -1.0
                continue
            entry = ready.popleft()
            if pace is not None and (wait := pace.reserve(clock())) > 0:
                self._counts.held_by_pace += 1
                await asyncio.sleep(wait)
                ended = -1.0
            started = ended if ended >= 0 else clock()
            deadlines[number] = started + timeout_s
            if self._watch is None:
                self._watch = self._loop.call_later(timeout_s, self._sweep)
            client, error, result = None, None, None
            try:
                client = clients.current
                if client is None:
                    client = await clients.get()
                result = await call(entry.row, client)
            except asyncio.CancelledError as cancelled:
                error = self._cancel(number, cancelled)
            except BaseException as failed:
                error = failed
            deadlines[number] = _NEVER
            ended = clock()
            if cancelled_at[number]:  # it ended after its timeout, by cancellation or with a result
                cancelled_at[number] = False
                self._lanes[number].uncancel()
            if error is None:
                self._well(entry, result, started, ended)
            else:
                self._ill(entry, error, client, started, ended)
                ended = -1.0
            unbroken += 1
            if unbroken == UNBROKEN:
                unbroken, ended = 0, -1.0
                await asyncio.sleep(0)

    def _lane_ended(self, lane: asyncio.Task[None]) -> None:
        """Report a lane's unexpected end: a row would be missing, and the batch would never end."""
        error = None if lane.cancelled() else lane.exception()
        if self._ended is not None:
            self.fail(error or AsyncMapError("a lane was cancelled from outside"))

    async def _park(self) -> None:
        self._active -= 1
        parked = self._loop.create_future()
        self._parked.append(parked)
        await parked

    # --- the end of an attempt --------------------------------------------------------

    def _well(self, entry: Entry, result: Any, started: float, ended: float) -> None:
        latency = ended - started
        self._tally(latency, ended)
        waited = started - entry.behind if entry.behind else 0.0
        outcome = (entry.row, result, None, latency * 1000.0, waited * 1000.0)
        self._out(entry, _new(Outcome, outcome))

    def _ill(
        self, entry: Entry, error: BaseException, client: Any, started: float, ended: float
    ) -> None:
        rules, counts = self._rules, self._counts
        again = isinstance(error, Exception) and rules.transient(error)
        counts.errors += 1
        counts.timeouts += isinstance(error, CallTimedOut)
        self._open[2] += again
        self._tally(ended - started, ended)
        if rules.broken(error):
            self._clients.broke(client)
        if self._ended is None:
            return
        if again and entry.tried < rules.retries:
            counts.retries += 1
            tried = entry.tried + 1
            self._again(entry._replace(tried=tried, behind=0.0), rules.backoff.delay(tried))
            return
        latency_ms = (ended - started) * 1000.0
        if rules.dead_letters and isinstance(error, Exception):
            counts.dead_letters += 1
            self._out(entry, Outcome(entry.row, None, error, latency_ms, 0.0))
        else:
            _note(error, entry)
            self.fail(error)

    def _again(self, entry: Entry, delay: float) -> None:
        """Put a row at the head of the queue after a delay; its key stays busy until then."""

        def due() -> None:
            self._later.discard(handle)
            self._ready.appendleft(entry)
            self._wake()

        handle = self._loop.call_later(delay, due)
        self._later.add(handle)

    def _out(self, entry: Entry, outcome: Outcome) -> None:
        key = entry.key
        if key is not None:
            waiting = self._behind[key]
            if waiting:
                self._ready.appendleft(waiting.popleft())
            else:
                del self._behind[key]
        self._admitted -= 1
        if not self._rules.ordered:
            self._done.append(outcome)
        else:
            self._early[entry.seq] = outcome
            while (due := self._early.pop(self._due, None)) is not None:
                self._due += 1
                self._done.append(due)
        if len(self._done) >= self._rules.give_at:
            self._hand_over()
        if self._finishing:
            self._settle()

    def _tally(self, latency: float, ended: float) -> None:
        counts, window = self._counts, self._open
        counts.calls += 1
        counts.busy_ms += latency * 1000.0
        counts.allowed += self._allowed
        counts.keys += len(self._behind)
        if self._ready:
            counts.held_by_limit += 1
            window[3] += 1
        elif self._admitted > self._active:
            counts.held_by_keys += 1
        else:
            counts.held_by_source += 1
        window[0] += 1
        window[1] += latency
        if ended >= self._open_until:
            self._limit(ended)

    def _limit(self, now: float) -> None:
        calls, latency, failed, bound = self._open
        self._limiter.observe(
            Window(now - self._opened_at, int(calls), latency, int(failed), int(bound))
        )
        self._open = [0, 0.0, 0, 0]
        self._opened_at, self._open_until = now, now + self._limiter.window_s
        self._allowed = max(1, min(self._limiter.allowed, self._cap))
        self._wake()

    # --- out --------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._admitted == 0 and self._ended is not None:
            if self._done or self._counts.calls:
                self._hand_over()
            self._end(None)

    def _hand_over(self) -> None:
        done, self._done = self._done, []
        counts, self._counts = self._counts, Counts()
        now, cpu = self._clock(), self._cpu()
        counts.wall_ms = (now - self._counted_at[0]) * 1000.0
        counts.cpu_ms = (cpu - self._counted_at[1]) * 1000.0
        self._counted_at = (now, cpu)
        self._give(done, counts)

    def _end(self, error: BaseException | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            self._stop()
            ended(error)

    def _stop(self) -> None:
        self._ended = None
        if self._watch is not None:
            self._watch.cancel()
        for handle in self._later:
            handle.cancel()
        self._later.clear()
        self._ready.clear()
        current = asyncio.current_task(self._loop) if self._lanes else None
        for lane in self._lanes:
            if lane is not current:
                lane.cancel()

    # --- timeouts ---------------------------------------------------------------------

    def _sweep(self) -> None:
        """Cancel calls whose deadlines have passed; schedule the next sweep.

        Deadlines only increase, so no call can be due before the earliest one, and one timer is
        enough for all calls.
        """
        now = self._clock()
        for number, deadline in enumerate(self._deadlines):
            if deadline <= now:
                if self._cancelled[number]:
                    stuck = CallStuck(
                        f"a call continued for {self._rules.timeout_s:g} s after it was "
                        f"cancelled at its timeout of {self._rules.timeout_s:g} s: let the "
                        "function re-raise CancelledError, and set a timeout on blocking "
                        "clients"
                    )
                    self.fail(stuck)
                    return
                self._cancelled[number] = True
                self._deadlines[number] = now + self._rules.timeout_s
                self._lanes[number].cancel()
        earliest = min(self._deadlines)
        self._watch = None
        if earliest < _NEVER:
            self._watch = self._loop.call_later(max(0.0, earliest - now), self._sweep)

    def _cancel(self, number: int, cancelled: asyncio.CancelledError) -> BaseException:
        """Return the error for a cancelled call; re-raise a cancellation of the lane itself."""
        if self._ended is None:
            raise cancelled
        if self._cancelled[number]:
            return CallTimedOut(f"no response within {self._rules.timeout_s:g} s")
        if self._lanes[number].cancelling():
            raise cancelled
        return AsyncMapError("the function raised CancelledError without being cancelled")


def _note(error: BaseException, entry: Entry) -> None:
    """Add a note to the error: which row failed, and how often it was attempted."""
    identity = getattr(entry.row, "identity", None)
    which = f"row {identity}" if isinstance(identity, str) else f"row number {entry.seq}"
    error.add_note(f"headgate_async: {which} failed after {entry.tried + 1} tries")
