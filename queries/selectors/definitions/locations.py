"""Current and former checkpoint locations, for validating a new one.

Only names are read, because a create request needs them for all queries, under its lock.
"""

from queries.models.definitions import Checkpoint, Query


def held_checkpoints(*, but: Query | None = None) -> dict[str, str]:
    """Return the checkpoints in use, by location, with the query that holds each.

    `but` excludes one query's own.
    """
    rows = Checkpoint.objects.filter(retired_at=None).order_by()
    if but is not None:
        rows = rows.exclude(query=but)
    return dict(rows.values_list("location", "query__name"))


def retired_locations() -> set[str]:
    """Return the locations where queries, deleted or living, have left their files."""
    rows = Checkpoint.objects.exclude(retired_at=None).order_by()
    return set(rows.values_list("location", flat=True))
