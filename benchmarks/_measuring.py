"""Provide what every benchmark needs: a cleaned-up folder, a Spark session, and figures.

A killed benchmark leaves a folder, and often a JVM or a broker that uses the folder. The next
benchmark removes both: the folder's name shows to which benchmark it belongs.
"""

import json
import logging
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from tests.conftest_kafka import KafkaBroker

PREFIX = "headgate-bench-"
#: How long a process that a killed benchmark left may take to end.
ENDS_WITHIN_S = 30.0
#: How long a producer may take to hand over what it still holds.
FLUSHES_WITHIN_S = 300.0


# --- where it works -----------------------------------------------------------------------
@contextmanager
def workplace(name: str) -> Iterator[Path]:
    """Yield an empty folder, removed at the end; first clean up after killed benchmarks."""
    clean_up(Path(tempfile.gettempdir()))
    began = int(psutil.Process().create_time())
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-{os.getpid()}-{began}-"))
    before = signal.signal(signal.SIGTERM, _leave)  # so that SIGTERM cleans up as Ctrl-C does
    try:
        yield folder
    finally:
        signal.signal(signal.SIGTERM, before)
        shutil.rmtree(folder, ignore_errors=True)


def clean_up(place: Path) -> list[Path]:
    """End the processes and remove the folders of killed benchmarks; return the folders.

    A process belongs to a folder if its command line, environment or working folder contains the
    folder.
    """
    gone = [folder for folder in place.glob(f"{PREFIX}*") if not _has_owner(folder)]
    for folder in gone:
        left = [process for process in psutil.process_iter() if _works_in(process, str(folder))]
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=ENDS_WITHIN_S)
        shutil.rmtree(folder, ignore_errors=True)
    return gone


def _has_owner(folder: Path) -> bool:
    """Return whether the folder's benchmark is still running, or belongs to another account."""
    if folder.stat().st_uid != os.getuid():
        return True
    with suppress(psutil.NoSuchProcess, ValueError):
        pid, began = folder.name.removeprefix(PREFIX).split("-")[1:3]
        return int(psutil.Process(int(pid)).create_time()) == int(began)
    return False


def _works_in(process: psutil.Process, folder: str) -> bool:
    with suppress(psutil.Error, OSError):
        return (
            any(folder in part for part in process.cmdline())
            or process.cwd().startswith(folder)
            or any(folder in value for value in process.environ().values())
        )
    return False


def _leave(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt the cleaning up
    sys.exit(128 + signal.SIGTERM)


# --- Spark and Kafka ----------------------------------------------------------------------
def spark_session(
    folder: Path, *, cores: int = 2, kafka: bool = False, conf: Mapping[str, str] | None = None
) -> Any:
    """Return a Spark session in this process, with its files in the folder."""
    from pyspark.sql import SparkSession

    from tests import pieces

    os.environ["JAVA_HOME"] = str(pieces.java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    settings = {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "4",
        **(conf or {}),
    }
    if kafka:
        jars = sorted(pieces.kafka_connector().glob("*.jar"))
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    spark = SparkSession.builder.master(f"local[{cores}]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def kill_session(spark: Any) -> None:
    """End a session's JVM immediately, because its remaining output is not needed."""
    logging.disable(logging.CRITICAL)  # of connections to the JVM that is killed now
    spark.sparkContext._gateway.proc.kill()


@contextmanager
def kafka_broker(folder: Path) -> Iterator["KafkaBroker"]:
    """Run a broker in the folder; exit with instructions if its jars are missing."""
    from tests import pieces
    from tests.conftest_kafka import KafkaBroker

    if reason := pieces.missing_kafka():
        raise SystemExit(reason)
    broker = KafkaBroker(folder / "kafka")
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@contextmanager
def fed(
    broker: "KafkaBroker",
    topic: str,
    *,
    rate: int,
    partitions: int,
    value: Callable[[int], str],
    linger_ms: int,
) -> Iterator[None]:
    """Write `rate` records a second to the topic's partitions in turn, until the block ends."""
    from confluent_kafka import Producer

    over = threading.Event()
    producer = Producer(
        {"bootstrap.servers": broker.servers, "log_level": 0, "linger.ms": linger_ms}
    )

    def feed() -> None:
        sent, began = 0, time.monotonic()
        while not over.wait(0.004):
            due = int((time.monotonic() - began) * rate)
            for number in range(sent, due):
                producer.produce(topic, value(number).encode(), partition=number % partitions)
                producer.poll(0)
            sent = due

    thread = threading.Thread(target=feed, name="feed")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        producer.flush(FLUSHES_WITHIN_S)


# --- figures ------------------------------------------------------------------------------
def spread(values: Iterable[float], form: str = ".1f") -> str:
    """Return "median (lowest to highest)"."""
    found = sorted(values)
    middle, low, high = (
        format(one, form) for one in (statistics.median(found), found[0], found[-1])
    )
    return f"{middle} ({low} to {high})"


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return the ratio of each pair; arms take turns, so both of a pair ran under the same load."""
    return [one / other for one, other in zip(over, under, strict=True)]


def report(name: str, *, ours: Any, baseline: Any, ratio: Any, **more: Any) -> None:
    """Print the machine, then the JSON line for comparisons as the last line of the output."""
    here = machine()
    print("measured on: " + "; ".join(f"{what} {value}" for what, value in here.items()))
    told = {"name": name, "ours": ours, "baseline": baseline, "ratio": ratio, **more}
    print(json.dumps({**told, "machine": here}), flush=True)


def machine() -> dict[str, Any]:
    """Return the environment of the figures: the machine, its load, and the versions."""
    from tests import pieces

    gigabytes = psutil.virtual_memory().total / 2**30
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(gigabytes, 1),
        "kernel": platform.release(),
        "load": [round(one, 2) for one in os.getloadavg()],
        "python": platform.python_version(),
        "java": "none" if pieces.missing_java() else pieces.java().version,
        "spark": metadata.version("pyspark"),
    }


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
