"""Forecast problems of each query that should run, and store them in its row.

Pages compute the same forecast on demand, but alerts need it even if nobody opens a page. The
forecast reads checkpoint files, so each host's worker handles its own queries.
"""

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from controlplane.nudge import changed
from listeners.loops.troubles import loop_errors
from queries.domain.states import Desired
from queries.models.definitions import Query
from queries.selectors.checkpoints import state_history
from queries.selectors.hosts import on_this_host
from queries.selectors.probes import failed_preflight
from queries.selectors.triggers.replay_exposure import exposure

_each = loop_errors("outlook", logging.getLogger(__name__))

NOTHING: dict[str, Any] = {
    "state_full_at": None,
    "replay_records": None,
    "preflight_fails": False,
}


#: Time limit per call, in seconds. A query takes 3 ms, or 11 ms with a large state; a thousand
#: queries take several calls, which leaves time for the worker's other threads.
LIMIT_S = 0.5
#: Minimum interval between the starts of two rounds over all queries.
ROUND_EVERY = timedelta(seconds=60)
_ROWS_AT_ONCE = 50


@dataclass(slots=True)
class Round:
    """Progress of a round over this host's queries, in the worker's memory."""

    began_at: datetime | None = None
    after: int = 0  # the last query examined; 0 if the round is over


def look_ahead(*, now: datetime, limit_s: float = LIMIT_S, place: Round | None = None) -> int:
    """Record when state will be full, what a crash would replay, and failed preflights.

    Continues at `place` for at most `limit_s`; without `place`, starts from the beginning. Returns
    the number of queries whose forecast has changed. Unreadable values count as unknown and are not
    reported as problems.
    """
    place, end = place or Round(), time.monotonic() + limit_s
    if not place.after:
        if place.began_at is not None and now - place.began_at < ROUND_EVERY:
            return 0
        place.began_at = now
        # Stopped queries have no forecast.
        resting = Query.objects.filter(on_this_host("application__"), desired=Desired.STOPPED)
        resting.exclude(**NOTHING).update(**NOTHING)
    wanted = Query.objects.filter(
        on_this_host("application__"), archived_at=None, desired=Desired.RUNNING
    )
    rows, news = wanted.select_related("application").order_by("pk"), 0
    while some := list(rows.filter(pk__gt=place.after)[:_ROWS_AT_ONCE]):
        for query in some:
            with _each.isolate_errors(f"query {query.name}"):
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
