"""List the ticks, the work that a worker repeats, and decide when each is due and when it is late.

A tick is due an interval after its last run has ended. A slow run delays the next one, two never
overlap, and none is dropped. `listeners.loops.timers` runs them; the system's health judges the
times that it reports.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

SWEEP_EVERY_S = 2.0
LAG_EVERY_S = 5.0  # a silent broker is noticed within this plus a check's 4 s


@dataclass(frozen=True, slots=True)
class Tick:
    """Work that is repeated, and where it runs."""

    function: str  # its dotted path
    every_s: float  # from the end of a run to the beginning of the next
    #: Ticks with the same thread run in turn. "": a thread of its own, for the sweep, and for ticks
    #: that may wait for a broker, a storage, a repository, Spark's parser or a channel of alerts.
    thread: str = ""
    by_leader: bool = False  # once in the installation, otherwise on each host
    may_take_s: float = 60.0  # a run that takes longer is a problem

    @property
    def name(self) -> str:
        """Return the function's own name, which is unique."""
        return self.function.rpartition(".")[2]


def _of_host(function: str, every_s: float, thread: str = "", may_take_s: float = 60.0) -> Tick:
    return Tick(function, every_s, thread, may_take_s=may_take_s)


def _of_installation(function: str, every_s: float, thread: str = "") -> Tick:
    return Tick(function, every_s, thread, by_leader=True)


TICKS = (
    # About the processes and files of a host.
    _of_host("queries.ticks.sweep", SWEEP_EVERY_S),
    _of_host("queries.ticks.advance_operations", SWEEP_EVERY_S),
    _of_host("queries.ticks.advance_deploys", SWEEP_EVERY_S, may_take_s=180),
    _of_host("queries.ticks.look_at_sources", LAG_EVERY_S),
    _of_host("queries.ticks.look_at_tables", LAG_EVERY_S, may_take_s=180),  # starts a JVM
    _of_host("queries.ticks.look_at_folders", LAG_EVERY_S, may_take_s=180),  # as scheduled
    _of_host("queries.ticks.look_for_foreign_batches", 30),
    _of_host("queries.ticks.adopt", 30, "host"),
    _of_host("queries.ticks.look_ahead", 15, "host"),  # runs half a second; a round a minute
    _of_host("listeners.ticks.judge_gaps", 10, "host"),
    _of_host("queries.ticks.repair_from_checkpoints", 60, "files", 180),
    _of_host("queries.ticks.prune_snapshots", 600, "files", 600),
    _of_host("queries.ticks.prune", 3600, "files", 600),
    _of_host("queries.ticks.prune_code", 3600, "files", 600),
    # About rows.
    _of_installation("queries.ticks.run_schedules", 5, "rows"),
    _of_installation("queries.ticks.note_verdicts", 5, "rows"),
    _of_installation("queries.ticks.watch_incidents", 5, "rows"),
    _of_installation("queries.ticks.send_alerts", 5),
    _of_installation("queries.ticks.recheck_sql", 10),  # saved while the parser did not answer
    _of_installation("queries.ticks.call_outside", 60),
    _of_installation("queries.ticks.keep_ledger", 10, "upkeep"),
    _of_installation("queries.ticks.chain_audit_log", 10, "upkeep"),  # of a process that died
    _of_installation("listeners.ticks.expire", 60, "upkeep"),  # what is left; else once an hour
    _of_installation("queries.ticks.forget_old_incidents", 3600, "upkeep"),
    _of_installation("queries.ticks.forget_expired_tokens", 3600, "upkeep"),
    _of_installation("queries.ticks.prune_audit_log", 3600, "upkeep"),
)
#: A rare tick runs this long after a worker has begun, for one that restarts every half hour.
FIRST_AFTER_S = 60.0
#: Intervals after which a tick that is due is late.
LATE_INTERVALS = 5


def first_after_s(tick: Tick) -> float:
    """Return how many seconds after its start a worker runs a tick for the first time."""
    return min(tick.every_s, FIRST_AFTER_S)


def next_due(
    ticks: Iterable[Tick], *, begun: float, ended: Mapping[str, float]
) -> tuple[Tick, float]:
    """Return the tick of a thread that is due first, and when.

    All times are seconds of one clock: `begun`, when the thread began; `ended`, the end of the last
    run by the tick's name.
    """

    def due(tick: Tick) -> float:
        if tick.name in ended:
            return ended[tick.name] + tick.every_s
        return begun + first_after_s(tick)

    return min(((tick, due(tick)) for tick in ticks), key=lambda found: found[1])


@dataclass(frozen=True, slots=True)
class TickRun:
    """The newest times of a tick."""

    started: datetime  # of the newest run
    ended: datetime | None = None  # of the newest run that has ended; None: none has

    @property
    def is_running(self) -> bool:
        """Return whether the newest run has not ended."""
        return self.ended is None or self.ended < self.started


@dataclass(frozen=True, slots=True)
class TickReport:
    """What one worker reports of its ticks."""

    host: str
    at: datetime
    begun: datetime  # when the worker's timers began
    runs: Mapping[str, TickRun]  # by the tick's name; without those that never ran


@dataclass(frozen=True, slots=True)
class LateTick:
    """A tick that is late, or that has been running for too long."""

    tick: Tick
    host: str
    since: datetime  # when it was due, or began to run
    is_running: bool


def late_ticks(
    reports: Sequence[TickReport],
    *,
    now: datetime,
    silent_after: timedelta,
    ticks: Sequence[Tick] = TICKS,
) -> list[LateTick]:
    """Return the ticks that are late by more than `LATE_INTERVALS`, or take too long.

    Only workers that have reported within `silent_after` are judged: the health of hosts covers the
    others. Of ticks that the leader runs, the newest run counts, whoever ran it.
    """
    recent_reports = [report for report in reports if now - report.at <= silent_after]
    if not recent_reports:
        return []
    late = [
        _late(tick, report.host, report.begun, report.runs.get(tick.name), now)
        for report in recent_reports
        for tick in ticks
        if not tick.by_leader
    ]
    begun = min(report.begun for report in recent_reports)
    for tick in ticks:
        if tick.by_leader:
            host, run = _newest(tick, reports, recent_reports)
            late.append(_late(tick, host, begun, run, now))
    return [tick_late for tick_late in late if tick_late is not None]


def _newest(
    tick: Tick, reports: Iterable[TickReport], recent_reports: Iterable[TickReport]
) -> tuple[str, TickRun | None]:
    """Return the newest run by any worker, and the host of the last worker that began one.

    The run of a worker whose heartbeat has stopped counts only if it has ended.
    """
    runs = [
        (newest_report.host, newest_report.runs[tick.name])
        for newest_report in recent_reports
        if tick.name in newest_report.runs
    ]
    ends = [
        run.ended
        for report in reports
        if (run := report.runs.get(tick.name)) is not None and run.ended is not None
    ]
    ended = max(ends, default=None)
    if runs:
        host, run = max(runs, key=lambda found: found[1].started)
        return host, TickRun(run.started, ended)
    return "", TickRun(ended, ended) if ended else None


def _late(
    tick: Tick, host: str, begun: datetime, run: TickRun | None, now: datetime
) -> LateTick | None:
    every = timedelta(seconds=tick.every_s)
    if run is not None and run.is_running:
        limit = max(timedelta(seconds=tick.may_take_s), LATE_INTERVALS * every)
        return LateTick(tick, host, run.started, True) if now - run.started > limit else None
    due = begun + timedelta(seconds=first_after_s(tick))
    if run is not None and run.ended is not None:
        due = max(due, run.ended + every)
    return LateTick(tick, host, due, False) if now - due > LATE_INTERVALS * every else None
