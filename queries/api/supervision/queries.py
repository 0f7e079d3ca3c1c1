"""Queries: their list, each of them, its verbs, and what it has done."""

from functools import partial
from typing import Any, ClassVar

from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response

from listeners import selectors as heard
from queries.api.base import ApiView
from queries.api.definitions import changes, inputs
from queries.api.errors import invalid
from queries.api.etags import etag
from queries.api.paging import PAGING, Key, page, page_of_rows
from queries.api.schema import describe, listed
from queries.api.supervision.history_bodies import (
    FailureBody,
    OperationBody,
    ProgressRowBody,
    RunBody,
)
from queries.api.supervision.operations import accepted
from queries.api.supervision.query_bodies import QueryBody, QueryRevisionBody
from queries.domain.states import Desired, Phase, StopMode, Verdict
from queries.models.history import Operation
from queries.roles import DEFINE, OPERATE
from queries.selectors.definitions import definitions
from queries.selectors.failures import failures
from queries.selectors.query_lines import QueryLine, query_line, query_lines
from queries.selectors.supervision import runs
from queries.services.definitions import catalog
from queries.services.supervision import operations


class MergePatchParser(JSONParser):
    """Reads a merge patch (RFC 7396)."""

    media_type = "application/merge-patch+json"


#: What a patch may be sent as.
MERGE_TYPES = (JSONParser.media_type, MergePatchParser.media_type)


IF_MATCH = OpenApiParameter(
    "If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, description="ETag of a get."
)


def _words(name: str, words: Any) -> OpenApiParameter:
    known = [str(word) for word in words]
    return OpenApiParameter(
        name, OpenApiTypes.STR, many=True, enum=known, description="Repeat it for several."
    )


_FILTERS = [
    _words("phase", Phase),
    _words("health", Verdict),
    OpenApiParameter("desired", OpenApiTypes.STR, enum=[str(word) for word in Desired]),
    OpenApiParameter("application", OpenApiTypes.STR),
    OpenApiParameter("pool", OpenApiTypes.STR),
    OpenApiParameter("search", OpenApiTypes.STR, description="In names."),
]


def _chosen(request: Request, name: str, words: Any) -> tuple[str, ...]:
    """Return a filter's values; raise `Invalid` where one is no word of its kind."""
    known = [str(word) for word in words]
    for value in request.query_params.getlist(name):
        if value not in known:
            raise invalid(name, value, "is not known.", f"Known: {', '.join(known)}.")
    return tuple(request.query_params.getlist(name))


class QueriesView(ApiView):
    """All queries."""

    permissions: ClassVar[dict[str, str]] = {"POST": DEFINE}

    @describe(
        operation_id="list_queries",
        parameters=[*_FILTERS, *PAGING],
        responses=listed(QueryBody),
    )
    def get(self, request: Request) -> Response:
        """List living queries by name."""
        filters: dict[str, Any] = {
            "phases": _chosen(request, "phase", Phase),
            "verdicts": _chosen(request, "health", Verdict),
            "desired": "".join(_chosen(request, "desired", Desired)[-1:]),
            **{
                name: request.query_params.get(name, "").replace("\x00", "")
                for name in ("application", "pool", "search")
            },
        }

        def fetch(after: Key | None, count: int) -> list[QueryLine]:
            start = str(after[0]) if after else ""
            return query_lines(now=self.now, after=start, limit=count, bars=0, **filters)

        return page(request, fetch, lambda line: [line.query.name], _body)

    @describe(operation_id="create_query", request=inputs.QueryCreate, responses={201: QueryBody})
    def post(self, request: Request) -> Response:
        """Create a query, stopped; answer with its body and its ETag."""
        sent = self.read(inputs.QueryCreate, request.data)
        row = catalog.create_query(**sent, actor=self.actor, now=self.now)
        return _answer(row.name, self, status=201, created=True)


class QueryView(ApiView):
    """One query."""

    permissions: ClassVar[dict[str, str]] = {"PUT": DEFINE, "PATCH": DEFINE, "DELETE": DEFINE}
    parser_classes = (JSONParser, MergePatchParser)

    @describe(operation_id="get_query", responses=QueryBody)
    def get(self, request: Request, name: str) -> Response:
        """Return a query; the ETag covers its definition only."""
        return _answer(name, self)

    @describe(
        operation_id="replace_query",
        parameters=[IF_MATCH],
        request={"application/json": inputs.QueryReplace},
        responses=QueryBody,
    )
    def put(self, request: Request, name: str) -> Response:
        """Replace the definition; it runs from the next start or restart on."""
        sent = self.read(inputs.QueryReplace, request.data)
        row = definitions.query(name)
        held = row.checkpoints.filter(retired_at=None).values_list("location", flat=True)
        fixed = {"name": row.name, "application": row.application.name, "checkpoint": held[0]}
        store = partial(catalog.revise_query, query=row, actor=self.actor, now=self.now)
        changes.replace(request, row, sent, fixed, store)
        return _answer(name, self)

    @describe(
        operation_id="patch_query",
        parameters=[IF_MATCH],
        request=dict.fromkeys(MERGE_TYPES, inputs.QueryMerge),
        responses=QueryBody,
    )
    def patch(self, request: Request, name: str) -> Response:
        """Merge into the newest definition; If-Match is optional."""
        sent = self.read(inputs.QueryMerge, request.data)
        row = definitions.query(name)
        store = partial(catalog.revise_query, query=row, actor=self.actor, now=self.now)
        changes.patch(request, row, sent["spec"], store)
        return _answer(name, self)

    @describe(operation_id="delete_query", parameters=[IF_MATCH], responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Delete a stopped query; its history and its checkpoint's files are kept."""
        row = definitions.query(name)
        definitions.check_newest(request, row)
        operations.archive_query(query=row, actor=self.actor, now=self.now)
        return Response(status=204)


class QueryStartView(ApiView):
    """The verb start."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(operation_id="start_query", request=inputs.Nothing, responses={202: OperationBody})
    def post(self, request: Request, name: str) -> Response:
        """Want the query running on its newest revision; follow the operation to its end."""
        self.read(inputs.Nothing, request.data or {})
        operation = operations.request_start(
            query=definitions.query(name), actor=self.actor, now=self.now
        )
        return accepted(operation)


class QueryStopView(ApiView):
    """The verb stop."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(operation_id="stop_query", request=inputs.Stop, responses={202: OperationBody})
    def post(self, request: Request, name: str) -> Response:
        """Want the query stopped, after the batch in flight (graceful) or at once (now)."""
        mode = StopMode(self.read(inputs.Stop, request.data or {})["mode"])
        operation = operations.request_stop(
            query=definitions.query(name), mode=mode, actor=self.actor, now=self.now
        )
        return accepted(operation)


class QueryRestartView(ApiView):
    """The verb restart."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(operation_id="restart_query", request=inputs.Nothing, responses={202: OperationBody})
    def post(self, request: Request, name: str) -> Response:
        """Stop the query gracefully and start it on its newest revision."""
        self.read(inputs.Nothing, request.data or {})
        operation: Operation = operations.request_restart(
            query=definitions.query(name), actor=self.actor, now=self.now
        )
        return accepted(operation)


class QueryRevisionsView(ApiView):
    """A query's revisions."""

    @describe(
        operation_id="list_query_revisions", parameters=PAGING, responses=listed(QueryRevisionBody)
    )
    def get(self, request: Request, name: str) -> Response:
        """List the definition's revisions, newest first."""
        rows = definitions.revisions_of(definitions.query(name))
        return page_of_rows(request, rows, lambda row: QueryRevisionBody(row).data, "number")


class QueryRunsView(ApiView):
    """A query's runs."""

    @describe(operation_id="list_query_runs", parameters=PAGING, responses=listed(RunBody))
    def get(self, request: Request, name: str) -> Response:
        """List the runs, newest first."""
        rows = runs.runs_of(definitions.query(name))
        return page_of_rows(request, rows, lambda row: RunBody(row).data, "epoch")


class QueryProgressView(ApiView):
    """A query's executed batches."""

    @describe(
        operation_id="list_query_progress",
        parameters=[OpenApiParameter("run", OpenApiTypes.INT), *PAGING],
        responses=listed(ProgressRowBody),
    )
    def get(self, request: Request, name: str) -> Response:
        """List executed batches, newest first, each with Spark's own progress."""
        row = definitions.query(name)
        text = request.query_params.get("run")
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 19):
            raise invalid("run", text, "is not a run's id.")

        def fetch(after: Key | None, count: int) -> list[dict[str, Any]]:
            return heard.progress_page(
                row.pk,
                before=int(after[0]) if after else None,
                run=int(text) if text else None,
                limit=count,
            )

        return page(
            request, fetch, lambda found: [found["id"]], lambda row: ProgressRowBody(row).data
        )


class QueryFailuresView(ApiView):
    """A query's failures."""

    @describe(operation_id="list_query_failures", parameters=PAGING, responses=listed(FailureBody))
    def get(self, request: Request, name: str) -> Response:
        """List failures, newest first, and the deaths of drivers that ended one of its runs."""
        rows = failures.failures_of(definitions.query(name))
        return page_of_rows(request, rows, lambda row: FailureBody(row).data)


def _body(line: QueryLine) -> Any:
    return QueryBody(line).data


def _answer(name: str, view: ApiView, *, status: int = 200, created: bool = False) -> Response:
    line = query_line(name, now=view.now, bars=0)
    headers = {"ETag": etag(line.query, line.revision)}
    if created:
        headers["Location"] = view.request.build_absolute_uri(reverse("api:query", args=[name]))
    return Response(_body(line), status=status, headers=headers)
