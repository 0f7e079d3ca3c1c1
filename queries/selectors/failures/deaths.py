"""What a shared driver's queries were doing when it died, and which of them ended it."""

from dataclasses import dataclass

from queries.domain.states import Candidacy
from queries.domain.supervision.culprits import DEATHS, KILLS_DRIVER
from queries.models.drivers import Run
from queries.models.failures import Failure


@dataclass(frozen=True, slots=True)
class Candidate:
    """A query that may have ended its driver."""

    query: str
    run: Run
    was: Candidacy
    batch: int | None  # in flight; None: none, or unknown


@dataclass(frozen=True, slots=True)
class Death:
    """A driver's death, in an application with several queries."""

    candidates: list[Candidate]
    culprit: Failure | None  # of the query held for it; None: the culprit is unknown
    deaths_needed: int  # consecutive, before the search for a culprit; 0: searching


def death_of(failure: Failure) -> Death | None:
    """Return what is known about a shared driver's death; None for every other failure."""
    home = failure.driver.application
    if failure.run_id is not None or home.queries.filter(archived_at=None).count() < 2:
        return None
    ended = Run.objects.filter(driver=failure.driver_id, ended_at__gte=failure.at)
    runs = list(ended.select_related("query").order_by("query__name"))
    named = Failure.objects.filter(driver=failure.driver_id, error_type=KILLS_DRIVER)
    return Death(
        candidates=[
            Candidate(run.query.name, run, Candidacy(run.at_death), run.batch_at_death)
            for run in runs
            if run.at_death
        ],
        culprit=named.select_related("run__query").first(),
        deaths_needed=max(0, DEATHS - failure.attempt),
    )
