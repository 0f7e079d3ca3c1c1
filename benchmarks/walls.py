"""What walls cost a driver: the time to its first batch, and the events a second that it tells.

Real drivers, `--rounds` (5) in each mode that this host can give, taken in turn so that all see
the same machine. Each runs one query whose source always has a batch of 1,000 rows, for
`--seconds` (15) of measuring. Accounts are made for the time and removed; that takes root and a
Python that other accounts get to, and a mode that cannot be had is said and left out.
The last line is JSON: `ours` and `ratio` are the events a second within the walls that cost most,
over those without; `start_s` and `start_ratio` by mode are the median times from launch to the
first commit. Promised: within 5 %.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks._measuring import report, spread, workplace
from listeners import spool
from queries.domain.protocol import RunState
from queries.domain.walls import Mode
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest, rate_query

TAKES = "9 minutes"
_SOURCE = {"name": "numbers", "format": "rate-micro-batch", "options": {"rowsPerBatch": "1000"}}
_AT_ONCE = {"kind": "processing_time", "interval": "0 seconds"}


def measure(
    home: Path, mode: Mode, seconds: float, accounts: Sequence[str] = ()
) -> tuple[float, float]:
    """Return seconds from launch to the first commit, and events a second after it."""
    driver = DriverUnderTest(home, walls=mode, accounts=accounts)
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


def missing() -> dict[Mode, str]:
    """Return the modes that this host cannot give, and why."""
    why = {
        Mode.BUBBLEWRAP: pieces.missing_walls(),
        Mode.ACCOUNTS: pieces.missing_accounts() or pieces.missing_way(),
    }
    return {mode: reason for mode, reason in why.items() if reason}


@contextmanager
def _accounts(folder: Path, modes: Sequence[Mode]) -> Iterator[tuple[str, ...]]:
    """Make an account where that mode is measured; yield its name."""
    if Mode.ACCOUNTS not in modes:
        yield ()
        return
    with pieces.accounts_made(folder, 1) as names:
        yield tuple(names)


def take_turns(
    modes: Sequence[Mode], rounds: int, seconds: float
) -> dict[Mode, list[tuple[float, float]]]:
    """Return what was measured in each mode; each begins a round as often as the others."""
    found: dict[Mode, list[tuple[float, float]]] = {mode: [] for mode in modes}
    with workplace("walls") as folder:
        folder.chmod(0o711)
        with _accounts(folder, modes) as names:
            for turn in range(rounds):
                first = turn % len(modes)
                for mode in (*modes[first:], *modes[:first]):
                    home = folder / f"{turn}-{mode}"
                    home.mkdir(mode=0o711)
                    given = names if mode is Mode.ACCOUNTS else ()
                    found[mode].append(measure(home, mode, seconds, given))
    return found


def main() -> None:
    """Measure, and print a line of JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=15)
    asked = options.parse_args()
    lacking = missing()
    for mode, reason in lacking.items():
        print(f"{mode}: not measured; {reason}")
    walled = [mode for mode in (Mode.BUBBLEWRAP, Mode.ACCOUNTS) if mode not in lacking]
    if not walled:
        raise SystemExit("This host has no walls to measure.")
    found = take_turns((Mode.NEITHER, *walled), asked.rounds, asked.seconds)
    for mode, figures in found.items():
        starts, events = zip(*figures, strict=True)
        print(f"{mode}: start {spread(starts, '.2f')} s, {spread(events, '.2f')} events/s")
    tell(found, walled)


def tell(found: Mapping[Mode, Sequence[tuple[float, float]]], walled: Sequence[Mode]) -> None:
    """Print the line of JSON."""
    starts = {mode: median(each[0] for each in found[mode]) for mode in found}
    events = {mode: median(each[1] for each in found[mode]) for mode in found}
    baseline, start_baseline = events[Mode.NEITHER], starts[Mode.NEITHER]
    ours = min(events[mode] for mode in walled)
    report(
        "walls",
        ours=round(ours, 2),
        baseline=round(baseline, 2),
        ratio=round(ours / baseline, 3),
        events_ratio={mode: round(events[mode] / baseline, 3) for mode in walled},
        start_s={mode: round(start, 2) for mode, start in starts.items()},
        start_ratio={mode: round(starts[mode] / start_baseline, 3) for mode in walled},
    )


if __name__ == "__main__":
    main()
