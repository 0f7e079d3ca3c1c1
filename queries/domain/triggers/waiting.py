"""Find queries that starve others: all queries of an application share its cores.

A stage that is ready waits for its first task while other queries' tasks hold the cores. Spark's
FIFO scheduler serves the older job first. With FAIR, pools with a minimum share come first, and
among the others the one with the fewest running tasks; ties are broken by name. Tasks are not
pre-empted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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

    `min_shares` maps each pool's name to its minimum share; `span` is the range in words ("the last
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
