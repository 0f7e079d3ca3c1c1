"""Run a worker's ticks in threads: each when it is due, whatever the others do.

The threads need no message: neither a queue that is long nor a Redis that is down delays a tick.
They end with the worker. The times of the last runs are kept here, and reported to Redis every few
seconds.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.conf import settings
from django.db import close_old_connections, connections
from django.utils.module_loading import import_string

from controlplane import hosts, signs_of_life
from controlplane.ticks import TICKS, Tick, TickReport, TickRun, next_due
from listeners.loops.backlogs import loop_errors
from listeners.loops.slices import LeaseLost

logger = logging.getLogger(__name__)
_tick = loop_errors("ticks", logger)

#: Seconds between two looks of a worker that does not lead, whether it does now.
LEAD_LOOK_S = 5.0
#: A thread that waits for longer closes its database connection.
KEEPS_CONNECTION_S = 15.0
#: For how long the end of a worker waits for the runs that have begun; then they end with it.
STOP_S = 5.0


@dataclass(slots=True)
class TickThread:
    """The ticks that one thread runs in turn."""

    ticks: Sequence[Tick]
    leads: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    runs: dict[str, TickRun] = field(default_factory=dict)  # by the tick's name
    _begun: float = field(init=False)
    _ended: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun = self.clock()

    def step(self) -> float:
        """Run the tick that has been due for longest, if any; return the seconds to wait then."""
        tick, due = next_due(self.ticks, begun=self._begun, ended=self._ended)
        wait = due - self.clock()
        if wait > 0:
            return wait
        close_old_connections()
        if tick.by_leader and not self.leads():
            return LEAD_LOOK_S
        self._run(tick)
        return 0.0

    def _run(self, tick: Tick) -> None:
        before = self.runs.get(tick.name)
        started = self.now()
        self.runs[tick.name] = TickRun(started, before.ended if before else None)
        try:
            with suppress(LeaseLost), _tick.isolate_errors(tick.name):
                import_string(tick.function)()
        finally:
            self._ended[tick.name] = self.clock()
            self.runs[tick.name] = TickRun(started, max(started, self.now()))

    def run_until(self, over: threading.Event) -> None:
        """Run the ticks until `over` is set."""
        try:
            while not over.is_set():
                try:
                    wait = self.step()
                except Exception:  # loop boundary; the database may be down
                    logger.exception("a worker's ticks are tried again")
                    wait = LEAD_LOOK_S
                if wait > KEEPS_CONNECTION_S:
                    connections.close_all()
                over.wait(wait)
        finally:
            connections.close_all()


class Timers:
    """All ticks of a worker."""

    def __init__(
        self,
        over: threading.Event,
        *,
        ticks: Sequence[Tick] = TICKS,
        leads: Callable[[], bool] = hosts.leads,
    ) -> None:
        """`over`: set when the worker ends; `leads`: whether this worker runs the leader's."""
        self._over = over
        self._begun = datetime.now(UTC)
        names = dict.fromkeys(tick.thread or tick.name for tick in ticks)
        self._ticks = {
            name: TickThread(
                [own_tick for own_tick in ticks if name in (own_tick.thread, own_tick.name)], leads
            )
            for name in names
        }
        self._threads = [
            threading.Thread(target=work.run_until, args=(over,), name=f"ticks-{name}", daemon=True)
            for name, work in self._ticks.items()
        ]
        self._threads.append(
            threading.Thread(target=self._keep_reporting, name="ticks-report", daemon=True)
        )

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def join(self, limit_s: float = STOP_S) -> None:
        """Wait for the threads, once `over` is set, for at most `limit_s` seconds in all."""
        end = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def report(self) -> TickReport:
        """Return the times of all ticks."""
        runs = {
            name: run for thread in self._ticks.values() for name, run in thread.runs.copy().items()
        }
        return TickReport(settings.HEADGATE_HOST, datetime.now(UTC), self._begun, runs)

    def _keep_reporting(self) -> None:
        while not self._over.is_set():
            signs_of_life.try_to_report(self.report())
            self._over.wait(signs_of_life.REPORT_EVERY_S)
