"""Count failures: for the bars of groups in the list, and to find queries' crash loops."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Q

from queries.domain.failures.crashes import WINDOW, CrashLoop, crash_loop
from queries.domain.states import Desired, GroupStatus
from queries.models.history import Failure, FailureGroup
from queries.selectors import visible

BUCKETS = 24
BUCKET = timedelta(hours=1)


def occurrences(group_ids: Iterable[int], *, now: datetime) -> dict[int, list[int]]:
    """Return each group's failures per hour over the last 24 hours, oldest first, in one query."""
    ids = list(group_ids)
    counts = {pk: [0] * BUCKETS for pk in ids}
    since = now - BUCKETS * BUCKET
    rows = visible.failures().filter(group__in=ids, at__gt=since, at__lte=now)
    for group, at in rows.values_list("group", "at"):
        counts[group][min(int((at - since) / BUCKET), BUCKETS - 1)] += 1
    return counts


def group_counts() -> dict[str, int]:
    """Return the numbers of groups that are open, regressed, and resolved."""
    rows = visible.failure_groups()
    opened = rows.filter(status=GroupStatus.OPEN)
    return {
        "open": opened.count(),
        "regressed": opened.filter(regressed_at__isnull=False).count(),
        "resolved": rows.filter(status=GroupStatus.RESOLVED).count(),
    }


def newest_failure_of(group: FailureGroup) -> Failure | None:
    """Return a group's newest failure; None if all have been removed after their retention."""
    return group.failures.first()


#: A crash loop is detected from the failures of the last day, and at most this many.
_LOOKED_BACK = timedelta(days=1)
_LOOKED_AT = 5_000


def crash_loops(*, now: datetime, query_ids: Iterable[int] | None = None) -> dict[int, CrashLoop]:
    """Return the open crash loops by query, for all existing queries or only for these.

    A driver's death counts for every query of its application. A query that should not run does not
    have a crash loop. If there are no recent failures, this takes one database query.
    """
    lately = visible.failures().filter(at__gt=now - WINDOW, at__lte=now)
    suspects = set(lately.values_list("driver__application_id", flat=True))
    if not suspects:
        return {}
    queries = visible.queries().filter(
        application__in=suspects, archived_at=None, desired=Desired.RUNNING
    )
    if query_ids is not None:
        queries = queries.filter(pk__in=list(query_ids))
    homes = dict(queries.values_list("pk", "application_id"))
    rows = (
        visible.failures()
        .filter(at__gt=now - _LOOKED_BACK, at__lte=now)
        .filter(Q(run__query__in=homes) | Q(run=None, driver__application__in=homes.values()))
        .order_by("-at")
        .values_list("run__query_id", "driver__application_id", "at")[:_LOOKED_AT]
    )
    times: dict[int, list[datetime]] = {pk: [] for pk in homes}
    for query, application, at in rows:
        for pk in (
            [query]
            if query
            else [query_id for query_id, home in homes.items() if home == application]
        ):
            times[pk].append(at)
    loops = {pk: crash_loop(of, now=now) for pk, of in times.items()}
    return {pk: loop for pk, loop in loops.items() if loop is not None}
