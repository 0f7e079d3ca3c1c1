"""A cluster driver's executors, which were lost, and YARN's resources and waiting requests.

Spark's scheduler continues without a lost executor and reports the loss only in its log, but
operators must see the loss next to the queries.

Each request creates its own client in the driver's JVM and waits as long as Hadoop does, so call
these functions in a separate thread.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from headgate_ground.tolerant import at_ms
from queries.domain.pods import death
from queries.domain.protocol import ExecutorSeen, ExecutorsWanted
from queries.domain.supervision.observation import NONE_FOR
from queries.runtime.pods import PodWatch

YARN_QUERY_EVERY_S = 5.0  # between requests while the session starts
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
        while not self.over.wait(YARN_QUERY_EVERY_S):
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


logger = logging.getLogger(__name__)

LOOK_EVERY_S = 3.0  # a look costs a few round trips to the JVM per executor
MOST_LOST = 20  # number of removed executors kept, newest first
REASON_LIMIT = 300  # characters
QUERY_EVERY_S = 15.0  # between requests to the cluster's master, while no executor is active


_CPUS = "spark.task.cpus"


class ExecutorWatch:
    """Reads Spark's status store; reports nothing with a local master."""

    def __init__(self, spark: Any, master: str, pods: PodWatch | None = None) -> None:
        """`pods` is the watch of the executors' pods, if they are pods."""
        sc: Any = spark.sparkContext._jsc.sc()
        self._store = None if master.startswith("local") else sc
        self._gateway = spark.sparkContext._gateway
        self._jvm = self._gateway.jvm
        self._master = master
        self._none_since: datetime | None = None  # since when no executor has been active
        self._queried_at = -QUERY_EVERY_S  # monotonic
        self._asking: threading.Thread | None = None
        self._workers: Nodes | None = None
        self._free: Nodes | None = None
        self._looked = -LOOK_EVERY_S  # monotonic
        self._executors: tuple[ExecutorSeen, ...] = ()
        self._pods = pods

    def look(self) -> tuple[ExecutorSeen, ...]:
        """Return the executors, active ones first; they are at most `LOOK_EVERY_S` seconds old."""
        if self._store is None or time.monotonic() - self._looked < LOOK_EVERY_S:
            return self._executors
        self._looked = time.monotonic()
        listed = self._store.statusStore().executorList(False)
        executors = [
            _executor_seen(listed.apply(index), self._pods) for index in range(listed.size())
        ]
        workers = [executor for executor in executors if executor.id != "driver"]
        active = sorted(
            (executor for executor in workers if executor.active),
            key=lambda executor: int(executor.id),
        )
        lost = sorted(
            (executor for executor in workers if not executor.active),
            key=lambda executor: executor.removed_at or "",
            reverse=True,
        )
        self._executors = (*active, *lost[:MOST_LOST])
        self._none_since = None if active else self._none_since or datetime.now(UTC)
        return self._executors

    def wanted(self) -> ExecutorsWanted | None:
        """Return the requested resources if none has been active for `NONE_FOR`; otherwise None."""
        since = self._none_since
        if self._store is None or since is None or datetime.now(UTC) - since < NONE_FOR:
            return None
        conf = self._store.getConf()
        if conf.getBoolean("spark.dynamicAllocation.enabled", False):
            return None  # an idle query does not need any
        self._query_master_soon()
        cores = max(int(conf.get("spark.executor.cores", "1")), int(conf.get(_CPUS, "1")))
        memory = int(self._store.executorMemory())
        containers = self._master == "yarn" or self._pods is not None
        overhead = beyond_heap_mb(conf, memory) if containers else 0
        return ExecutorsWanted(
            since.isoformat(),
            memory,
            cores,
            self._workers,
            overhead_mb=overhead,
            free=self._free,
            pod_reason=self._pods.reason() if self._pods is not None else None,
        )

    def _query_master_soon(self) -> None:
        """Query a standalone cluster's master, or YARN, in a separate thread, without blocking."""
        late = time.monotonic() - self._queried_at >= QUERY_EVERY_S
        busy = self._asking is not None and self._asking.is_alive()
        if late and not busy and (self._master == "yarn" or self._master.startswith("spark://")):
            self._queried_at = time.monotonic()
            query_master = self._query_master
            self._asking = threading.Thread(target=query_master, name="workers", daemon=True)
            self._asking.start()

    def _query_master(self) -> None:
        try:
            if self._master == "yarn":
                self._workers, self._free = nodes(self._gateway)
            else:
                self._workers = self._listed()
        except Exception as error:  # a master of another version, or an unreachable one
            logger.warning("could not get the master's workers: %s", error)
            self._workers = self._free = None

    def _listed(self) -> Nodes:
        """Return (cores, MB) for each worker, from the same source as the master's own page."""
        host, _, port = self._master.removeprefix("spark://").split(",")[0].rpartition(":")
        jvm, spark = self._jvm, "org.apache.spark"
        address = jvm.org.apache.spark.rpc.RpcAddress(host, int(port))
        assert self._store is not None, "a cluster"
        load = jvm.java.lang.Class.forName
        # Read through its field: SparkEnv has methods whose types the package lacks
        # (docs/spark-traps.md).
        field = load(f"{spark}.SparkEnv").getDeclaredField("rpcEnv")
        field.setAccessible(True)
        master = field.get(self._store.env()).setupEndpointRef(address, "Master")
        messages = f"{spark}.deploy.DeployMessages$"
        request = load(f"{messages}RequestMasterState$").getField("MODULE$").get(None)
        answer = jvm.scala.reflect.ClassTag.apply(load(f"{messages}MasterStateResponse"))
        workers = master.askSync(request, answer).workers()
        return tuple((int(worker.cores()), int(worker.memory())) for worker in workers)


def _executor_seen(summary: Any, pods: PodWatch | None) -> ExecutorSeen:
    removed, reason = summary.removeTime(), summary.removeReason()
    number, reported = summary.id(), reason.get() if reason.isDefined() else ""
    if pods is not None and reported:
        reported = death(reported, pods.of(number))
    return ExecutorSeen(
        id=number,
        address=summary.hostPort(),
        cores=summary.totalCores(),
        active=summary.isActive(),
        added_at=_time(summary.addTime()),
        removed_at=_time(removed.get()) if removed.isDefined() else None,
        reason=reported[:REASON_LIMIT],
    )


def _time(date: Any) -> str:
    return (at_ms(date.getTime()) or datetime.now(UTC)).isoformat()
