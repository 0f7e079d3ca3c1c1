"""What users may read: every page, REST endpoint and metric reads these rows through here.

Logs are read through the driver that wrote them, and lineage through its queries. Today a viewer
can read everything. A restriction, such as to the applications of one's teams, belongs here: each
caller runs within a request, whose user can be kept in a context variable, or draws a fragment for
all viewers of a page. Decisions, and the check of rights, read all rows and do not come here.
`tests/checks/test_one_door_for_reads.py` finds reads that go past this module.
"""

from django.db.models import QuerySet

from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.history import Failure, FailureGroup


def applications() -> QuerySet[Application]:
    """Return the applications, including deleted ones."""
    return Application.objects.all()


def queries() -> QuerySet[Query]:
    """Return the queries, including deleted ones."""
    return Query.objects.all()


def drivers() -> QuerySet[Driver]:
    """Return the drivers, which lead to their logs."""
    return Driver.objects.all()


def runs() -> QuerySet[Run]:
    """Return the runs, which lead to their drivers."""
    return Run.objects.all()


def failures() -> QuerySet[Failure]:
    """Return the failures."""
    return Failure.objects.all()


def failure_groups() -> QuerySet[FailureGroup]:
    """Return the groups of failures."""
    return FailureGroup.objects.all()
