"""When a run has ended and its lock can be released, and how long to wait before the next start.

The driver applies it to each of its runs (`queries.runtime.run`). The launcher that tests use
instead of real processes applies it too, so that the tested rule is the one used in production.

Spark's report about a query is not enough: `isActive()` is false as soon as `stop()` begins, but
the thread that executes batches, or a `foreachBatch` call in Python, may continue for as long as
users' code takes, and write its batch late (invariant I1).

The constants are in the application's `RestartPolicy`; the reasons for its defaults are in
`docs/decisions/0005-constants-of-supervision.md`.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from queries.domain.protocol import Hangs, RunState, Want


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The observable facts about one run at one moment."""

    building: bool = False  # the definition is being built: start() has not returned
    thread_alive: bool = False  # Spark's thread of the query; False if none was started
    callbacks_open: int = 0  # calls of the run's foreachBatch function that have not returned
    asked: Want = Want.RUN  # what was requested of the run
    failed: bool = False  # it has an error of its own
    refused: bool = False  # its checkpoint belongs to somebody else
    overdue: bool = False  # its start, or its end, is taking longer than its limit


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The consequences for the run."""

    outcome: RunState | None  # ENDED, FAILED or REFUSED; None: the run is open
    release: bool  # nothing of the run can write any more: release its lock and owner
    hangs: Hangs  # the part of it that has not ended, although it should have by now


def judge(facts: RunFacts) -> RunVerdict:
    """Return whether the run has ended, whether to release its lock, and what part of it hangs.

    1. The lock is released once nothing that could write is left of the run, and never merely
       because time has passed: a stop that times out does not release anything.
    2. A run ends once nothing is left of it. Only a failure is reported earlier, if the rest of the
       run hangs: the outcome is known at that point, the end is not.
    """
    left = facts.building or facts.thread_alive or facts.callbacks_open > 0
    hangs = Hangs.NOTHING
    if left and facts.overdue:
        hangs = Hangs.START if facts.building else Hangs.STOP
    return RunVerdict(outcome=_outcome(facts, left), release=not left, hangs=hangs)


def _outcome(facts: RunFacts, left: bool) -> RunState | None:
    # A stop in the middle of a batch is not a failure, whatever errors it causes.
    failed = facts.failed and facts.asked is Want.RUN and not facts.refused
    if left:
        # A late start has failed, whatever has been requested of it since.
        has_failed = facts.overdue and (facts.building or failed)
        return RunState.FAILED if has_failed else None
    if facts.refused:
        return RunState.REFUSED
    return RunState.FAILED if failed else RunState.ENDED


#: Immediate restarts after a source's schema changes: Delta needs up to three, one for each entry
#: of its schema log that it has to write.
AT_ONCE = 3
JITTER = 0.2  # of the delay, either way: drivers that died together do not return together


class RestartPolicy(BaseModel):
    """How failures are retried; the defaults are defined only here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Delay before the second retry, in seconds; it doubles with each later retry.
    base_delay_s: float = Field(default=5, gt=0, le=3600)
    #: The maximum delay, in seconds.
    max_delay_s: float = Field(default=300, gt=0, le=86400)
    #: Seconds that a run with a commit must stay healthy before earlier failures stop counting.
    healthy_after_s: float = Field(default=600, gt=0, le=86400)
    #: Identical failures (on the same batch, or without a commit) that put the query on hold.
    poison_limit: int = Field(default=3, ge=1, le=100)
    #: Seconds between two retry probes of a query that is on hold.
    probe_every_s: float = Field(default=1800, gt=0, le=86400 * 7)
    #: Whether STALLED queries are restarted.
    restart_on_stall: bool = False


class Earlier(NamedTuple):
    """A failure since the counters were cleared."""

    fingerprint: str
    batch: int | None  # None: not in a batch, or unknown
    committed: bool = False  # its run had committed a batch before it failed


def delay(policy: RestartPolicy, n: int, *, key: str) -> timedelta:
    """Return how long to wait after the `n`-th failure in a row (n from 1).

    The first restart is immediate; then `base × 2^(n-2)`, at most `max`, ± 20 %. `key` identifies
    the waiting object: the jitter depends on it and on n, so deciding twice gives the same result.
    """
    if n <= 1:
        return timedelta(0)
    # 2**62 exceeds every limit that a policy may set, and keeps the power finite.
    seconds = min(policy.max_delay_s, policy.base_delay_s * 2.0 ** min(n - 2, 62))
    share = zlib.crc32(f"{key}:{n}".encode()) / 0xFFFFFFFF  # 0…1
    return timedelta(seconds=seconds * (1 - JITTER + 2 * JITTER * share))


def healthy(policy: RestartPolicy, *, proven_at: datetime | None, now: datetime) -> bool:
    """Return whether a run has been healthy long enough that earlier failures no longer count."""
    return proven_at is not None and now - proven_at >= timedelta(seconds=policy.healthy_after_s)


def poisoned(
    policy: RestartPolicy,
    *,
    fingerprint: str,
    batch: int | None,
    recent: Sequence[Earlier],
) -> bool:
    """Return whether the same error on the same batch has reached the poison limit.

    `recent` are the earlier failures since the counters were cleared, newest first. A commit
    advances the batch ID, so equal IDs mean that nothing was committed in between. Failures without
    a known batch (within `start()`, before any batch) do not count as the same batch: nothing shows
    that the data is at fault, so they are retried like any other.
    """
    if batch is None:
        return False
    streak = 1
    for earlier in recent:
        if (earlier.fingerprint, earlier.batch) != (fingerprint, batch):
            break
        streak += 1
    return streak >= policy.poison_limit


def repeated(
    policy: RestartPolicy,
    *,
    fingerprint: str,
    committed: bool,
    recent: Sequence[Earlier],
) -> bool:
    """Return whether the same error has reached the poison limit with no batch in between.

    `committed` says whether the run that has just failed had committed a batch. Unlike a poisoned
    batch, a store that is set up wrongly also fails before any batch.
    """
    streak = 1
    for earlier in recent:
        if committed or earlier.fingerprint != fingerprint:
            break
        streak += 1
        committed = earlier.committed
    return streak >= policy.poison_limit
