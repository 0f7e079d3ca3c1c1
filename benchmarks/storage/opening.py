"""Measure how long a checkpoint on S3 takes to open: its first reading, and later ones.

A real gateway and a real storage JVM, which is warm; checkpoints of 100, 10,000 and 100,000
objects, of which all but the logs are state. A reading brings the logs' newest entries to a mirror,
which the Checkpoint tab shows; the state's sizes follow, and are not part of these figures. Before
every later reading the query commits one batch.

- ours: a later reading of the largest checkpoint, p50 in ms;
- baseline: its first reading.

Every mirror is compared with the bucket before its figure counts. The last line is JSON.
"""

import argparse
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks._measuring import report, workplace
from examples.flights import s3_definitions
from installation.machine import trial_servers
from queries.storage.hadoop import HadoopStorage
from queries.storage.remote_checkpoint import Mirror
from tests import pieces
from tests.checkpoints.forms import write_batch, write_checkpoint
from tests.storage.servers import StorageJvm

TAKES = "3 minutes"

SIZES = (100, 10_000, 100_000)
LOGGED = 20  # batches in the smallest checkpoint; the others have Spark's usual 100


def main() -> None:
    """Measure each size."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    rounds = options.parse_args().rounds
    with workplace("opening") as folder:
        gateway = trial_servers.Gateway(folder / "s3", program=pieces.versitygw(), usual_port=None)
        (folder / "s3").mkdir()
        gateway.start(pieces.java().home)
        try:
            address = gateway.address()
            conf = s3_definitions.store(gateway.place, address.access_key, address.secret_key)
            jvm = StorageJvm(folder / "jvm", conf)
            try:
                found = {size: _measured(folder, gateway, jvm, size, rounds) for size in SIZES}
            finally:
                jvm.end()
        finally:
            gateway.stop()
    for size, (first, later) in found.items():
        print(f"{size:>7,} objects: first {_told(first)}, later {_told(later)}")
    baseline, ours = (statistics.median(times) for times in found[SIZES[-1]])
    report(
        "opening",
        ours=round(ours, 1),
        baseline=round(baseline, 1),
        ratio=round(ours / baseline, 2),
        unit="ms",
        rounds=rounds,
    )


def _measured(
    folder: Path, gateway: trial_servers.Gateway, jvm: StorageJvm, size: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Return the times of first and later readings of one checkpoint, in ms."""
    location = f"s3a://{trial_servers.BUCKET}/size-{size}"
    mine = folder / f"size-{size}"
    batches = LOGGED if size <= 100 else 100
    write_checkpoint(mine, batches=range(batches), store="delta", partitions=1)
    _upload(jvm.storage, mine, location)
    state = gateway.data / trial_servers.BUCKET / f"size-{size}" / "state" / "0"
    there = sum(1 for path in mine.rglob("*") if path.is_file() and not path.name.startswith("."))
    for number in range(max(0, size - there)):  # only listed, so the gateway need not see them
        path = state / str(number // 1000) / f"{number}.delta"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    first: list[float] = []
    later: list[float] = []
    _reading(jvm.storage, Mirror(folder / f"warm-{size}"), location, batches - 1)
    for turn in range(rounds):
        mirror = Mirror(folder / f"mirror-{size}-{turn}")
        newest = batches - 1 + turn
        first.append(_reading(jvm.storage, mirror, location, newest))
        write_batch(mine, newest + 1)
        _upload(jvm.storage, mine, location)
        later.append(_reading(jvm.storage, mirror, location, newest + 1))
    return first, later


def _reading(storage: HadoopStorage, mirror: Mirror, location: str, newest: int) -> float:
    began = time.perf_counter()
    mirror.refresh(storage, location, now=datetime.now(UTC))
    took = (time.perf_counter() - began) * 1000
    found = {int(path.name) for path in (mirror.checkpoint / "commits").iterdir()}
    if max(found) != newest or not all(
        (mirror.checkpoint / "offsets" / str(number)).stat().st_size for number in found
    ):
        raise SystemExit(f"the mirror of {location} is not what the bucket holds")
    return took


def _upload(storage: HadoopStorage, folder: Path, location: str) -> None:
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    storage.copy(folder.as_uri(), [name for name in names if "/." not in name], location)


def _told(times: list[float]) -> str:
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    return f"p50 {statistics.median(ordered):.0f} ms, p95 {p95:.0f} ms"


if __name__ == "__main__":
    main()
