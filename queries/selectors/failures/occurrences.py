"""Count failures: for the bars of groups, for crash loops, and the deaths of drivers without a
commit.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import takewhile

from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Coalesce

from queries.domain.failures.crashes import WINDOW, CrashLoop, crash_loop
from queries.domain.states import Candidacy, Desired, DriverKind, GroupStatus
from queries.domain.supervision.outcomes import is_in_a_row
from queries.models.applications import Application
from queries.models.drivers import Driver
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
    """Return the open crash loops by query, for all existing queries or only these.

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


#: How many of an application's newest driver deaths are examined.
DEATHS_JUDGED = 10


def standby_after(failure: Failure) -> Driver | None:
    """Return the standby that took over after a driver's death; None if a new driver started."""
    if failure.run_id is not None:
        return None
    later = (
        visible.drivers()
        .filter(application=failure.driver.application_id, kind=DriverKind.SERVICE)
        .exclude(pk=failure.driver_id)
    )
    began = later.annotate(began=Coalesce("took_over_at", "created_at"))
    newer = began.filter(began__gte=failure.at).order_by("began", "pk").first()
    return newer if newer and newer.took_over_at is not None else None


def deaths_in_a_row(application: Application, *, most: int, until: int | None = None) -> int:
    """Return how many drivers in a row have died (`is_in_a_row`), at most `most`.

    `until` is the epoch of the last one to count; None for the newest.
    """
    died = Exists(visible.failures().filter(driver=OuterRef("pk"), run=None))
    rows = application.drivers.filter(died, kind=DriverKind.SERVICE)
    if until is not None:
        rows = rows.filter(epoch__lte=until)
    newest = rows.order_by("-epoch").prefetch_related("runs")[: min(most, DEATHS_JUDGED)]
    return sum(1 for _ in takewhile(_is_in_a_row, newest))


def _is_in_a_row(driver: Driver) -> bool:
    return is_in_a_row(
        (run.first_commit_at is not None, Candidacy(run.at_death)) for run in driver.runs.all()
    )
