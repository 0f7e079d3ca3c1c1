"""Cores: which queries occupy one per source partition, and which queries starve others.

Spark does not check them when it starts such a query. With too few cores, a continuous query
commits no continuous epochs and raises no error. A real-time query reads the remaining partitions
only after a batch of the others has ended, without a warning, or fails if it keeps state. So cores
are counted here, as far as they are known.

A stage that is ready waits for its first task while other queries' tasks occupy the cores. Spark's
FIFO scheduler serves the older job first. With FAIR, pools with a minimum share come first, and
among the others the one with the fewest running tasks; ties are broken by name. Tasks are not
pre-empted.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate_ground.tolerant import whole
from queries.domain.definitions.spec import (
    HOLDING_TRIGGERS,
    ApplicationSpec,
    PythonQuery,
    Source,
    SqlQuery,
    TriggerKind,
)
from queries.domain.definitions.sql_text import KEEPS_STATE, SqlOperator, operators
from queries.domain.errors import Problem
from queries.domain.readings import counted
from queries.domain.triggers.kinds import KINDS

#: Operators that need a shuffle: in real-time mode its tasks run together with those of the sources
#: (Spark: CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT if they cannot).
SHUFFLING = KEEPS_STATE | {SqlOperator.SHUFFLE}
#: Spark's default, if neither the query nor the application sets it.
SHUFFLE_PARTITIONS = 200
_SHUFFLE_KEY = "spark.sql.shuffle.partitions"

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")


@dataclass(frozen=True, slots=True)
class Ground:
    """The conditions under which a trigger runs: cores and partitions."""

    cores: int | None = None  # of the application; None: its master does not specify them
    master: str = ""
    #: Partitions of each source by name, if they were looked up.
    partitions: Mapping[str, int] = field(default_factory=dict)
    #: Cores held permanently by other queries of the application, by name.
    beside: Mapping[str, int] = field(default_factory=dict)
    shuffle_partitions: int = SHUFFLE_PARTITIONS


def ground_of(
    spec: SqlQuery | PythonQuery,
    application: ApplicationSpec,
    *,
    host_cores: int | None,
    partitions: Mapping[str, int],
    beside: Mapping[str, int],
) -> Ground:
    """Return the conditions for a query's trigger in an application; see `Ground`."""
    shuffle_partitions = whole(
        spec.conf.get(_SHUFFLE_KEY) or application.conf.get(_SHUFFLE_KEY, "")
    )
    return Ground(
        cores=cores_of(application, host_cores=host_cores),
        master=application.master,
        partitions=partitions,
        beside=beside,
        shuffle_partitions=SHUFFLE_PARTITIONS if shuffle_partitions is None else shuffle_partitions,
    )


def cores_of(application: ApplicationSpec, *, host_cores: int | None) -> int | None:
    """Return how many tasks an application can run at the same time; None if unknown."""
    match = _LOCAL.fullmatch(application.master)
    if match is None:
        cores_max = application.conf.get("spark.cores.max", "")
        return whole(cores_max)
    if match[1] == "*":
        return host_cores
    return int(match[1] or 1)


def partitions_of(source: Source, looked_up: Mapping[str, int]) -> int | None:
    """Return how many partitions a source has, from its options or else from the lookup."""
    options = {key.lower(): value for key, value in source.options.items()}
    rate = whole(options.get("numpartitions", "")) if source.format == "rate" else None
    if rate is not None:
        return rate
    if source.format == "kafka" and options.get("assign"):
        return _assigned(options["assign"])
    return looked_up.get(source.name)


def permanent_cores(spec: SqlQuery | PythonQuery, ground: Ground) -> int:
    """Return how many cores a query occupies permanently, as far as known; 0 for none."""
    return sum(count or 0 for _, count in _sources(spec, ground)) + _shuffle(spec, ground)


def core_problems(spec: SqlQuery | PythonQuery, ground: Ground) -> list[Problem]:
    """Return a problem if a query certainly gets fewer cores than it needs."""
    need, beside = permanent_cores(spec, ground), sum(ground.beside.values())
    if not need or ground.cores is None or need + beside <= ground.cores:
        return []
    others = [f"{name} holds {cores}" for name, cores in sorted(ground.beside.items()) if cores]
    return [
        Problem(
            "trigger.kind",
            spec.trigger.kind,
            "needs one core per source partition for as long as it runs: "
            f"{_counted(spec, ground)}. The application has "
            f"{counted(ground.cores, 'core')}{_where(ground)}"
            f"{', of which ' + ' and '.join(others) if others else ''}; "
            f"{KINDS[TriggerKind(spec.trigger.kind)].without_cores}",
            f"Give the application local[{need + beside}] or more, or use a processing-time "
            "trigger.",
        )
    ]


def core_doubts(spec: SqlQuery | PythonQuery, ground: Ground) -> list[str]:
    """Return the unknown facts about a query's cores, as sentences."""
    if spec.trigger.kind not in HOLDING_TRIGGERS:
        return []
    rule = "It needs one core per source partition for as long as it runs"
    if isinstance(spec, PythonQuery):
        return [f"{rule}; the number of partitions that its function reads is unknown."]
    unknown = [name for name, count in _sources(spec, ground) if count is None]
    doubts = []
    if unknown:
        has = f"; the application has {counted(ground.cores, 'core')}" if ground.cores else ""
        doubts.append(f"{rule}; the partitions of {', '.join(unknown)} are unknown{has}.")
    elif ground.cores is None:
        doubts.append(
            f"{rule}: {permanent_cores(spec, ground)}. The number of cores that the cluster "
            "provides is unknown."
        )
    return doubts


def outgrown(
    *, kind: str, cores: int | None, partitions: Mapping[str, int], beside: int = 0
) -> str:
    """Return the sentence for a query whose sources have outgrown its cores, "" if they have not.

    `partitions` maps each topic that is read to its current number of partitions.
    """
    need = sum(partitions.values())
    if kind not in HOLDING_TRIGGERS or cores is None or need + beside <= cores:
        return ""
    read = " and ".join(f"{name} has {count}" for name, count in sorted(partitions.items()))
    more = f", other queries of the application hold {beside}" if beside else ""
    return (
        f"It needs one core per source partition: {read}{more}; the application has "
        f"{counted(cores, 'core')}. The remaining partitions are not read, and Spark does not warn "
        f"about this. Give the application local[{need + beside}] or more, and restart it."
    )


def _sources(spec: SqlQuery | PythonQuery, ground: Ground) -> list[tuple[str, int | None]]:
    if spec.trigger.kind not in HOLDING_TRIGGERS or isinstance(spec, PythonQuery):
        return []
    return [(source.name, partitions_of(source, ground.partitions)) for source in spec.sources]


def _shuffle(spec: SqlQuery | PythonQuery, ground: Ground) -> int:
    if spec.trigger.kind != "real_time" or isinstance(spec, PythonQuery):
        return 0
    return ground.shuffle_partitions if operators(spec).used & SHUFFLING else 0


def _counted(spec: SqlQuery | PythonQuery, ground: Ground) -> str:
    parts = [f"{count} for source {name}" for name, count in _sources(spec, ground) if count]
    shuffle = _shuffle(spec, ground)
    if shuffle:
        parts.append(f"{shuffle} for the shuffle ({_SHUFFLE_KEY})")
    return " and ".join(parts)


def _assigned(text: str) -> int | None:
    """Return how many partitions `{"topic": [0, 1]}` lists; None if it is not such JSON."""
    try:
        assignment: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(assignment, dict) or not all(
        isinstance(numbers, list) for numbers in assignment.values()
    ):
        return None
    return sum(len(numbers) for numbers in assignment.values())


def _where(ground: Ground) -> str:
    return f" ({ground.master})" if ground.master else ""


#: A smaller share of time is not worth mentioning: a stage takes a few ms to begin anyway.
WORTH_TELLING = 0.1
#: Seconds of running before anything is reported: first batches all compile and load at once.
JUDGED_AFTER_S = 300.0
#: A query that accounts for more than this share of another query's wait is named.
_MUCH = 0.2


@dataclass(frozen=True, slots=True)
class TaskShare:
    """A query's use of its application's cores, and which queries it waited for, over a range."""

    query: str
    pool: str  # "" for Spark's own pool `default`
    since: float  # seconds covered: the query may have run for less than the range
    task_s: float
    share: float  # of the application's total task time, 0 to 1
    waited_s: float
    waited_for: Mapping[str, float]  # seconds by query, longest first

    @property
    def waiting(self) -> float:
        """Return the share of time, 0 to 1, in which the query was ready while others ran."""
        return min(1.0, sum(self.waited_for.values()) / self.since) if self.since else 0.0

    @property
    def percent(self) -> int:
        """Return the share of total task time, 0 to 100, for a bar."""
        return round(100 * self.share)


@dataclass(frozen=True, slots=True)
class Starved:
    """A query that waited for others, and the change of pools that fixes this."""

    query: str
    by: str  # the query that it waited for longest
    says: str
    change: str


def starved(
    shares: Sequence[TaskShare],
    *,
    scheduler_mode: str,
    min_shares: Mapping[str, int],
    span: str,
    application: str,
) -> list[Starved]:
    """Return the queries that waited for others for a tenth of their time or more, worst first.

    `min_shares` maps each pool's name to its minimum share; `span` describes the range ("the last
    hour").
    """
    pools = {share.query: share.pool for share in shares}
    starved_queries = []
    for share in sorted(shares, key=lambda share: (-share.waiting, share.query)):
        if share.waiting < WORTH_TELLING or share.since < JUDGED_AFTER_S:
            continue
        by = max(share.waited_for, key=lambda name: share.waited_for[name])
        much = _MUCH * sum(share.waited_for.values())
        heavy = [name for name, spent in share.waited_for.items() if spent >= much] or [by]
        alone = [name for name, pool in pools.items() if pool == share.pool] == [share.query]
        percent = round(100 * share.waiting)
        protected = scheduler_mode == "FAIR" and alone and min_shares.get(share.pool, 0) > 0
        starved_queries.append(
            Starved(
                query=share.query,
                by=by,
                says=f"{share.query} waited {percent} % of its time in {span} for {_and(heavy)}.",
                change=_change(share.query, heavy, scheduler_mode, application, protected),
            )
        )
    return starved_queries


def _change(
    light: str, heavy: Sequence[str], scheduler_mode: str, application: str, protected: bool
) -> str:
    if protected:
        return (
            "Its pool already has a minimum share, but Spark does not interrupt running tasks. "
            f"Add cores, or use more and shorter tasks in {_and(heavy)}."
        )
    fair = "" if scheduler_mode == "FAIR" else "set the scheduler mode to FAIR, "
    pool = "one pool" if len(heavy) == 1 else "one pool together"
    text = (
        f"{fair}give {light} its own pool with a minimum share of 1, and put {_and(heavy)} into "
        f"{pool} without a minimum share. This takes effect when {application} restarts with all "
        "its queries."
    )
    return text[0].upper() + text[1:]


def _and(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
