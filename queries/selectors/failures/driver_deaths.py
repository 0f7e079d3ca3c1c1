"""Count the deaths of an application's drivers that follow one another without a commit."""

from itertools import takewhile

from django.db.models import Exists, OuterRef

from queries.domain.states import Candidacy, DriverKind
from queries.domain.supervision.culprits import is_in_a_row
from queries.models.applications import Application
from queries.models.drivers import Driver
from queries.models.failures import Failure

#: How many of an application's newest driver deaths are examined.
DEATHS_JUDGED = 10


def deaths_in_a_row(application: Application, *, most: int, until: int | None = None) -> int:
    """Return how many drivers in a row have died (`culprits.is_in_a_row`), at most `most`.

    `until` is the epoch of the last one to count; None for the newest.
    """
    died = Exists(Failure.objects.filter(driver=OuterRef("pk"), run=None))
    rows = application.drivers.filter(died, kind=DriverKind.SERVICE)
    if until is not None:
        rows = rows.filter(epoch__lte=until)
    newest = rows.order_by("-epoch").prefetch_related("runs")[: min(most, DEATHS_JUDGED)]
    return sum(1 for _ in takewhile(_is_in_a_row, newest))


def _is_in_a_row(driver: Driver) -> bool:
    return is_in_a_row(
        (run.first_commit_at is not None, Candidacy(run.at_death)) for run in driver.runs.all()
    )
