"""Read failures and their groups, filtered for lists, with the advice of this release."""

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from queries.domain.failures.categories import Category, FailureSubject
from queries.domain.failures.diagnosis import Classified, classify, classify_exit
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import Failure, FailureGroup
from queries.selectors import visible
from queries.selectors.rows import first_or_missing


def failures() -> QuerySet[Failure]:
    """Return all failures, newest first, with run, query, driver, application and group."""
    return (
        visible.failures()
        .select_related(
            "run", "run__query", "run__revision", "driver", "driver__application", "group"
        )
        .order_by("-at", "-pk")
    )


def failures_of(query: Query) -> QuerySet[Failure]:
    """Return a query's failures, including driver deaths that ended one of its runs."""
    ended_a_run = visible.runs().filter(
        query=query, driver=OuterRef("driver"), ended_at__gte=OuterRef("at")
    )
    return failures().filter(Q(run__query=query) | Q(run__isnull=True) & Exists(ended_a_run))


def failures_of_run(run: Run) -> QuerySet[Failure]:
    """Return a run's failures, including its driver's death if that ended the run."""
    death = Q(run=None, driver=run.driver_id, at__lte=run.ended_at) if run.ended_at else Q()
    return failures().filter(Q(run=run) | death)


def failure_groups(
    *, status: str = "", application: str = "", query: str = "", search: str = ""
) -> QuerySet[FailureGroup]:
    """Return the groups, last seen first; empty filters match everything.

    A query's groups include driver deaths that ended one of its runs.
    """
    rows = (
        visible.failure_groups()
        .select_related("query", "application")
        .order_by("-last_seen", "-pk")
    )
    if status:
        rows = rows.filter(status=status)
    if application:
        rows = rows.filter(application__name=application)
    if query:
        deaths = visible.failures().filter(
            group=OuterRef("pk"),
            run=None,
            driver__runs__query__name=query,
            driver__runs__ended_at__gte=F("at"),
        )
        rows = rows.filter(Q(query__name=query) | Q(query=None) & Exists(deaths))
    if search:
        rows = rows.filter(
            Q(title__icontains=search)
            | Q(query__name__icontains=search)
            | Q(application__name__icontains=search)
        )
    return rows


def failure_group(group_id: int) -> FailureGroup:
    """Return a group; raise `Missing` if there is none."""
    rows = failure_groups().filter(pk=group_id)
    return first_or_missing(rows, f"Failure group {group_id} does not exist.")


_REFUSED: dict[str, str] = {
    Category.LOCK: "held",
    Category.EARLIER_RUN: "own",
    Category.FENCED: "fenced",
    Category.OWNERSHIP: "foreign",
}


def advice_of(failure: Failure) -> Classified:
    """Return the meaning of a stored failure, and what to do about it."""
    if failure.run is None and not (failure.error_class or failure.error_type):
        return classify_exit(
            python=failure.driver.exit_python or "UNKNOWN",
            jvm=failure.driver.exit_jvm or "UNKNOWN",
            oom=failure.category == Category.MEMORY,
            killed=failure.driver.exit_killed,
            log_tail=failure.log_tail,
        )
    return classify(
        error_class=failure.error_class,
        type_name=failure.error_type,
        root_cause=failure.root_cause,
        message=failure.message,
        refused=_REFUSED.get(failure.category, ""),
        in_batch=failure.batch is not None,
        subject=failure.run.subject if failure.run else FailureSubject.APPLICATION,
    )
