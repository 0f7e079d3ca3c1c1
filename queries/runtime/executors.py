"""The executors of a driver on a cluster: which there are, which were lost, why and when.

Spark's scheduler goes on without an executor that is lost and says so in its log alone; an
operator must see it where the queries are seen.
"""

import time
from datetime import UTC, datetime
from typing import Any

from queries.domain.protocol import ExecutorSeen

LOOK_EVERY_S = 3.0  # a look costs a few round trips to the JVM an executor
LOST_KEPT = 20  # of those that were removed, the newest
REASON_LIMIT = 300  # characters


class Executors:
    """Looks at Spark's status store; silent where the master is local."""

    def __init__(self, spark: Any, master: str) -> None:
        self._store = None if master.startswith("local") else spark.sparkContext._jsc.sc()
        self._looked = -LOOK_EVERY_S  # monotonic
        self._seen: tuple[ExecutorSeen, ...] = ()

    def look(self) -> tuple[ExecutorSeen, ...]:
        """Return the executors, active ones first, at most `LOOK_EVERY_S` old."""
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
        return self._seen


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
    return datetime.fromtimestamp(date.getTime() / 1000, UTC).isoformat()
