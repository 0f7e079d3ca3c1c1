"""Find what changed between the last good run and a failure: usually the first question.

For the death of a driver that several queries share, also find what each was doing, and which one
may have ended the driver.
"""

from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from headgate_ground.masking import mask
from queries.domain.code.archives import origin
from queries.domain.states import FAILED_OUTCOMES, Candidacy
from queries.domain.supervision.outcomes import DEATHS, KILLS_DRIVER
from queries.models.applications import ApplicationRevision
from queries.models.definitions import QueryRevision
from queries.models.drivers import Driver, Run
from queries.models.history import Failure, Transition
from queries.selectors import visible
from queries.selectors.checkpoint_logs import unknown_in_flight_reason
from queries.selectors.failures.failures import failures
from queries.selectors.failures.occurrences import deaths_in_a_row
from queries.selectors.rows import first_or_missing

Revision = QueryRevision | ApplicationRevision

#: Most actions shown; the activity page has all of them.
_MOST_ACTS = 50


@dataclass(frozen=True, slots=True)
class ConfigurationDifference:
    """One difference between the last good run and the failed one."""

    what: str  # "revision", "application revision", "Spark version", "Java version", "code"…
    before: str
    after: str
    spec_before: dict[str, Any] | None = None  # masked; for revisions only
    spec_after: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A query that may have ended its driver."""

    query: str
    run: Run
    was: Candidacy
    batch: int | None  # in flight; None: none, or unknown
    unknown_because: str = ""  # a sentence, if it is unknown whether a batch was in flight


@dataclass(frozen=True, slots=True)
class Death:
    """A driver's death, in an application with several queries."""

    candidates: list[Candidate]
    culprit: Failure | None  # of the query on hold for it; None: the culprit is unknown
    deaths_needed: int  # consecutive, before the search for a culprit; 0: searching


@dataclass(frozen=True, slots=True)
class FailureDetail:
    """A failure, the last good run before it, and the differences between the two."""

    failure: Failure
    good: Run | None  # None: this query has never had a good run
    good_is_itself: bool  # the failed run, or driver, had committed, and no earlier one had
    never_good: bool  # nothing to compare with: neither it nor an earlier one has committed
    changes: list[ConfigurationDifference]
    acts: list[Transition]  # users' actions from the good run's start to the failure, oldest first
    previous: Failure | None  # of the same group
    next: Failure | None
    death: Death | None  # of a driver shared by several queries


def failure_with_changes(failure_id: int) -> FailureDetail:
    """Return a failure with the changes since the last good run; raise `Missing` without one."""
    rows = failures().select_related("driver__application_revision").filter(pk=failure_id)
    failure = first_or_missing(rows, f"Failure {failure_id} does not exist.")
    run = failure.run
    good = _last_good_run(run) if run else None
    itself = False
    if run and good is None and run.first_commit_at is not None:
        good, itself = run, True
    good_driver = good.driver if good else _last_good_driver(failure.driver) if not run else None
    if run is None and good_driver is None and _committed_in(failure.driver):
        good_driver, itself = failure.driver, True
    changes = [] if itself or good_driver is None else _driver_changes(good_driver, failure.driver)
    if run and good and not itself:
        changes = _run_changes(good, run) + changes
    siblings = failures().filter(group=failure.group_id)
    return FailureDetail(
        failure=failure,
        good=good,
        good_is_itself=itself,
        never_good=good_driver is None,
        changes=changes,
        acts=_acts(failure, good, good_driver),
        previous=siblings.filter(
            Q(at__lt=failure.at) | Q(at=failure.at, pk__lt=failure.pk)
        ).first(),
        next=siblings.filter(Q(at__gt=failure.at) | Q(at=failure.at, pk__gt=failure.pk)).last(),
        death=death_of(failure),
    )


def death_of(failure: Failure) -> Death | None:
    """Return the facts about a shared driver's death; None for every other failure."""
    home = failure.driver.application
    if failure.run_id is not None or home.queries.filter(archived_at=None).count() < 2:
        return None
    ended = visible.runs().filter(driver=failure.driver_id, ended_at__gte=failure.at)
    runs = list(
        ended.select_related("query", "driver", "revision", "checkpoint").order_by("query__name")
    )
    epoch = failure.driver.epoch
    deaths = deaths_in_a_row(home, most=failure.attempt, until=epoch)
    named = visible.failures().filter(driver=failure.driver_id, error_type=KILLS_DRIVER)
    return Death(
        candidates=[
            Candidate(
                run.query.name,
                run,
                Candidacy(run.at_death),
                run.batch_at_death,
                unknown_in_flight_reason(run) if run.at_death == Candidacy.UNKNOWN else "",
            )
            for run in runs
            if run.at_death
        ],
        culprit=named.select_related("run__query").first(),
        deaths_needed=max(0, DEATHS - deaths),
    )


def _last_good_run(run: Run) -> Run | None:
    """Return the newest earlier run that committed, preferably one that did not fail later."""
    earlier_runs = (
        visible.runs()
        .select_related("driver__application_revision", "revision", "checkpoint")
        .filter(query=run.query_id, epoch__lt=run.epoch, first_commit_at__isnull=False)
        .order_by("-epoch")
    )
    return earlier_runs.exclude(outcome__in=FAILED_OUTCOMES).first() or earlier_runs.first()


def _last_good_driver(driver: Driver) -> Driver | None:
    """Return the newest earlier driver of the application in which a run committed a batch."""
    earlier_drivers = visible.drivers().filter(
        application=driver.application_id, epoch__lt=driver.epoch
    )
    good = earlier_drivers.filter(runs__first_commit_at__isnull=False)
    return good.select_related("application_revision").order_by("-epoch").first()


def _committed_in(driver: Driver) -> bool:
    return visible.runs().filter(driver=driver, first_commit_at__isnull=False).exists()


def _run_changes(good: Run, failed: Run) -> list[ConfigurationDifference]:
    changes = _revision_changes("revision", good.revision, failed.revision)
    if good.checkpoint_id != failed.checkpoint_id:
        changes.append(
            ConfigurationDifference(
                "checkpoint", good.checkpoint.location, failed.checkpoint.location
            )
        )
    return changes


def _revision_changes(what: str, good: Revision, failed: Revision) -> list[ConfigurationDifference]:
    if good.pk == failed.pk:
        return []
    numbers = (f"r{good.number}", f"r{failed.number}")
    return [ConfigurationDifference(what, *numbers, mask(good.spec), mask(failed.spec))]


def _driver_changes(good: Driver, failed: Driver) -> list[ConfigurationDifference]:
    if good.pk == failed.pk:
        return []
    before, after = good.application_revision, failed.application_revision
    code = (
        ("code from", origin(before.spec), origin(after.spec)),
        ("code", good.code_sha256[:12], failed.code_sha256[:12]),
    )
    # A driver that died before its session was up never reported these.
    reported_values = (
        ("Spark version", good.spark_version, failed.spark_version),
        ("Java version", good.java_version, failed.java_version),
        ("host", good.host, failed.host),
        ("pools", _pools(good), _pools(failed)),
    )
    changes = _revision_changes("application revision", before, after)
    changes += [ConfigurationDifference(what, was, now) for what, was, now in code if was != now]
    changes += [
        ConfigurationDifference(what, was, now)
        for what, was, now in reported_values
        if now and was != now
    ]
    return changes


def _pools(driver: Driver) -> str:
    return ", ".join(
        f"{pool['name']} (weight {pool.get('weight', 1)}, minShare {pool.get('min_share', 0)})"
        for pool in sorted(driver.pools, key=lambda pool: str(pool["name"]))
    )


def _acts(failure: Failure, good: Run | None, good_driver: Driver | None) -> list[Transition]:
    """Return the users' actions on the query or its application since the good run started."""
    run = failure.run
    since = good.created_at if good else good_driver.created_at if good_driver else None
    rows = (
        Transition.objects.select_related("query", "application", "operation")
        .filter(application=failure.driver.application_id, at__lte=failure.at)
        .exclude(actor="")
    )
    if run is not None:
        rows = rows.filter(Q(query=run.query_id) | Q(query__isnull=True))
    if since is not None:
        rows = rows.filter(at__gt=since)
    return list(rows.order_by("-at", "-pk")[:_MOST_ACTS])[::-1]
