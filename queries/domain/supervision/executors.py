"""A cluster driver's executors: how many there are, and which were lost recently."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from queries.domain.counts import counted
from queries.domain.protocol import ExecutorsWanted

#: How long a driver may lack an active executor before it counts as having none: executors normally
#: arrive within seconds.
NONE_FOR = timedelta(seconds=15)
#: How long a query's page mentions a lost executor.
RECENT = timedelta(minutes=10)

Workers = tuple[tuple[int, int], ...]  # (cores, MB)


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor, as its driver reported it."""

    id: str
    address: str  # "host:port"
    cores: int
    active: bool
    added_at: datetime
    removed_at: datetime | None
    reason: str  # why it was removed, in Spark's words


@dataclass(frozen=True, slots=True)
class DriverExecutors:
    """All executors of a driver; empty with a local master."""

    active: tuple[Executor, ...] = ()
    lost: tuple[Executor, ...] = ()  # newest first
    news: str = ""  # losses in the last minutes, and whether they were replaced

    @property
    def cores(self) -> int:
        """Return how many tasks can run at the same time."""
        return sum(executor.cores for executor in self.active)


def executors(reported: Iterable[Mapping[str, Any]], *, now: datetime) -> DriverExecutors:
    """Return the executors from a driver's row; `reported` is their JSON form."""
    parsed = [_executor(executor) for executor in reported]
    active = tuple(executor for executor in parsed if executor.active)
    lost = tuple(executor for executor in parsed if not executor.active)
    recent = [
        executor for executor in lost if executor.removed_at and now - executor.removed_at <= RECENT
    ]
    return DriverExecutors(active, lost, _news(recent, active))


def missing_executors(wanted: ExecutorsWanted) -> str:
    """Return what a driver requested, what the cluster has, and what would fit."""
    since = datetime.fromisoformat(wanted.since)
    more = f" with {wanted.overhead_mb} MB of overhead" if wanted.overhead_mb else ""
    size = f"{wanted.memory_mb} MB{more} and {counted(wanted.cores, 'core')}"
    request = (
        f"YARN has not started its application master since {since:%H:%M:%S} UTC, so there is no "
        f"Spark session. The driver requests {size}."
        if wanted.application_master
        else f"No executor has been active since {since:%H:%M:%S} UTC, so no tasks run. The "
        f"driver requests executors of {size}."
    )
    if wanted.workers is None:
        return f"{request} The cluster manager does not report its resources; check its web page."
    if not wanted.workers:
        return f"{request} The cluster has no workers: start one."
    count = f"{len(wanted.workers)} workers, the largest" if wanted.workers[1:] else "1 worker,"
    has = f"{request} The cluster has {count} with {_largest(wanted.workers)}."
    if not _fits(wanted, wanted.workers):
        return f"{has} {_smaller(wanted, wanted.workers)}, or add a larger worker; {_AGAIN}"
    if wanted.free is None or _fits(wanted, wanted.free):
        return (
            f"{has} The request would fit, but other applications hold these resources, or a "
            "worker is still starting."
        )
    rest = "applications hold the rest, including this application's own master"
    rest = "other applications hold the rest" if wanted.application_master else rest
    left = f"{has} At most {_largest(wanted.free)} are free on one worker; {rest}."
    if max(memory for _, memory in wanted.free) <= wanted.overhead_mb:
        return f"{left} End one of these, lower spark.yarn.am.memory, or add a worker."
    fewer = _smaller(wanted, wanted.free)
    return f"{left} {fewer}, end another application, or add a worker; {_AGAIN}"


_AGAIN = "then restart the application."


def _fits(wanted: ExecutorsWanted, workers: Workers) -> bool:
    memory = wanted.memory_mb + wanted.overhead_mb
    return any(worker[0] >= wanted.cores and worker[1] >= memory for worker in workers)


def _largest(workers: Workers) -> str:
    cores, memory = max(workers, key=lambda one: (one[1], one[0]))
    return f"{memory} MB and {counted(cores, 'core')}"


def _smaller(wanted: ExecutorsWanted, workers: Workers) -> str:
    """Return the settings for which the largest of these workers would be sufficient."""
    cores, memory = max(workers, key=lambda one: (one[1], one[0]))
    of = "yarn.am" if wanted.application_master else "executor"
    return (
        f"Set spark.{of}.memory to at most {max(1, memory - wanted.overhead_mb)}m and "
        f"spark.{of}.cores to at most {max(1, cores)}"
    )


def idle_since(wanted: Mapping[str, Any] | None) -> datetime | None:
    """Return since when a driver that requests executors has had none; `wanted` is from its row."""
    return datetime.fromisoformat(wanted["since"]) if wanted else None


def _news(lost: list[Executor], active: tuple[Executor, ...]) -> str:
    if not lost:
        return ""
    first = lost[-1]
    which = (
        f"Executor {first.id} on {first.address} was"
        if len(lost) == 1
        else f"{len(lost)} executors were"
    )
    why = f" ({first.reason.rstrip('. ')})" if first.reason and len(lost) == 1 else ""
    assert first.removed_at is not None
    replaced = sum(executor.added_at >= first.removed_at for executor in active)
    again = f"{replaced} replaced" if replaced else "not replaced yet"
    return (
        f"{which} lost at {first.removed_at:%H:%M:%S} UTC{why}; {again}. "
        f"{len(active)} with {counted(sum(executor.cores for executor in active), 'core')} "
        f"{'is' if len(active) == 1 else 'are'} active."
    )


def _executor(reported: Mapping[str, Any]) -> Executor:
    removed = reported.get("removed_at")
    return Executor(
        id=reported["id"],
        address=reported["address"],
        cores=reported["cores"],
        active=reported["active"],
        added_at=datetime.fromisoformat(reported["added_at"]),
        removed_at=datetime.fromisoformat(removed) if removed else None,
        reason=reported.get("reason", ""),
    )
