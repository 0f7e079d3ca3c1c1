"""What copies of checkpoints are worth: started, they give what the original gives.

Live snapshots of a stateful query at full speed are each started as a clone; a rewind by
five batches ends where a computation from scratch does, on both state stores, into a file sink
that readers with and without its log read alike. All share one driver.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import snapshot
from queries.domain.protocol import RunState, Want
from queries.domain.states import OperationOutcome, Verb
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Operation
from queries.services.checkpoints import clone, rewind_and_reset
from queries.services.checkpoints.source_starts import WantedStart
from queries.services.procedures.engine import advance, due_operations
from queries.tasks import PROCEDURES
from tests.checkpoints.forms import tree
from tests.scenarios.stage import Stage
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = pytest.mark.spark

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PREFIX = "spark.sql.streaming.stateStore."
STORES: dict[str, dict[str, str]] = {
    "hdfs": {},
    "rocksdb": {f"{_PREFIX}providerClass": ROCKSDB},
    "changelog": {
        f"{_PREFIX}providerClass": ROCKSDB,
        f"{_PREFIX}rocksdb.changelogCheckpointing.enabled": "true",
        f"{_PREFIX}minDeltasForSnapshot": "3",
    },
}

CODE = '''
import json
import os
from pathlib import Path


def totals(spark, params):
    """Keep a running sum and count of each key; write what each batch changed."""
    rows = (
        spark.readStream.schema("k INT, v LONG")
        .option("maxFilesPerTrigger", params["files"])
        .json(params["source"])
    )
    out = Path(params["out"])

    def keep(frame, batch):
        found = {str(row.k): [row.s, row.n] for row in frame.collect()}
        draft = out / f".{batch}"
        draft.write_text(json.dumps(found))
        os.replace(draft, out / f"{batch}.json")

    from pyspark.sql import functions as F

    sums = rows.groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))
    return sums.writeStream.outputMode("update").foreachBatch(keep)
'''


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverUnderTest]:
    home = tmp_path_factory.mktemp("clones")
    code = home / "code-root"
    code.mkdir()
    (code / "clones_code.py").write_text(CODE)
    driver = DriverUnderTest(home)
    roots, digest = driver.launcher.freeze_code((str(code),))
    conf = {
        "spark.sql.shuffle.partitions": "2",
        # Purge as hard as Spark can, so that copies race with it.
        "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
        "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
    }
    try:
        driver.launch(code_roots=roots, code_sha256=digest, memory="1g", conf=conf)
        driver.ready()
        yield driver
    finally:
        driver.end()


def _run(driver: DriverUnderTest, run: int, spec: dict[str, Any], checkpoint: Path) -> None:
    """Run a query that ends by itself, to its end."""
    driver.start(run, spec, checkpoint=f"file://{checkpoint}")
    ended = driver.wait_run(run, RunState.ENDED, RunState.FAILED)
    assert ended.state is RunState.ENDED, ended.error
    driver.drop(run)


# --- live snapshots -----------------------------------------------------------------


FILES = 70
SNAPSHOTS = int(os.environ.get("HEADGATE_TEST_SNAPSHOTS", "5"))  # of each of two stores
PER_BATCH = 1  # then the next batch is waited for


def _write_keys(folder: Path) -> None:
    folder.mkdir()
    for n in range(FILES):
        rows = [{"k": (n * 7 + row) % 40, "v": n * 1000 + row} for row in range(60)]
        _write(folder / f"f{n:03}.json", rows, n)


def _write(place: Path, rows: list[dict[str, Any]], second: int) -> None:
    draft = place.with_name(f".{place.name}")
    draft.write_text("\n".join(map(json.dumps, rows)))
    os.utime(draft, (1_700_000_000 + second, 1_700_000_000 + second))  # read in this order
    draft.rename(place)


def _totals(source: Path, out: Path, conf: dict[str, str], **changes: Any) -> dict[str, Any]:
    out.mkdir()
    return {
        "kind": "python",
        "function": "clones_code:totals",
        "params": {"source": str(source), "out": str(out), "files": 1},
        "trigger": {"kind": "processing_time", "interval": "0 seconds"},
        "conf": {"spark.sql.streaming.minBatchesToRetain": "4", **conf},
        **changes,
    }


def _after(out: Path, batch: int) -> dict[str, list[int]]:
    """Return what was last written of each key after a batch."""
    found: dict[str, list[int]] = {}
    written = sorted((int(place.stem), place) for place in out.glob("[0-9]*.json"))
    for number, place in written:
        if number > batch:
            found |= json.loads(place.read_text())
    return found


def _is_beyond(root: Path, batch: int) -> bool:
    newest = CheckpointLogs(root).last_commit()
    return newest is not None and newest > batch


@pytest.mark.parametrize(("store", "run"), [("hdfs", 1000), ("changelog", 2000)])
@pytest.mark.timeout(900)
def test_each_of_many_live_snapshots_gives_what_the_original_gives_from_there_on(
    driver: DriverUnderTest, tmp_path: Path, store: str, run: int
) -> None:
    source, root = tmp_path / "in", tmp_path / "original"
    _write_keys(source)
    driver.start(run, _totals(source, tmp_path / "out", STORES[store]), checkpoint=f"file://{root}")
    driver.wait_run(run, RunState.RUNNING)
    taken = []
    for number in range(SNAPSHOTS):
        copied = snapshot(f"file://{root}", tmp_path / f"copy-{number}", new_id=True)
        taken.append(copied.batch)
        time.sleep(0.13)  # at any phase of a batch
        if taken.count(copied.batch) >= PER_BATCH and copied.batch < FILES - 1:
            wait_for(partial(_is_beyond, root, copied.batch), "the original's next batch")
    wait_for(lambda: (tmp_path / f"out/{FILES - 1}.json").exists(), "the original has read all")
    driver.request_end(run, Want.DRAIN)
    driver.wait_run(run, RunState.ENDED)
    driver.drop(run)
    assert len(set(taken)) >= 5, "the snapshots were not taken of a moving query"
    before = tree(root)
    for number, batch in enumerate(taken):
        out = tmp_path / f"out-{number}"
        spec = _totals(source, out, STORES[store], trigger={"kind": "available_now"})
        spec["params"]["files"] = FILES  # the rest in one batch
        _run(driver, run + 10 * (number + 1), spec, tmp_path / f"copy-{number}")
        assert _after(out, -1) == _after(tmp_path / "out", batch), f"snapshot {number} of {batch}"
    after = tree(root)
    assert after.items() <= before.items()
    # Spark's own upkeep of the ended query's store may still drop versions it keeps no more.
    assert all(name.startswith("state/") for name in before.keys() - after.keys())


# --- rewind and reset into a file sink ----------------------------------------------------


def _windows(source: Path, out: Path, conf: dict[str, str], files: int) -> dict[str, Any]:
    return {
        "kind": "sql",
        "sources": [
            {
                "name": "events",
                "format": "json",
                "schema": "ts TIMESTAMP, k INT, v LONG",
                "options": {"path": str(source), "maxFilesPerTrigger": str(files)},
                "watermark": {"column": "ts", "delay": "1 minutes"},
            }
        ],
        "sql": "SELECT string(window.start) AS at, k, count(*) AS n, sum(v) AS s"
        " FROM events GROUP BY window(ts, '2 minutes'), k",
        "sink": {"format": "json", "options": {"path": str(out)}, "output_mode": "append"},
        "trigger": {"kind": "available_now"},
        "conf": {"spark.sql.session.timeZone": "UTC", **conf},
    }


def _write_events(folder: Path, numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    for n in numbers:
        ts = datetime(2026, 1, 1, n // 60, n % 60, tzinfo=UTC).isoformat()
        rows = [{"ts": ts, "k": row % 5, "v": n * 100 + row} for row in range(30)]
        _write(folder / f"e{n:03}.json", rows, n)


def _from_scratch(numbers: range) -> list[tuple[Any, ...]]:
    """Compute what must have been emitted: windows that the watermark has passed."""
    sums: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for n in numbers:
        for row in range(30):
            total = sums[n // 2 * 2, row % 5]
            total[0] += 1
            total[1] += n * 100 + row
    watermark = numbers.stop - 1 - 1  # minutes: the newest event, less the delay
    return sorted(
        (f"2026-01-01 {at // 60:02}:{at % 60:02}:00", k, n, s)
        for (at, k), (n, s) in sums.items()
        if at + 2 <= watermark
    )


def _rows(places: list[Path]) -> list[tuple[Any, ...]]:
    lines = [json.loads(line) for place in places for line in place.read_text().splitlines()]
    return sorted((line["at"], line["k"], line["n"], line["s"]) for line in lines)


def _seen_without_the_log(out: Path) -> list[tuple[Any, ...]]:
    return _rows(list(out.glob("part-*.json")))


def _seen_by_the_log(out: Path) -> list[tuple[Any, ...]]:
    log = out / "_spark_metadata"
    numbers = {int(p.name.removesuffix(".compact")): p for p in log.iterdir() if p.name[0] != "."}
    base = max((n for n, p in numbers.items() if p.suffix), default=0)
    entries = [
        json.loads(line)
        for n in sorted(numbers)
        if n >= base
        for line in numbers[n].read_text().split("\n")[1:]
        if line
    ]
    return _rows([Path(entry["path"].removeprefix("file://")) for entry in entries])


def _work_with_a_crash(operation: Operation, stage: Stage) -> None:
    """Take the procedure's steps, the worker dying once before the last that changes anything."""
    dead: list[str] = []
    for _ in range(20):
        for pk in due_operations(now=timezone.now()):
            Operation.objects.filter(pk=pk).update(leased_until=None)
            step = next(s for s in Operation.objects.get(pk=pk).steps if s["state"] != "DONE")
            if step["name"] not in dead:  # each step is begun by a worker that dies at its end
                dead.append(step["name"])
                _take_and_die(pk, stage)
                continue
            advance(pk, procedures=PROCEDURES, launcher=stage.launcher, now=timezone.now())
        stage.settle()
    operation.refresh_from_db()
    assert (operation.outcome, operation.detail.text) == (OperationOutcome.DONE, "")


def _take_and_die(pk: int, stage: Stage) -> None:
    from queries.services.procedures.engine import StepContext

    row = Operation.objects.get(pk=pk)
    assert row.query is not None
    place = next(i for i, step in enumerate(row.steps) if step["state"] != "DONE")
    turn = StepContext(row, row.query, stage.launcher, timezone.now(), dict(row.result))
    PROCEDURES[Verb(row.verb)].steps[place].act(turn)  # and nothing of it is written down


@pytest.mark.promise
@pytest.mark.parametrize(
    ("store", "run"), [("hdfs", 30010), ("rocksdb", 30020), ("changelog", 30030)]
)
@pytest.mark.django_db
@pytest.mark.timeout(600)
def test_a_rewind_by_five_batches_ends_where_a_computation_from_scratch_does(
    driver: DriverUnderTest, tmp_path: Path, stage: Stage, store: str, run: int
) -> None:
    source, out, root = tmp_path / "in", tmp_path / "out", tmp_path / "cp" / "windows"
    _write_events(source, range(13))
    spec = _windows(source, out, STORES[store], files=1)
    _run(driver, run, spec, root)
    assert _seen_without_the_log(out) == _from_scratch(range(13))
    newest = max(int(p.name) for p in (root / "commits").iterdir() if p.name.isdigit())
    before = tree(root)

    stage.now = timezone.now()
    query = stage.query("windows", **spec)
    Checkpoint.objects.filter(query=query).update(location=f"file://{root}")
    operation = rewind_and_reset.request_rewind(
        query=query, batch=newest - 5, actor="aude", now=stage.now
    )
    _work_with_a_crash(operation, stage)
    assert tree(root) == before
    again = Path(Checkpoint.objects.get(query=query, retired_at=None).location[7:])

    _write_events(source, range(13, 26))
    # Other boundaries of batches than the first time, and past a compaction of both logs.
    _run(driver, run + 1, _windows(source, out, STORES[store], files=2), again)
    assert _seen_by_the_log(out) == _from_scratch(range(26))
    assert _seen_without_the_log(out) == _from_scratch(range(26))
    assert tree(root) == before


@pytest.mark.django_db
@pytest.mark.timeout(600)
def test_a_clone_writes_to_a_new_folder_past_its_first_compaction(
    driver: DriverUnderTest, tmp_path: Path, stage: Stage, settings: LazySettings
) -> None:
    source, out, root = tmp_path / "in", tmp_path / "out", tmp_path / "cp" / "windows"
    _write_events(source, range(13))
    spec = _windows(source, out, {}, files=1)
    _run(driver, 60010, spec, root)
    before = tree(root)
    stage.now, settings.CHECKPOINTS_DIR = timezone.now(), root.parent
    query = stage.query("windows", **spec)
    Checkpoint.objects.filter(query=query).update(location=f"file://{root}")
    other = {"format": "json", "options": {"path": str(tmp_path / "out-2")}}
    operation = clone.request_clone(
        query=query, name="windows-two", sink=other, actor="aude", now=stage.now
    )
    _work_with_a_crash(operation, stage)
    found = Query.objects.get(name="windows-two")
    place = Path(found.checkpoints.get().location[7:])
    _write_events(source, range(13, 26))
    _run(driver, 60011, found.revisions.get().spec, place)
    rest = sorted(set(_from_scratch(range(26))) - set(_from_scratch(range(13))))
    assert _seen_without_the_log(tmp_path / "out-2") == rest
    assert _seen_by_the_log(tmp_path / "out-2") == rest
    assert tree(root) == before


@pytest.mark.django_db
@pytest.mark.timeout(600)
def test_a_reset_to_the_first_file_computes_all_of_it_anew(
    driver: DriverUnderTest, tmp_path: Path, stage: Stage
) -> None:
    source, out, root = tmp_path / "in", tmp_path / "out", tmp_path / "cp" / "windows"
    _write_events(source, range(8))
    spec = _windows(source, out, {}, files=1)
    _run(driver, 40010, spec, root)
    stage.now = timezone.now()
    query = stage.query("windows", **spec)
    Checkpoint.objects.filter(query=query).update(location=f"file://{root}")
    operation = rewind_and_reset.request_reset(
        query=query, wish=WantedStart("earliest"), actor="aude", now=stage.now
    )
    _work_with_a_crash(operation, stage)
    again = Path(Checkpoint.objects.get(query=query, retired_at=None).location[7:])
    _run(driver, 40011, _windows(source, out, {}, files=3), again)
    assert _seen_without_the_log(out) == _seen_by_the_log(out) == _from_scratch(range(8))


@pytest.mark.django_db
@pytest.mark.timeout(600)
def test_a_stateless_query_reset_to_now_reads_only_what_comes(
    driver: DriverUnderTest, tmp_path: Path, stage: Stage
) -> None:
    # Spark knows the files again by their address, so odd names must be written as it does.
    source, out, root = tmp_path / "in day=1, ü", tmp_path / "out", tmp_path / "cp" / "plain"
    _write_events(source, range(6))
    spec = _windows(source, out, {}, files=1)
    spec["sql"] = "SELECT string(ts) AS at, k, 1L AS n, v AS s FROM events"
    _run(driver, 50010, spec, root)
    _write_events(source, range(6, 9))  # there, and never to be read
    stage.now = timezone.now()
    query = stage.query("plain", **spec)
    Checkpoint.objects.filter(query=query).update(location=f"file://{root}")
    operation = rewind_and_reset.request_reset(
        query=query, wish=WantedStart("latest"), actor="aude", now=stage.now
    )
    _work_with_a_crash(operation, stage)
    again = Path(Checkpoint.objects.get(query=query, retired_at=None).location[7:])
    _write_events(source, range(9, 22))
    _run(driver, 50011, spec, again)
    seen = _seen_by_the_log(out)
    assert seen == _seen_without_the_log(out)
    read = {row[0][11:16] for row in seen}
    assert read == {f"00:{n:02}" for n in [*range(6), *range(9, 22)]}
    assert len(seen) == 19 * 30


# --- a log that lacks what Spark looks for ------------------------------------------------


def test_a_batch_without_its_number_of_shuffle_partitions_is_begun_again(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    """Some builds of Spark end here with None.get (SPARK-59662); the one that is pinned goes on."""
    source, out, root = tmp_path / "in", tmp_path / "out", tmp_path / "cp" / "windows"
    _write_events(source, range(4))
    spec = _windows(source, out, {"spark.sql.streaming.offsetLog.formatVersion": "2"}, files=2)
    _run(driver, 70010, spec, root)
    last = max(int(one.name) for one in (root / "offsets").iterdir() if one.name.isdigit())
    version, about, *sources = (root / "offsets" / str(last)).read_text().split("\n")
    conf = json.loads(about)["conf"]
    assert (version, conf.pop("spark.sql.shuffle.partitions")) == ("v2", "2")
    lacking = json.dumps({**json.loads(about), "conf": conf})
    (root / "offsets" / str(last + 1)).write_text("\n".join([version, lacking, *sources]))

    _write_events(source, range(4, 8))
    _run(driver, 70011, spec, root)
    assert (root / "commits" / str(last + 1)).exists()
    assert _seen_by_the_log(out) == _seen_without_the_log(out) == _from_scratch(range(8))
