"""Drivers that share a checkpoint on S3 or HDFS, how they end, and who wrote the checkpoint."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from queries.checkpoints.logs import numbers_of
from queries.domain.triggers.batch_cost import FILE_MANAGER, OUR_FILES
from queries.jvm.compiled import our_jar
from queries.runtime.checkpoints.owners import Owner, Owners
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest
from tests.storage.stores import HadoopJvm, S3Store, Store

WATCH_S = 0.5
#: How long a driver may take to halt, with all that follows: a fence that does not hold must fail
#: a test sooner than anything else would.
HALTS_WITHIN_S = 90.0


def launched(
    home: Path, store: Store, *, more_jars: Sequence[Path] = (), epoch: int = 1, **changes: Any
) -> DriverUnderTest:
    """Start a driver that can use the store, on a host whose worker is silent."""
    driver = DriverUnderTest(home, epoch=epoch)
    connector = pieces.connector_jars("s3", pieces.spark_version())
    ours = our_jar(home / "classes", jars=pieces.spark_jars())
    jars = (*(connector if isinstance(store, S3Store) else ()), *more_jars, ours)
    conf = {**store.conf, FILE_MANAGER: OUR_FILES}
    asked: dict[str, Any] = {"stop_timeout_s": 2, "fence_watch_s": WATCH_S, "conf": conf}
    return driver.launch(jars=tuple(str(jar) for jar in jars), **asked | changes)


def take_over(store: Store, jvm: HadoopJvm, location: str, *, epoch: int) -> None:
    """Own the checkpoint, as a later start elsewhere does."""
    files = jvm.files(store)
    Owners(Owner("here", 2, "two"), lambda path: (files, jvm.path(path))).own(
        location, epoch, takeover=False
    )
    files.close()


def exits(driver: DriverUnderTest) -> tuple[str, str]:
    """Return how the Python and the JVM of a driver ended; "still runs" if they have not."""
    end = time.monotonic() + HALTS_WITHIN_S
    while (report := driver.sight().exit) is None and time.monotonic() < end:
        time.sleep(0.2)
    if report is None:  # the test's own assertion says so: only that counts for a guard
        return "still runs", "still runs"
    return report.python, report.jvm


def writers(
    files: Any, jvm: HadoopJvm, location: str, log: str = "commits", *, after: int = -1
) -> dict[int, str]:
    """Return who has written each entry of a log, by batch, oldest first.

    On S3 that is the JVM, which our file manager names in each object ("" in an object of
    Spark's). On HDFS it is the owner of the file: drivers with a HADOOP_USER_NAME of their own can
    be told apart.
    """
    listed = files.listStatus(jvm.path(f"{location}/{log}"))
    entries = {str(one.getPath().getName()): one for one in listed}
    found = {}
    for batch in (each for each in numbers_of(entries) if each > after):
        entry = entries[str(batch)]
        if location.startswith("s3a:"):
            raw = files.getXAttr(entry.getPath(), "header.headgate-writer")
            found[batch] = bytes(raw).decode().rpartition("-")[0] if raw is not None else ""
        else:
            found[batch] = str(entry.getOwner())
    return found
