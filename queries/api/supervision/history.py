"""Runs with their logs, failures and their groups, checkpoints."""

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes

from queries.api.base import ApiView
from queries.api.definitions.application_bodies import DriverBody
from queries.api.definitions.query_bodies import CheckpointBody
from queries.api.methods import Nothing, answers, lists
from queries.api.paging import flag, whole, whole_number, word
from queries.api.supervision import history_bodies as bodies
from queries.domain.access.acts import Act
from queries.domain.states import GroupStatus
from queries.launchers.configured import launcher
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver
from queries.models.failures import Failure, FailureGroup
from queries.roles import OPERATE
from queries.selectors import checkpoints
from queries.selectors.failures import failures
from queries.selectors.failures.what_changed import FailureDetail, failure_with_changes
from queries.selectors.supervision import runs
from queries.selectors.supervision.applications import application, driver_of, drivers_of
from queries.services.access.audit_trail import record_act
from queries.services.failures import resolution
from queries.services.failures.driver_logs import MOST_LINES, read_log


class RunView(ApiView):
    """One run."""

    @answers("get_run", bodies.RunDetailBody)
    def get(self, run_id: int) -> runs.RunDetail:
        """Return a run with its failures, its batch totals, and the runs before and after it."""
        return runs.run_with_neighbours(run_id=run_id)


class RunLogView(ApiView):
    """The log of a run's driver."""

    @answers(
        "get_run_log",
        None,
        parameters=[whole("tail", 200, low=1, high=MOST_LINES, about="Number of lines.")],
        responses={(200, "text/plain"): OpenApiTypes.STR},
    )
    def get(self, run_id: int) -> HttpResponse:
        """Return the end of the driver's log as text, with secrets masked."""
        lines = whole_number(self.request, "tail", 200, low=1, high=MOST_LINES)
        run = runs.run_with_neighbours(run_id=run_id).run
        return _log(self, run.driver, run.query.name, lines)


def _log(view: ApiView, driver: Driver, subject: str, lines: int) -> HttpResponse:
    """Return the end of a driver's log, and record that the user has read it."""
    text = read_log(driver, launcher=launcher(), lines=lines)
    record_act(Act.EXPORTED, subject=subject, what="log", driver=driver.epoch, **view.by)
    return HttpResponse(text, content_type="text/plain; charset=utf-8")


class DriversView(ApiView):
    """An application's drivers."""

    @lists("list_drivers", DriverBody, by="epoch")
    def get(self, name: str) -> QuerySet[Driver]:
        """List an application's drivers, including ended ones, newest first."""
        return drivers_of(application(name))


class DriverLogView(ApiView):
    """The log of a driver."""

    @answers(
        "get_driver_log",
        None,
        parameters=[whole("tail", 200, low=1, high=MOST_LINES, about="Number of lines.")],
        responses={(200, "text/plain"): OpenApiTypes.STR},
    )
    def get(self, name: str, epoch: int) -> HttpResponse:
        """Return the end of the log of one of an application's drivers, with secrets masked."""
        lines = whole_number(self.request, "tail", 200, low=1, high=MOST_LINES)
        return _log(self, driver_of(application(name), epoch), name, lines)


class FailureView(ApiView):
    """One failure."""

    @answers("get_failure", bodies.FailureDetailBody)
    def get(self, failure_id: int) -> FailureDetail:
        """Return a failure with its log tail and the changes since the last good run."""
        return failure_with_changes(failure_id)


class FailureGroupsView(ApiView):
    """All failure groups."""

    @lists(
        "list_failure_groups",
        bodies.FailureGroupBody,
        by="last_seen pk",
        parameters=[word("status", GroupStatus), *map(word, ("query", "application", "search"))],
    )
    def get(self) -> QuerySet[FailureGroup]:
        """List failure groups, most recently seen first."""
        self.choice_params("status", GroupStatus) if self.query_param("status") else None
        filters = {
            name: self.query_param(name) for name in ("status", "query", "application", "search")
        }
        return failures.failure_groups(**filters)


class FailureGroupView(ApiView):
    """One failure group."""

    @answers("get_failure_group", bodies.FailureGroupBody)
    def get(self, group_id: int) -> FailureGroup:
        """Return a group."""
        return failures.failure_group(group_id)


class FailureGroupFailuresView(ApiView):
    """The failures in a group."""

    @lists("list_failures_of_group", bodies.FailureBody)
    def get(self, group_id: int) -> QuerySet[Failure]:
        """List the group's failures, newest first."""
        return failures.failures().filter(group=failures.failure_group(group_id))


class FailureGroupResolveView(ApiView):
    """The `resolve` verb."""

    @answers("resolve_failure_group", bodies.FailureGroupBody, role=OPERATE, form=Nothing)
    def post(self, group_id: int) -> FailureGroup:
        """Mark a group as resolved; its next failure reopens it."""
        resolution.resolve_group(group=failures.failure_group(group_id), **self.by)
        return failures.failure_group(group_id)


class FailureGroupReopenView(ApiView):
    """The `reopen` verb."""

    @answers("reopen_failure_group", bodies.FailureGroupBody, role=OPERATE, form=Nothing)
    def post(self, group_id: int) -> FailureGroup:
        """Mark a group as open again."""
        resolution.reopen_group(group=failures.failure_group(group_id), **self.by)
        return failures.failure_group(group_id)


class CheckpointsView(ApiView):
    """All checkpoints."""

    @lists(
        "list_checkpoints",
        CheckpointBody,
        parameters=[word("query"), flag("held", "In use, or retired.")],
    )
    def get(self) -> QuerySet[Checkpoint]:
        """List checkpoints, newest first, each with its holder and newest run."""
        rows = checkpoints.checkpoints()
        if name := self.query_param("query"):
            rows = rows.filter(query__name=name)
        if (in_use := self.boolean_param("held")) is not None:
            rows = rows.filter(retired_at__isnull=in_use)
        return rows
