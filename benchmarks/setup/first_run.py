"""Measure how long `make run` takes on a bare machine, to its address and to the first batch.

Each turn clones this checkout's HEAD into an empty folder and calls `make run` there, with empty
caches of pip and uv, so every package comes from the registry that pip is configured to use. Java
is the one that this machine has; without one, it is installed by the package manager's list, too.

- ours: seconds from `make run` to the printed address, installed by uv;
- baseline: the same with `HEADGATE_INSTALLER=pip`.

The arms take turns. A turn counts only if the address answers and a query of the demo commits its
first batch. The table shows the steps, each up to the line with which the next one begins. The last
line is JSON.
"""

import argparse
import os
import shutil
import sqlite3
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from benchmarks._measuring import ratios, report, spread, workplace
from tests import pieces

TAKES = "20 minutes"

REPOSITORY = Path(__file__).resolve().parents[2]
#: What a line says, and which step begins with it.
STEPS = {
    "Creating .venv": "an empty .venv",
    "Installing the": "packages: uv itself, or pip at once",
    "  Resolved": "packages: download and build",
    "  Prepared": "packages: unpack",
    "  Installed": "packages: compile to bytecode",
    "Java ": "Java and Valkey",
    "Preparing the database": "the database and the static files",
    "Starting ": "the programs, until they work together",
    "Created the demo": "the rest of the demo, the first admin",
}
FIRST = "Python and make"
LIMIT_S = 1800
ARMS = {"uv": {}, "pip": {"HEADGATE_INSTALLER": "pip"}}


def main() -> None:
    """Set up and start Headgate in fresh clones, by turns."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    rounds = options.parse_args().rounds
    urls: dict[str, list[float]] = {name: [] for name in ARMS}
    batches: dict[str, list[float]] = {name: [] for name in ARMS}
    steps: dict[str, list[float]] = {}
    with workplace("first-run") as folder:
        for number in range(rounds):
            order = list(ARMS) if number % 2 == 0 else list(reversed(ARMS))
            for name in order:
                found, url, batch = _turn(folder / f"{name}-{number}", ARMS[name])
                urls[name].append(url)
                batches[name].append(batch)
                print(f"{name}: {url:.1f} s to the address, {batch:.1f} s more to the first batch")
                if name == "uv":
                    for step, seconds in found.items():
                        steps.setdefault(step, []).append(seconds)
    for step, values in steps.items():
        print(f"{step:40} {spread(values)} s")
    for name in ARMS:
        print(
            f"{name}: address after {spread(urls[name])} s; batch {spread(batches[name])} s later"
        )
    report(
        "first-run",
        ours=round(statistics.median(urls["uv"]), 1),
        baseline=round(statistics.median(urls["pip"]), 1),
        ratio=round(statistics.median(ratios(urls["pip"], urls["uv"])), 2),
        url_s=round(statistics.median(urls["uv"]), 1),
        batch_s=round(statistics.median(batches["uv"]), 1),
        rounds=rounds,
    )


def _turn(folder: Path, more: dict[str, str]) -> tuple[dict[str, float], float, float]:
    """Return the steps' seconds, those to the address, and those from there to the first batch."""
    clone, caches = folder / "headgate", folder / "caches"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
    environment = {
        **{name: value for name, value in os.environ.items() if not _is_ours(name)},
        "HEADGATE_PORT": str(pieces.free_port()),
        "PIP_CACHE_DIR": str(caches / "pip"),
        "UV_CACHE_DIR": str(caches / "uv"),
        **more,
    }
    began = time.monotonic()
    process = subprocess.Popen(
        ["make", "run"],
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        lines = [(time.monotonic() - began, line) for line in _until_up(process)]
        url, announced = lines[-1][0], datetime.now(UTC)
        with urllib.request.urlopen(
            f"http://127.0.0.1:{environment['HEADGATE_PORT']}/readyz"
        ) as it:
            assert it.status == 200
        first = _first_commit(clone / "var" / "headgate.sqlite3")
        return _steps(lines), url, (first - announced).total_seconds()
    finally:
        subprocess.run(["make", "stop"], cwd=clone, env=environment, check=False, timeout=LIMIT_S)
        process.wait(LIMIT_S)
        shutil.rmtree(folder, ignore_errors=True)


def _is_ours(name: str) -> bool:
    return name.startswith("HEADGATE_") or name in ("REDIS_URL", "DATABASE_URL", "VIRTUAL_ENV")


def _until_up(process: "subprocess.Popen[str]") -> Iterator[str]:
    """Yield the lines that `make run` prints, up to the address."""
    said = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        yield line
        if line.startswith("Headgate is at"):
            return
    raise SystemExit("make run ended without an address:\n" + "".join(said[-30:]))


def _steps(lines: list[tuple[float, str]]) -> dict[str, float]:
    """Return how long each step took, up to the line that begins the next."""
    begins = [(0.0, FIRST)]
    for at, line in lines:
        begins += [(at, step) for start, step in STEPS.items() if line.startswith(start)]
    ends = [at for at, _ in begins[1:]] + [lines[-1][0]]
    return {step: end - at for (at, step), end in zip(begins, ends, strict=True)}


def _first_commit(database: Path) -> datetime:
    """Return when the first batch of any of the demo's queries was committed."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(database)) as opened:
            (found,) = opened.execute("SELECT MIN(first_commit_at) FROM queries_run").fetchone()
            if found:
                return datetime.fromisoformat(found).replace(tzinfo=UTC)
        time.sleep(0.2)
    raise SystemExit("no query of the demo has committed a batch")


if __name__ == "__main__":
    main()
