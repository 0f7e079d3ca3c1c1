"""Measure the cost of isolating a driver: the time to its first batch, and its events per second.

There are `--rounds` (5) rounds, each with one real driver with isolation and one without. The
drivers start one after the other; then all warm up for `--warm` (30) seconds, and each is measured
`--windows` (5) times for `--seconds` (4) while the others are stopped by a signal: if the machine
is slow for a while, it is slow for all modes. Each driver runs one query whose source always has a
batch of 1,000 rows. The last line is JSON: `ours` is the events per second with isolation, and
`ratio` compares them with those without; `start_s` has, by mode, the median times from launch to
the first commit, and `start_ratio` compares these. The promised cost is at most 5 %.
"""

import argparse
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil

from benchmarks._measuring import report, spread, workplace
from headgate_ground import spool
from queries.domain.hosts import Mode
from queries.domain.protocol import RunState
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest, rate_query

TAKES = "13 minutes"
_SOURCE = {"name": "numbers", "format": "rate-micro-batch", "options": {"rowsPerBatch": "1000"}}
_AT_ONCE = {"kind": "processing_time", "interval": "0 seconds"}


def started(driver: DriverUnderTest) -> float:
    """Return the seconds from a driver's launch to its query's first commit."""
    began = time.monotonic()
    driver.launch(checkpoints=(f"file://{driver.home}/checkpoints/q1",)).ready()
    driver.start(10, rate_query(sources=[_SOURCE], trigger=_AT_ONCE))
    driver.wait_run(10, RunState.RUNNING)
    return time.monotonic() - began


def by_turns(
    drivers: Mapping[Mode, DriverUnderTest], warm: float, windows: int, seconds: float
) -> dict[Mode, float]:
    """Return each driver's events per second while it has the machine to itself."""
    time.sleep(warm)  # the JVMs compile what they run most
    told = dict.fromkeys(drivers, 0)
    for driver in drivers.values():
        _signal(driver, signal.SIGSTOP)
    for turn in range(windows):
        modes = list(drivers)
        for mode in modes[turn % len(modes) :] + modes[: turn % len(modes)]:
            _signal(drivers[mode], signal.SIGCONT)
            time.sleep(seconds / 4)  # the batch that was stopped ends
            before = _events(drivers[mode])
            time.sleep(seconds)
            told[mode] += _events(drivers[mode]) - before
            _signal(drivers[mode], signal.SIGSTOP)
    return {mode: count / (windows * seconds) for mode, count in told.items()}


def _signal(driver: DriverUnderTest, number: signal.Signals) -> None:
    """Send a signal to the driver's processes; its shim continues to watch them."""
    for process in psutil.Process(driver.ident().pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # Hadoop starts a `chmod` for each file that it writes
            process.send_signal(number)


def _events(driver: DriverUnderTest) -> int:
    return sum(1 for _ in spool.read_from(driver.directory / "own" / spool.FOLDER, 0))


def a_round(
    folder: Path, modes: Sequence[Mode], options: argparse.Namespace
) -> dict[Mode, tuple[float, float]]:
    """Return the seconds to the first commit, and events per second, of one driver in each mode."""
    drivers: dict[Mode, DriverUnderTest] = {}
    starts: dict[Mode, float] = {}
    try:
        for mode in modes:
            home = folder / mode
            home.mkdir()
            for other in drivers.values():
                _signal(other, signal.SIGSTOP)
            drivers[mode] = DriverUnderTest(home, walls=mode)
            starts[mode] = started(drivers[mode])
        for driver in drivers.values():
            _signal(driver, signal.SIGCONT)
        events = by_turns(drivers, options.warm, options.windows, options.seconds)
    finally:
        for driver in drivers.values():
            _signal(driver, signal.SIGCONT)
            driver.end()
    return {mode: (starts[mode], events[mode]) for mode in modes}


def take_turns(
    modes: Sequence[Mode], options: argparse.Namespace
) -> dict[Mode, list[tuple[float, float]]]:
    """Return the measurements in each mode; each mode begins a round equally often."""
    found: dict[Mode, list[tuple[float, float]]] = {mode: [] for mode in modes}
    with workplace("walls") as folder:
        for turn in range(options.rounds):
            first = turn % len(modes)
            place = folder / str(turn)
            place.mkdir()
            measured = a_round(place, (*modes[first:], *modes[:first]), options)
            for mode, figures in measured.items():
                found[mode].append(figures)
    return found


def main() -> None:
    """Measure all modes, and print a line of JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=4)
    options.add_argument("--windows", type=int, default=5)
    options.add_argument("--warm", type=float, default=30)
    asked = options.parse_args()
    if why := pieces.missing_walls():
        raise SystemExit(why)
    found = take_turns((Mode.NEITHER, Mode.BUBBLEWRAP), asked)
    for mode, figures in found.items():
        starts, events = zip(*figures, strict=True)
        pairs = [own / base for own, (_, base) in zip(events, found[Mode.NEITHER], strict=True)]
        print(
            f"{mode}: start {spread(starts, '.2f')} s, {spread(events, '.2f')} events/s, "
            f"{spread(pairs, '.3f')} of the values without isolation in the same round"
        )
    tell(found)


def tell(found: Mapping[Mode, Sequence[tuple[float, float]]]) -> None:
    """Print the JSON line."""
    starts = {mode: median(each[0] for each in found[mode]) for mode in found}
    events = {mode: median(each[1] for each in found[mode]) for mode in found}
    baseline, start_baseline = events[Mode.NEITHER], starts[Mode.NEITHER]
    ours = events[Mode.BUBBLEWRAP]
    report(
        "walls",
        ours=round(ours, 2),
        baseline=round(baseline, 2),
        ratio=round(ours / baseline, 3),
        start_s={mode: round(start, 2) for mode, start in starts.items()},
        start_ratio=round(starts[Mode.BUBBLEWRAP] / start_baseline, 3),
    )


if __name__ == "__main__":
    main()
