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
LOST_KEPT = 20  # number of removed executors kept, newest first
REASON_LIMIT = 300  # characters
ASK_EVERY_S = 15.0  # between requests to the cluster's master, while no executor is active


_CPUS = "spark.task.cpus"


class Executors:
    """Reads Spark's status store; reports nothing with a local master."""

    def __init__(self, spark: Any, master: str) -> None:
        sc: Any = spark.sparkContext._jsc.sc()
        self._store = None if master.startswith("local") else sc
        self._gateway = spark.sparkContext._gateway
        self._jvm = self._gateway.jvm
        self._master = master
        self._none_since: datetime | None = None  # since when no executor has been active
        self._asked = -ASK_EVERY_S  # monotonic
        self._asking: threading.Thread | None = None
        self._workers: yarn.Nodes | None = None
        self._free: yarn.Nodes | None = None
        self._looked = -LOOK_EVERY_S  # monotonic
        self._seen: tuple[ExecutorSeen, ...] = ()

    def look(self) -> tuple[ExecutorSeen, ...]:
        """Return the executors, active ones first; they are at most `LOOK_EVERY_S` seconds old."""
        if self._store is None or time.monotonic() - self._looked < LOOK_EVERY_S:
            return self._seen
        self._looked = time.monotonic()
        listed = self._store.statusStore().executorList(False)
        found = [_seen(listed.apply(place)) for place in range(listed.size())]
        workers = [one for one in found if one.id != "driver"]
        active = sorted((one for one in workers if one.active), key=lambda one: int(one.id))
        lost = sorted(
            (one for one in workers if not one.active),
            key=lambda one: one.removed_at or "",
            reverse=True,
        )
        self._seen = (*active, *lost[:LOST_KEPT])
        self._none_since = None if active else self._none_since or datetime.now(UTC)
        return self._seen

    def wanted(self) -> ExecutorsWanted | None:
        """Return the requested resources if none has been active for `NONE_FOR`; otherwise None."""
        since = self._none_since
        if self._store is None or since is None or datetime.now(UTC) - since < NONE_FOR:
            return None
        conf = self._store.getConf()
        if conf.getBoolean("spark.dynamicAllocation.enabled", False):
            return None  # an idle query does not need any
        self._ask()
        cores = max(int(conf.get("spark.executor.cores", "1")), int(conf.get(_CPUS, "1")))
        memory = int(self._store.executorMemory())
        overhead = yarn.beyond_heap_mb(conf, memory) if self._master == "yarn" else 0
        return ExecutorsWanted(
            since.isoformat(), memory, cores, self._workers, overhead_mb=overhead, free=self._free
        )

    def _ask(self) -> None:
        """Query a standalone cluster's master, or YARN, in a separate thread, without blocking."""
        late = time.monotonic() - self._asked >= ASK_EVERY_S
        busy = self._asking is not None and self._asking.is_alive()
        if late and not busy and (self._master == "yarn" or self._master.startswith("spark://")):
            self._asked = time.monotonic()
            ask = self._ask_master
            self._asking = threading.Thread(target=ask, name="workers", daemon=True)
            self._asking.start()

    def _ask_master(self) -> None:
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
        asked = load(f"{messages}RequestMasterState$").getField("MODULE$").get(None)
        answer = jvm.scala.reflect.ClassTag.apply(load(f"{messages}MasterStateResponse"))
        workers = master.askSync(asked, answer).workers()
        return tuple((int(one.cores()), int(one.memory())) for one in workers)


def _seen(summary: Any) -> ExecutorSeen:
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
