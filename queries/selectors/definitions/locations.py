"""Read current and former checkpoint locations, to validate a new one.

Only the columns needed are read, because a create request reads them for all queries, under a lock.
"""

from queries.models.definitions import Checkpoint, Query


def held_checkpoints(*, but: Query | None = None) -> dict[str, str]:
    """Return the checkpoints in use, by location, with the query that uses each.

    `but` excludes one query's own.
    """
    rows = Checkpoint.objects.filter(retired_at=None).order_by()
    if but is not None:
        rows = rows.exclude(query=but)
    return dict(rows.values_list("location", "query__name"))


def retired_locations() -> set[str]:
    """Return the locations where queries, deleted or not, have left their files."""
    rows = Checkpoint.objects.exclude(retired_at=None).order_by()
    return set(rows.values_list("location", flat=True))
