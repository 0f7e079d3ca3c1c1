"""Make a class archive: `python -m queries.launchers.process.class_training ARCHIVE SPARK`.

It runs an ordinary driver, with two streaming queries over a few rows of its own and without any
user code. When both have committed a batch, the driver ends, and its JVM writes the classes that it
has loaded. SPARK is the folder of another version of PySpark, or "". The last line of the output
says why there is no archive.
"""

import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headgate_ground.files import (
    open_plain,
    read_file,
    read_tail,
    replace_file,
    sync,
    take_lock,
)
from headgate_ground.untrusted import make_folder
from queries.domain.protocol import (
    ASSIGNMENT,
    DRIVER_LOG,
    POOLS,
    SPEC,
    STATUS,
    TMP,
    Assignment,
    AssignmentEntry,
    DriverSpec,
    DriverStatus,
    RunState,
    Want,
)
from queries.driver_folder import DriverFolder
from queries.launchers.base import NotMade
from queries.launchers.process import environment
from queries.launchers.process.class_archives import MADE_WITHIN_S, SIZE

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOOK_S = 0.2
#: What cannot be archived is nobody's concern.
_AT_EXIT = '"-XX:ArchiveClassesAtExit={draft}" -Xlog:cds=off -Xlog:cds+dynamic=off'
_ROWS = "".join(
    f'{{"carrier": "{carrier}", "at": "2026-01-01T0{hour}:00:00", "delay": {hour * 7 % 5}}}\n'
    for hour in range(10)
    for carrier in ("UA", "DL", "AA")
)
_LATE = """
SELECT window(f.at, '1 hour') AS hour, c.name, count(*) AS flights, avg(f.delay) AS delay,
       max(CASE WHEN f.delay > 3 THEN f.delay END) AS late
FROM flights f LEFT JOIN carriers c ON f.carrier = c.carrier WHERE f.delay >= 0 GROUP BY 1, 2
"""
_STORE = "org.apache.spark.sql.execution.streaming.state.{}StateStoreProvider"


def main(arguments: list[str]) -> int:
    """Make the archive; return 0 if it exists afterwards."""
    target, spark = Path(arguments[0]), arguments[1]
    _end_with_parent()
    os.nice(19)  # it gets what nothing else needs
    signal.alarm(MADE_WITHIN_S)  # ends this process, and its children with it
    lock = take_lock(target.parent / ".making.lock")
    if lock is None:
        sys.stdout.write("Another process is making a class archive.\n")
        return 1
    scratch = Path(tempfile.mkdtemp(prefix=".training-", dir=target.parent))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        draft = target.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        _train(scratch, draft, spark)
        draft.chmod(0o644)
        sync(draft)
        replace_file(target.with_suffix(SIZE), str(draft.stat().st_size), mode=0o644)
        draft.rename(target)
    except (NotMade, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _train(scratch: Path, draft: Path, spark: str) -> None:
    """Run the driver until its JVM has written the draft; raise `NotMade` if it does not."""
    folder = DriverFolder.make(scratch / "application" / "1")
    entries = _queries(scratch)
    os.close(make_folder(folder.own / TMP))
    replace_file(folder.control / SPEC, _spec(spark).dumps())
    replace_file(folder.control / POOLS, "<allocations/>")
    replace_file(folder.control / ASSIGNMENT, Assignment(1, 1, entries).dumps())
    env = environment.for_driver(
        os.environ, allowlist=(), code_roots=(), tmp=folder.own / TMP, spark=spark
    )
    env["JDK_JAVA_OPTIONS"] = f"{env.get('JDK_JAVA_OPTIONS', '')} {_AT_EXIT.format(draft=draft)}"
    log = folder.own / DRIVER_LOG
    flags = os.O_WRONLY | os.O_CREAT
    with os.fdopen(open_plain(log, flags, within=folder.root), "wb") as output:
        driver = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "queries.runtime.entry"),
                *("queries.runtime.main", str(folder.root)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder.own,
            env=env,
            preexec_fn=_end_with_parent,
        )
    try:
        while driver.poll() is None and not _have_committed(folder, len(entries)):
            time.sleep(_LOOK_S)
        ending = Assignment(2, 1, (), end=True).dumps()
        replace_file(folder.control / ASSIGNMENT, ending)
        code = driver.wait()
    finally:
        driver.kill()
    if code != 0 or not draft.exists():
        raise NotMade(_reason(log, code))


def _have_committed(folder: DriverFolder, count: int) -> bool:
    text = read_file(folder.own / STATUS, within=folder.root)
    runs = DriverStatus.loads(text).runs if text else ()
    for run in runs:
        if run.state in (RunState.FAILED, RunState.REFUSED) and run.error is not None:
            raise NotMade(f"The training query failed: {run.error.root_cause}")
    return sum(run.first_commit_at is not None for run in runs) >= count


def _reason(log: Path, code: int) -> str:
    last = read_tail(log, 2000, within=log.parent).strip().rpartition("\n")[2]
    return f"Java did not write its classes (exit code {code} of the driver): {last}"


def _spec(spark: str) -> DriverSpec:
    """Return the spec of a driver that reports to nobody."""
    return DriverSpec(
        driver=1,
        epoch=1,
        application="class-training",
        installation="",
        host="",
        master="local[2]",
        memory="1g",
        conf={"spark.sql.shuffle.partitions": "2"},
        env={},
        code_roots=(),
        code_sha256="",
        scheduler_mode="FAIR",
        listeners=(),
        redis_url="redis://127.0.0.1:9/0",  # nothing listens there
        stream="",
        event_key=secrets.token_hex(32),
        ui_key=secrets.token_hex(32),
        spark=spark,
        stop_timeout_s=MADE_WITHIN_S,  # writing the archive is part of the JVM's end
    )


def _queries(scratch: Path) -> tuple[AssignmentEntry, ...]:
    """Return queries that use the features of most streaming queries, and write their input."""
    for name, text in (
        ("in/rows.json", _ROWS),
        ("carriers/rows.csv", "carrier,name\nUA,United\nDL,Delta\n"),
    ):
        (scratch / name).parent.mkdir()
        (scratch / name).write_text(text)
    flights = {
        "name": "flights",
        "format": "json",
        "options": {"path": str(scratch / "in")},
        "ddl_schema": "carrier STRING, at TIMESTAMP, delay INT",
        "watermark": {"column": "at", "delay": "1 hour"},
    }
    carriers = {
        "name": "carriers",
        "format": "csv",
        "options": {"path": str(scratch / "carriers"), "header": "true"},
        "ddl_schema": "carrier STRING, name STRING",
    }
    out = {"format": "parquet", "options": {"path": str(scratch / "out")}, "output_mode": "append"}
    made = (
        ("RocksDB", _LATE, out),
        ("HDFSBacked", _LATE, {"format": "noop", "output_mode": "update"}),
    )
    return tuple(
        AssignmentEntry(
            query=number,
            name=store,
            run=number,
            epoch=number,
            spec={
                "kind": "sql",
                "sources": [flights],
                "tables": [carriers],
                "sql": sql,
                "sink": sink,
                "trigger": {"kind": "processing_time", "interval": "1 second"},
                "conf": {"spark.sql.streaming.stateStore.providerClass": _STORE.format(store)},
            },
            checkpoint=f"file://{scratch}/checkpoints/{store}",
            pool="",
            want=Want.RUN,
        )
        for number, (store, sql, sink) in enumerate(made, start=1)
    )


def _end_with_parent() -> None:
    """Ask the kernel to end this process with its parent (SIGTERM)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
