"""Scheduler pools: Spark's configuration file for them, and advice on their use."""

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from headgate_ground.tolerant.values import whole
from queries.domain.counts import counted
from queries.domain.definitions.spec import PoolSpec


def fairscheduler_xml(pools: Sequence[PoolSpec]) -> str:
    """Return the text for `spark.scheduler.allocation.file`, pools sorted by name."""
    entries = "".join(
        f"  <pool name={quoteattr(pool.name)}>\n"
        f"    <schedulingMode>{escape(pool.mode)}</schedulingMode>\n"
        f"    <weight>{pool.weight}</weight>\n"
        f"    <minShare>{pool.min_share}</minShare>\n"
        "  </pool>\n"
        for pool in sorted(pools, key=lambda pool: pool.name)
    )
    return f'<?xml version="1.0"?>\n<allocations>\n{entries}</allocations>\n'


def advice(
    pools: Sequence[PoolSpec],
    *,
    cores: int | None,
    queries: Mapping[str, Sequence[str]],
    scheduler_mode: str,
) -> list[str]:
    """Return actionable advice about an application's pools, as sentences.

    `cores` is None if the master does not specify them; `queries` maps a pool's name to its
    queries. Spark breaks ties between pools by name. With more busy pools than cores, the pool
    whose name sorts last therefore starves; `minShare` protects a lightly loaded one.
    """
    if scheduler_mode != "FAIR":
        return ["The scheduler mode is FIFO, so pools have no effect."] if pools else []
    busy = sorted(pool.name for pool in pools if queries.get(pool.name))
    sentences = []
    unprotected = [pool for pool in pools if pool.name in busy and pool.min_share == 0]
    if cores is not None and len(busy) > cores and unprotected:
        last = max(pool.name for pool in unprotected)
        sentences.append(
            f"{len(busy)} pools share {counted(cores, 'core')}. Spark breaks ties by name, so "
            f"{last} comes last and can starve. Give it a minimum share of 1, or put heavy "
            "queries into one pool."
        )
    reserved = sum(pool.min_share for pool in pools if pool.name in busy)
    if cores is not None and reserved > cores:
        sentences.append(
            f"The minimum shares add up to {reserved}, more than the {counted(cores, 'core')} "
            "available, so none is guaranteed."
        )
    sentences += [
        f"Pool {pool.name} is FIFO and has {len(members)} queries: tasks of the first query run "
        "before all others."
        for pool in sorted(pools, key=lambda pool: pool.name)
        if pool.mode == "FIFO" and len(members := queries.get(pool.name, ())) > 1
    ]
    return sentences


def cores_of(master: str) -> int | None:
    """Return how many cores a master URL gives a driver; None if it does not specify them."""
    inside = master.removeprefix("local").strip("[]").split(",")[0].strip()
    if not master.startswith("local"):
        return None
    return whole(inside) if inside else 1
