"""How often failures of a group came: the bars beside it in the list."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from queries.domain.states import GroupStatus
from queries.models.failures import Failure, FailureGroup

BUCKETS = 24
BUCKET = timedelta(hours=1)


def occurrences(group_ids: Iterable[int], *, now: datetime) -> dict[int, list[int]]:
    """Return each group's failures an hour over the last 24, oldest first, in one query."""
    ids = list(group_ids)
    counts = {pk: [0] * BUCKETS for pk in ids}
    since = now - BUCKETS * BUCKET
    rows = Failure.objects.filter(group__in=ids, at__gt=since, at__lte=now)
    for group, at in rows.values_list("group", "at"):
        counts[group][min(int((at - since) / BUCKET), BUCKETS - 1)] += 1
    return counts


def group_counts() -> dict[str, int]:
    """Return how many groups are open, back after they were resolved, and resolved."""
    rows = FailureGroup.objects.all()
    opened = rows.filter(status=GroupStatus.OPEN)
    return {
        "open": opened.count(),
        "regressed": opened.filter(regressed_at__isnull=False).count(),
        "resolved": rows.filter(status=GroupStatus.RESOLVED).count(),
    }


def newest_failure_of(group: FailureGroup) -> Failure | None:
    """Return a group's newest failure, None where retention has taken them all."""
    return group.failures.first()
