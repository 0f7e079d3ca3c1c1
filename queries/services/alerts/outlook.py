"""Look ahead for each query that should run, and note in its row what is about to go wrong.

Pages calculate the same when somebody looks; alerts must know without that. Files of checkpoints
are read, so each host's worker looks at its own queries.
"""

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from controlplane.nudge import changed
from listeners.loops.troubles import each
from queries.domain.states import Desired
from queries.models.definitions import Query
from queries.selectors.checkpoints import state_history
from queries.selectors.hosts import placed_here
from queries.selectors.probes import failed_preflight
from queries.selectors.triggers.replay_exposure import exposure

_each = each("outlook", logging.getLogger(__name__))

NOTHING: dict[str, Any] = {
    "state_full_at": None,
    "replay_records": None,
    "preflight_fails": False,
}


#: For one call, in seconds. A query takes 3 ms, with much state 11 ms: a thousand take several
#: calls, and leave the worker's other threads to their work in between.
LIMIT_S = 0.5
#: A round over all queries begins so long after the one before at the earliest.
ROUND_EVERY = timedelta(seconds=60)
_ROWS_AT_ONCE = 50


@dataclass(slots=True)
class Round:
    """How far a round over this host's queries has come, in the memory of its worker."""

    began_at: datetime | None = None
    after: int = 0  # the query looked at last; 0: the round is over


def look_ahead(*, now: datetime, limit_s: float = LIMIT_S, place: Round | None = None) -> int:
    """Note when state will be full, what a crash would replay, whether a preflight fails.

    Goes on where `place` says, for `limit_s` at most; without a place from the beginning. Returns
    how many queries have news. What cannot be read is not known: no trouble is made of it.
    """
    place, end = place or Round(), time.monotonic() + limit_s
    if not place.after:
        if place.began_at is not None and now - place.began_at < ROUND_EVERY:
            return 0
        place.began_at = now
        # What does not run has nothing ahead of it.
        resting = Query.objects.filter(placed_here("application__"), desired=Desired.STOPPED)
        resting.exclude(**NOTHING).update(**NOTHING)
    wanted = Query.objects.filter(
        placed_here("application__"), archived_at=None, desired=Desired.RUNNING
    )
    rows, news = wanted.select_related("application").order_by("pk"), 0
    while some := list(rows.filter(pk__gt=place.after)[:_ROWS_AT_ONCE]):
        for query in some:
            with _each.by_itself(f"query {query.name}"):
                news += _look(query, now)
            place.after = query.pk
            if time.monotonic() > end:
                return news
    place.after = 0
    return news


def _look(query: Query, now: datetime) -> bool:
    full_in_s = state_history(query, now=now).growth.full_in_s
    exposed = exposure(query, now=now)
    full_at = None if full_in_s is None else now + timedelta(seconds=full_in_s)
    seen = {
        "state_full_at": full_at and full_at.replace(second=0, microsecond=0),
        "replay_records": exposed.rows if exposed else None,
        "preflight_fails": failed_preflight(query),
    }
    if all(getattr(query, name) == value for name, value in seen.items()):
        return False
    Query.objects.filter(pk=query.pk).update(**seen)
    changed(f"query:{query.pk}")
    return True
