"""Watch a cluster driver's executors: the current ones, and which were lost, when and why.

Spark's scheduler continues without a lost executor and reports the loss only in its log, but
operators must see the loss next to the queries.
"""

import logging
import threading
import time
from datetime import UTC, datetime
from typing import Any

from headgate_ground.tolerant.values import at_ms
from queries.domain.protocol import ExecutorSeen, ExecutorsWanted
from queries.domain.supervision.executors import NONE_FOR
from queries.runtime.clusters import yarn

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 3.0  # a look costs a few round trips to the JVM per executor
MOST_LOST = 20  # number of removed executors kept, newest first
REASON_LIMIT = 300  # characters
QUERY_EVERY_S = 15.0  # between requests to the cluster's master, while no executor is active


_CPUS = "spark.task.cpus"


class ExecutorWatch:
    """Reads Spark's status store; reports nothing with a local master."""

    def __init__(self, spark: Any, master: str) -> None:
        sc: Any = spark.sparkContext._jsc.sc()
        self._store = None if master.startswith("local") else sc
        self._gateway = spark.sparkContext._gateway
        self._jvm = self._gateway.jvm
        self._master = master
        self._none_since: datetime | None = None  # since when no executor has been active
        self._queried_at = -QUERY_EVERY_S  # monotonic
        self._asking: threading.Thread | None = None
        self._workers: yarn.Nodes | None = None
        self._free: yarn.Nodes | None = None
        self._looked = -LOOK_EVERY_S  # monotonic
        self._executors: tuple[ExecutorSeen, ...] = ()

    def look(self) -> tuple[ExecutorSeen, ...]:
        """Return the executors, active ones first; they are at most `LOOK_EVERY_S` seconds old."""
        if self._store is None or time.monotonic() - self._looked < LOOK_EVERY_S:
            return self._executors
        self._looked = time.monotonic()
        listed = self._store.statusStore().executorList(False)
        executors = [_executor_seen(listed.apply(index)) for index in range(listed.size())]
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
        overhead = yarn.beyond_heap_mb(conf, memory) if self._master == "yarn" else 0
        return ExecutorsWanted(
            since.isoformat(), memory, cores, self._workers, overhead_mb=overhead, free=self._free
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
                self._workers, self._free = yarn.nodes(self._gateway)
            else:
                self._workers = self._listed()
        except Exception as error:  # a master of another version, or an unreachable one
            logger.warning("could not get the master's workers: %s", error)
            self._workers = self._free = None

    def _listed(self) -> yarn.Nodes:
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


def _executor_seen(summary: Any) -> ExecutorSeen:
    removed, reason = summary.removeTime(), summary.removeReason()
    return ExecutorSeen(
        id=summary.id(),
        address=summary.hostPort(),
        cores=summary.totalCores(),
        active=summary.isActive(),
        added_at=_time(summary.addTime()),
        removed_at=_time(removed.get()) if removed.isDefined() else None,
        reason=reason.get()[:REASON_LIMIT] if reason.isDefined() else "",
    )


def _time(date: Any) -> str:
    return (at_ms(date.getTime()) or datetime.now(UTC)).isoformat()
