"""Runs with their logs, failures and their groups, checkpoints."""

from datetime import datetime
from typing import ClassVar

from django.db.models import Q
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions import inputs
from queries.api.errors import invalid
from queries.api.paging import PAGING, Key, page, page_of_rows, whole_number
from queries.api.schema import describe, listed
from queries.api.supervision.history_bodies import (
    FailureBody,
    FailureDetailBody,
    FailureGroupBody,
    RunDetailBody,
)
from queries.api.supervision.query_bodies import CheckpointBody
from queries.domain.states import GroupStatus
from queries.launchers.configured import launcher
from queries.models.failures import FailureGroup
from queries.roles import OPERATE
from queries.selectors import checkpoints
from queries.selectors.failures import failures
from queries.selectors.failures.what_changed import failure_with_changes
from queries.selectors.supervision import runs
from queries.services.failures import resolution
from queries.services.failures.driver_logs import MOST_LINES, read_log


class RunView(ApiView):
    """One run."""

    @describe(operation_id="get_run", responses=RunDetailBody)
    def get(self, request: Request, run_id: int) -> Response:
        """Return a run with its neighbours, its failures and the sum of its batches."""
        return Response(RunDetailBody(runs.run_with_neighbours(run_id=run_id)).data)


class RunLogView(ApiView):
    """The log of a run's driver."""

    @describe(
        operation_id="get_run_log",
        parameters=[
            OpenApiParameter(
                "tail",
                {"type": "integer", "minimum": 1, "maximum": MOST_LINES, "default": 200},
                description="How many lines.",
            )
        ],
        responses={(200, "text/plain"): OpenApiTypes.STR},
    )
    def get(self, request: Request, run_id: int) -> HttpResponse:
        """Return the end of the driver's log as text, its secrets masked."""
        lines = whole_number(request, "tail", 200, low=1, high=MOST_LINES)
        run = runs.run_with_neighbours(run_id=run_id).run
        text = read_log(run.driver, launcher=launcher(), lines=lines)
        return HttpResponse(text, content_type="text/plain; charset=utf-8")


class FailureView(ApiView):
    """One failure."""

    @describe(operation_id="get_failure", responses=FailureDetailBody)
    def get(self, request: Request, failure_id: int) -> Response:
        """Return a failure with its log tail and what changed since the last good run."""
        return Response(FailureDetailBody(failure_with_changes(failure_id)).data)


class FailureGroupsView(ApiView):
    """All failure groups."""

    @describe(
        operation_id="list_failure_groups",
        parameters=[
            OpenApiParameter("status", OpenApiTypes.STR, enum=[str(word) for word in GroupStatus]),
            OpenApiParameter("query", OpenApiTypes.STR),
            OpenApiParameter("application", OpenApiTypes.STR),
            OpenApiParameter("search", OpenApiTypes.STR),
            *PAGING,
        ],
        responses=listed(FailureGroupBody),
    )
    def get(self, request: Request) -> Response:
        """List failure groups, most recently seen first."""
        status = request.query_params.get("status", "")
        if status and status not in list(GroupStatus):
            raise invalid("status", status, "is not known.", f"Known: {', '.join(GroupStatus)}.")
        filters = {
            name: request.query_params.get(name, "").replace("\x00", "")
            for name in ("query", "application", "search")
        }
        rows = failures.failure_groups(status=status, **filters)

        def fetch(after: Key | None, count: int) -> list[FailureGroup]:
            if after is None:
                return list(rows[:count])
            seen = datetime.fromisoformat(after[0])
            if seen.tzinfo is None:
                raise ValueError("a time without a time zone")
            behind = Q(last_seen__lt=seen) | Q(last_seen=seen, pk__lt=int(after[1]))
            return list(rows.filter(behind)[:count])

        return page(
            request,
            fetch,
            lambda group: [group.last_seen.isoformat(), group.pk],
            lambda group: FailureGroupBody(group).data,
        )


class FailureGroupView(ApiView):
    """One failure group."""

    @describe(operation_id="get_failure_group", responses=FailureGroupBody)
    def get(self, request: Request, group_id: int) -> Response:
        """Return a group."""
        return Response(FailureGroupBody(failures.failure_group(group_id)).data)


class FailureGroupFailuresView(ApiView):
    """The failures of a group."""

    @describe(
        operation_id="list_failures_of_group", parameters=PAGING, responses=listed(FailureBody)
    )
    def get(self, request: Request, group_id: int) -> Response:
        """List the group's failures, newest first."""
        rows = failures.failures().filter(group=failures.failure_group(group_id))
        return page_of_rows(request, rows, lambda row: FailureBody(row).data)


class FailureGroupResolveView(ApiView):
    """The verb resolve."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(
        operation_id="resolve_failure_group", request=inputs.Nothing, responses=FailureGroupBody
    )
    def post(self, request: Request, group_id: int) -> Response:
        """Mark a group as resolved; its next failure reopens it."""
        self.read(inputs.Nothing, request.data or {})
        resolution.resolve_group(
            group=failures.failure_group(group_id), actor=self.actor, now=self.now
        )
        return Response(FailureGroupBody(failures.failure_group(group_id)).data)


class FailureGroupReopenView(ApiView):
    """The verb reopen."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(
        operation_id="reopen_failure_group", request=inputs.Nothing, responses=FailureGroupBody
    )
    def post(self, request: Request, group_id: int) -> Response:
        """Mark a group as open again."""
        self.read(inputs.Nothing, request.data or {})
        group = failures.failure_group(group_id)
        resolution.reopen_group(group=group, actor=self.actor, now=self.now)
        return Response(FailureGroupBody(failures.failure_group(group_id)).data)


class CheckpointsView(ApiView):
    """All checkpoints."""

    @describe(
        operation_id="list_checkpoints",
        parameters=[
            OpenApiParameter("query", OpenApiTypes.STR),
            OpenApiParameter("held", OpenApiTypes.BOOL, description="Held, or retired."),
            *PAGING,
        ],
        responses=listed(CheckpointBody),
    )
    def get(self, request: Request) -> Response:
        """List checkpoints, newest first, each with its holder and its newest run."""
        rows = checkpoints.checkpoints()
        if name := request.query_params.get("query", "").replace("\x00", ""):
            rows = rows.filter(query__name=name)
        held = request.query_params.get("held")
        if held is not None:
            if held not in ("true", "false"):
                raise invalid("held", held, "is neither true nor false.")
            rows = rows.filter(retired_at__isnull=held == "true")
        return page_of_rows(request, rows, lambda row: CheckpointBody(row).data)
