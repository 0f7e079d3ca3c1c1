"""Count the deaths of an application's drivers that follow one another without a commit."""

from itertools import takewhile

from django.db.models import Exists, OuterRef
from django.db.models.functions import Coalesce

from queries.domain.states import Candidacy, DriverKind
from queries.domain.supervision.outcomes import is_in_a_row
from queries.models.applications import Application
from queries.models.drivers import Driver
from queries.models.history import Failure
from queries.selectors import visible

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
    """Return how many drivers in a row have died (`culprits.is_in_a_row`), at most `most`.

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
