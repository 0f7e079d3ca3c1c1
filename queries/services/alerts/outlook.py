"""Look ahead for each query that should run, and note in its row what is about to go wrong.

Pages calculate the same when somebody looks; alerts must know without that. Files of checkpoints
are read, so each host's worker looks at its own queries.
"""

import logging
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


def look_ahead(*, now: datetime) -> int:
    """Note when state will be full, what a crash would replay, whether a preflight fails.

    Returns how many queries have news. What cannot be read is not known: no trouble is made of it.
    """
    # What does not run has nothing ahead of it.
    resting = Query.objects.filter(placed_here("application__"), desired=Desired.STOPPED)
    resting.exclude(**NOTHING).update(**NOTHING)
    wanted = Query.objects.filter(
        placed_here("application__"), archived_at=None, desired=Desired.RUNNING
    )
    news = 0
    for query in wanted.select_related("application"):
        with _each.by_itself(f"query {query.name}"):
            news += _look(query, now)
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
