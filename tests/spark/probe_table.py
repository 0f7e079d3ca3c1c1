"""Many probes in one warm Spark: `python -m tests.spark.probe_table HOME`.

A probe asks one question and leaves; a table of questions shares a process here. It makes
checkpoints as a driver would, tries each case of `cases.json` against copies of them, and
writes `results.json` beside hashes of everything real before and after.
"""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from queries.checkpoints.batches import batch_to_replay
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import snapshot
from queries.domain.probes.questions import PreflightTask, ProbeResult, XrayTask
from queries.runtime import build
from queries.runtime.code.stream_writers import Callbacks
from queries.runtime.probes import inspections, preflight
from queries.secret_references import References
from tests.spark.driver_under_test import write_rows

ROWS = 40  # a file


@dataclass
class Teller:
    """What a probe would write to disk."""

    report: ProbeResult

    def publish(self, **changes: Any) -> None:
        self.report = replace(self.report, **changes)

    @contextmanager
    def step(self, phrase: str) -> Iterator[None]:
        self.publish(at=phrase)
        yield


def rows(number: int) -> list[dict[str, Any]]:
    """Return the rows of a file: five carriers, four hours, delays of their own."""
    return [
        {
            "carrier": "ABCDE"[i % 5],
            "origin": ("JFK", "LGA", "EWR")[(i * 7 + number) % 3],
            "delay": float((i * 13 + number * 5) % 60),
            "sched": f"2013-01-01T{number % 4 + 6:02}:{i % 60:02}:00Z",
        }
        for i in range(ROWS)
    ]


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, hidden ones included."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def main(home: Path) -> None:
    """Build, try, write down."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    references = References(env_allowlist=(), secrets_dir="")
    asked = json.loads((home / "cases.json").read_text())
    for number in range(4):
        write_rows(home / "in", f"{number}.json", rows(number))
    write_rows(home / "quiet", "0.json", rows(0))
    for name, spec in asked["bases"].items():
        session = spark.newSession()
        for key, value in spec.get("conf", {}).items():
            session.conf.set(key, value)
        place = str(home / "checkpoints" / name)
        _use_code(home / "users-code" / "a" if "function" in spec else None)
        writer = build.writer(
            session,
            spec,
            name=name,
            checkpoint=place,
            references=references,
            callbacks=Callbacks(returned=lambda: None),
        )
        writer.trigger(availableNow=True).start().awaitTermination()
    write_rows(home / "in", "new.json", rows(9))
    real = ("checkpoints", "in", "out")
    before = {name: hashes(home / name) for name in real}
    results = {}
    for name, case in asked["cases"].items():
        try:
            results[name] = _preflight(spark, home, name, case, asked["bases"], references)
        except Exception:
            results[name] = {"raised": traceback.format_exc()}
    for name, task in asked["x_rays"].items():
        try:
            place = f"file://{home}/checkpoints/{task.pop('base')}"
            results[name] = inspections.read(spark, XrayTask(place, 60, 10, **task))
        except Exception:
            results[name] = {"raised": traceback.format_exc()}
    after = {name: hashes(home / name) for name in real}
    untouched = spark._jvm.org.apache.spark.sql.internal.SQLConf()
    defaults = {name: untouched.getConfString(name) for name in asked.get("defaults", ())}
    package = "" if spark.version.startswith(("3.", "4.0.")) else "checkpointing."
    logs = f"org.apache.spark.sql.execution.streaming.{package}OffsetSeqMetadata$"
    pinned = getattr(getattr(spark._jvm, logs), "MODULE$").relevantSQLConfs()
    whole: dict[str, Any] = {"pinned": [pinned.apply(i).key() for i in range(pinned.size())]}
    whole |= {"results": results, "before": before, "after": after, "defaults": defaults}
    (home / "results.json").write_text(json.dumps(whole))
    spark.stop()


def _use_code(folder: Path | None) -> tuple[str, ...]:
    """Import users' code from this folder only, as a fresh driver would."""
    sys.modules.pop("users_sums", None)
    sys.path[:] = [path for path in sys.path if "/users-code/" not in path]
    if folder is None:
        return ()
    sys.path.insert(0, str(folder))
    return (str(folder),)


def _preflight(
    spark: Any,
    home: Path,
    name: str,
    case: dict[str, Any],
    bases: dict[str, Any],
    references: References,
) -> dict[str, Any]:
    scratch = home / "scratch" / name
    base = case.get("base", "")
    copies: dict[str, Any] = {}
    batch = None
    if base:
        asked = batch_to_replay(CheckpointLogs.at(f"file://{home}/checkpoints/{base}"))
        for copy in ("copy", "sink_copy"):
            made = snapshot(
                f"file://{home}/checkpoints/{base}", scratch / copy, asked, False, new_id=True
            )
            copies[copy], batch = str(scratch / copy), made.batch
    folder = home / "users-code"
    roots = _use_code(folder / case["code"] if "code" in case else None)
    task = PreflightTask(
        old_code_roots=(str(folder / "a"),) if roots else (),
        same_code=not roots,
        name=name,
        spec=case["spec"],
        scratch=str(scratch / "scratch"),
        limit_s=120,
        attempt_limit_s=60,
        batch=batch,
        old_spec=bases[base] if base else None,
        **copies,
    )
    teller = Teller(ProbeResult("Starting Spark"))
    preflight.run(spark, task, references, teller, code_roots=roots)
    found: dict[str, Any] = json.loads(teller.report.dumps())
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
