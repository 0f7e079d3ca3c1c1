"""Where checkpoints are and were: what a new location is judged by.

Names alone are read: a create asks this under its lock, of all queries that there are.
"""

from queries.models.definitions import Checkpoint, Query


def held_checkpoints(*, but: Query | None = None) -> dict[str, str]:
    """Return the checkpoints that are in use, by location, with the query that holds each.

    One query's own can be left out.
    """
    rows = Checkpoint.objects.filter(retired_at=None).order_by()
    if but is not None:
        rows = rows.exclude(query=but)
    return dict(rows.values_list("location", "query__name"))


def retired_locations() -> set[str]:
    """Return where queries, deleted or living, have left their files."""
    rows = Checkpoint.objects.exclude(retired_at=None).order_by()
    return set(rows.values_list("location", flat=True))
