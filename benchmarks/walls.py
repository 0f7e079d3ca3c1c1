"""What walls cost a driver: the time to its first batch, and the events a second that it tells.

Real drivers, `--rounds` (5) in each mode, taken in turn so that both see the same machine. Each
runs one query whose source always has a batch of 1,000 rows, for `--seconds` (20) of measuring.
The last line is JSON; `ratio` is the events a second within bubblewrap's walls over those
without, `start_ratio` the same of the median time from launch to the first commit.
Promised: within 5 %.
"""

import argparse
import time
from pathlib import Path
from statistics import median

from benchmarks._measuring import report, workplace
from listeners import spool
from queries.domain.protocol import RunState
from queries.domain.walls import Mode
from tests.spark.driver_under_test import DriverUnderTest, rate_query

TAKES = "6 minutes"
_SOURCE = {"name": "numbers", "format": "rate-micro-batch", "options": {"rowsPerBatch": "1000"}}
_AT_ONCE = {"kind": "processing_time", "interval": "0 seconds"}
MODES = (Mode.NEITHER, Mode.BUBBLEWRAP)


def measure(home: Path, mode: Mode, seconds: float) -> tuple[float, float]:
    """Return seconds from launch to the first commit, and events a second after it."""
    driver = DriverUnderTest(home, walls=mode)
    try:
        began = time.monotonic()
        driver.launch(checkpoints=(f"file://{home}/checkpoints/q1",)).ready()
        driver.start(10, rate_query(sources=[_SOURCE], trigger=_AT_ONCE))
        driver.wait_run(10, RunState.RUNNING)
        started = time.monotonic() - began
        time.sleep(seconds / 4)  # the JVM compiles what it runs most
        before, since = _events(driver), time.monotonic()
        time.sleep(seconds)
        return started, (_events(driver) - before) / (time.monotonic() - since)
    finally:
        driver.end()


def _events(driver: DriverUnderTest) -> int:
    return sum(1 for _ in spool.read_from(driver.directory / "own" / spool.FOLDER, 0))


def main() -> None:
    """Measure, and print a line of JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=20)
    asked = options.parse_args()
    found: dict[Mode, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    with workplace("walls") as folder:
        for turn in range(asked.rounds):
            for mode in MODES if turn % 2 else reversed(MODES):
                home = folder / f"{turn}-{mode}"
                found[mode].append(measure(home, mode, asked.seconds))
    starts = {mode: median(each[0] for each in found[mode]) for mode in MODES}
    events = {mode: median(each[1] for each in found[mode]) for mode in MODES}
    ours, baseline = events[Mode.BUBBLEWRAP], events[Mode.NEITHER]
    report(
        "walls",
        ours=round(ours, 2),
        baseline=round(baseline, 2),
        ratio=round(ours / baseline, 3),
        start_s=round(starts[Mode.BUBBLEWRAP], 2),
        start_baseline_s=round(starts[Mode.NEITHER], 2),
        start_ratio=round(starts[Mode.BUBBLEWRAP] / starts[Mode.NEITHER], 3),
    )


if __name__ == "__main__":
    main()
