"""Read YARN's resources, and the requests that it has not fulfilled yet: Spark reports neither.

Each request creates its own client in the driver's JVM and waits as long as Hadoop does, so call
these functions in a separate thread.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from queries.domain.protocol import ExecutorsWanted
from queries.domain.supervision.executors import NONE_FOR

logger = logging.getLogger(__name__)

QUERY_EVERY_S = 5.0  # between requests while the session starts
#: Spark's defaults for spark.executor.minMemoryOverhead and …memoryOverheadFactor, and for the
#: AM's.
_LEAST_OVERHEAD_MB, _OVERHEAD_FACTOR = 384, 0.1

Nodes = tuple[tuple[int, int], ...]  # (cores, MB)


def nodes(gateway: Any) -> tuple[Nodes, Nodes]:
    """Return the total and free resources of the running node managers."""
    records = gateway.jvm.org.apache.hadoop.yarn.api.records
    running = gateway.new_array(records.NodeState, 1)
    running[0] = records.NodeState.RUNNING
    with _client(gateway.jvm) as client:
        resources = [
            (report.getCapability(), report.getUsed()) for report in client.getNodeReports(running)
        ]
        have = [(had.getVirtualCores(), had.getMemorySize()) for had, _ in resources]
        used = [
            (0, 0) if of is None else (of.getVirtualCores(), of.getMemorySize())
            for _, of in resources
        ]
    free = tuple(
        (max(0, cores - less[0]), max(0, memory - less[1]))
        for (cores, memory), less in zip(have, used, strict=True)
    )
    return tuple(have), free


def beyond_heap_mb(conf: Any, memory_mb: int) -> int:
    """Return the MB requested from YARN beyond an executor's heap, calculated as Spark does."""
    least = conf.getSizeAsMb("spark.executor.minMemoryOverhead", f"{_LEAST_OVERHEAD_MB}m")
    factor = conf.getDouble("spark.executor.memoryOverheadFactor", _OVERHEAD_FACTOR)
    usual = max(int(least), int(memory_mb * factor))
    overhead = int(conf.getSizeAsMb("spark.executor.memoryOverhead", f"{usual}m"))
    python = int(conf.getSizeAsMb("spark.executor.pyspark.memory", "0m"))
    if not conf.getBoolean("spark.memory.offHeap.enabled", False):
        return overhead + python
    return overhead + python + int(conf.getSizeAsMb("spark.memory.offHeap.size", "0m"))


class Queue(threading.Thread):
    """During the start of a session, report if YARN has not started the application yet.

    Spark's start blocks until YARN has started the application master.
    """

    def __init__(
        self,
        gateway: Any,
        application: str,
        conf: Mapping[str, str],
        report: Callable[[ExecutorsWanted], object],
    ) -> None:
        super().__init__(name="yarn-queue", daemon=True)
        self._gateway = gateway
        self._application = application
        self._conf = conf
        self._report = report
        self.over = threading.Event()  # the session is up, or has failed

    def run(self) -> None:
        """Poll until startup has finished or failed."""
        since: datetime | None = None
        while not self.over.wait(QUERY_EVERY_S):
            try:
                since = (since or datetime.now(UTC)) if self._waits() else None
                if since is not None and datetime.now(UTC) - since >= NONE_FOR:
                    wanted = self._wanted(since)
                    if not self.over.is_set():
                        self._report(wanted)
            except Exception as error:  # no manager, or a JVM that is ending: Spark reports it
                logger.warning(
                    "could not find out from YARN why the application is waiting: %s",
                    type(error).__name__,
                )

    def _waits(self) -> bool:
        """Return whether YARN has accepted the application but not started its master."""
        jvm = self._gateway.jvm
        state = jvm.org.apache.hadoop.yarn.api.records.YarnApplicationState
        with _client(jvm) as client:
            accepted = client.getApplications(jvm.java.util.EnumSet.of(state.ACCEPTED))
            return any(application.getName() == self._application for application in accepted)

    def _wanted(self, since: datetime) -> ExecutorsWanted:
        conf = self._gateway.jvm.org.apache.spark.SparkConf(False)
        for name, value in self._conf.items():
            if name.startswith("spark.yarn.am."):
                conf.set(name, value)
        memory = int(conf.getSizeAsMb("spark.yarn.am.memory", "512m"))
        usual = max(_LEAST_OVERHEAD_MB, int(memory * _OVERHEAD_FACTOR))
        have, free = nodes(self._gateway)
        return ExecutorsWanted(
            since.isoformat(),
            memory,
            int(conf.getInt("spark.yarn.am.cores", 1)),
            have,
            overhead_mb=int(conf.getSizeAsMb("spark.yarn.am.memoryOverhead", f"{usual}m")),
            free=free,
            application_master=True,
        )


@contextmanager
def _client(jvm: Any) -> Iterator[Any]:
    client = jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
    client.init(jvm.org.apache.hadoop.yarn.conf.YarnConfiguration())
    client.start()
    try:
        yield client
    finally:
        client.stop()
