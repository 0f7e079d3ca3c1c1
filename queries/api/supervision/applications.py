"""Applications, their verbs, and their scheduler pools."""

from functools import partial
from typing import Any, ClassVar

from django.urls import reverse
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions import changes, inputs
from queries.api.errors import invalid
from queries.api.etags import etag
from queries.api.paging import PAGING, Key, page, page_of_rows
from queries.api.schema import describe, listed
from queries.api.supervision.application_bodies import ApplicationBody, PoolBody
from queries.api.supervision.history_bodies import OperationBody, OperationsBody
from queries.api.supervision.operations import accepted
from queries.api.supervision.queries import IF_MATCH, MERGE_TYPES, MergePatchParser
from queries.domain.errors import Conflict
from queries.domain.states import StopMode
from queries.roles import DEFINE, OPERATE
from queries.selectors.supervision import applications
from queries.services.definitions import catalog
from queries.services.supervision import application_operations


class ApplicationsView(ApiView):
    """All applications."""

    permissions: ClassVar[dict[str, str]] = {"POST": DEFINE}

    @describe(
        operation_id="list_applications", parameters=PAGING, responses=listed(ApplicationBody)
    )
    def get(self, request: Request) -> Response:
        """List living applications by name."""

        def fetch(after: Key | None, count: int) -> list[applications.ApplicationDetail]:
            rows = applications.applications()
            if after is not None:
                rows = rows.filter(name__gt=str(after[0]))
            return applications.application_details(list(rows[:count]))

        return page(request, fetch, lambda detail: [detail.application.name], _body)

    @describe(
        operation_id="create_application",
        request=inputs.ApplicationCreate,
        responses={201: ApplicationBody},
    )
    def post(self, request: Request) -> Response:
        """Create an application that queries can share."""
        sent = self.read(inputs.ApplicationCreate, request.data)
        row = catalog.create_application(**sent, actor=self.actor, now=self.now)
        return _answer(row.name, self, status=201, created=True)


class ApplicationView(ApiView):
    """One application."""

    permissions: ClassVar[dict[str, str]] = {"PUT": DEFINE, "PATCH": DEFINE, "DELETE": DEFINE}
    parser_classes = (JSONParser, MergePatchParser)

    @describe(operation_id="get_application", responses=ApplicationBody)
    def get(self, request: Request, name: str) -> Response:
        """Return an application; the ETag covers its definition only."""
        return _answer(name, self)

    @describe(
        operation_id="replace_application",
        parameters=[IF_MATCH],
        request={"application/json": inputs.ApplicationReplace},
        responses=ApplicationBody,
    )
    def put(self, request: Request, name: str) -> Response:
        """Replace the definition; the living driver keeps its own until it is replaced."""
        sent = self.read(inputs.ApplicationReplace, request.data)
        row = applications.application(name)
        store = partial(catalog.revise_application, application=row, actor=self.actor, now=self.now)
        changes.replace(request, row, sent, {"name": row.name}, store)
        return _answer(name, self)

    @describe(
        operation_id="patch_application",
        parameters=[IF_MATCH],
        request=dict.fromkeys(MERGE_TYPES, inputs.ApplicationMerge),
        responses=ApplicationBody,
    )
    def patch(self, request: Request, name: str) -> Response:
        """Merge into the newest definition; If-Match is optional."""
        sent = self.read(inputs.ApplicationMerge, request.data)
        row = applications.application(name)
        store = partial(catalog.revise_application, application=row, actor=self.actor, now=self.now)
        changes.patch(request, row, sent["spec"], store)
        return _answer(name, self)

    @describe(operation_id="delete_application", parameters=[IF_MATCH], responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Delete an application that has no living queries."""
        row = applications.application(name)
        changes.check_newest(request, row)
        application_operations.archive_application(application=row, actor=self.actor, now=self.now)
        return Response(status=204)


class ApplicationStopView(ApiView):
    """The verb stop, for each of an application's queries."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(operation_id="stop_application", request=inputs.Stop, responses={202: OperationsBody})
    def post(self, request: Request, name: str) -> Response:
        """Stop each query; answer with an operation for each."""
        mode = StopMode(self.read(inputs.Stop, request.data or {})["mode"])
        begun = application_operations.request_application_stop(
            application=applications.application(name), mode=mode, actor=self.actor, now=self.now
        )
        body = OperationsBody({"results": begun}).data
        location = reverse("api:operation", args=[begun[0].uuid]) if len(begun) == 1 else None
        return Response(body, status=202, headers={"Location": location} if location else {})


class ApplicationRestartView(ApiView):
    """The verb restart: a fresh driver."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(
        operation_id="restart_application", request=inputs.Nothing, responses={202: OperationBody}
    )
    def post(self, request: Request, name: str) -> Response:
        """Replace the driver by one on the newest revision, pools and code."""
        self.read(inputs.Nothing, request.data or {})
        operation = application_operations.request_application_restart(
            application=applications.application(name), actor=self.actor, now=self.now
        )
        return accepted(operation)


class PoolsView(ApiView):
    """An application's scheduler pools."""

    permissions: ClassVar[dict[str, str]] = {"POST": DEFINE}

    @describe(operation_id="list_pools", parameters=PAGING, responses=listed(PoolBody))
    def get(self, request: Request, name: str) -> Response:
        """List the pools by name, each with the queries that it holds."""
        row = applications.application(name)
        holdings = {held.pool.pk: held for held in applications.application_details([row])[0].pools}
        return page_of_rows(
            request,
            row.pools.all(),
            lambda pool: PoolBody(holdings[pool.pk]).data,
            "name",
            descending=False,
        )

    @describe(operation_id="create_pool", request=inputs.PoolCreate, responses={201: PoolBody})
    def post(self, request: Request, name: str) -> Response:
        """Create a pool; it takes effect with the application's next driver."""
        row = applications.application(name)
        sent = self.read(inputs.PoolCreate, request.data)
        if row.pools.filter(name=sent["name"]).exists():
            raise Conflict(
                f"Application {row.name} has a pool named {sent['name']} already.",
                way_out="Put to its own address to change it.",
            )
        pool = catalog.save_pool(application=row, spec=sent, actor=self.actor, now=self.now)
        location = reverse("api:pool", args=[row.name, pool.name])
        body = PoolBody(applications.pool_holding(row, pool.name)).data
        return Response(body, status=201, headers={"Location": location})


class PoolView(ApiView):
    """One scheduler pool."""

    permissions: ClassVar[dict[str, str]] = {"PUT": DEFINE, "DELETE": DEFINE}

    @describe(operation_id="get_pool", responses=PoolBody)
    def get(self, request: Request, name: str, pool: str) -> Response:
        """Return a pool with the queries that it holds."""
        holding = applications.pool_holding(applications.application(name), pool)
        return Response(PoolBody(holding).data)

    @describe(operation_id="replace_pool", request=inputs.PoolReplace, responses=PoolBody)
    def put(self, request: Request, name: str, pool: str) -> Response:
        """Change a pool; it takes effect with the application's next driver."""
        row = applications.application(name)
        held = applications.pool_holding(row, pool).pool
        sent = self.read(inputs.PoolReplace, request.data)
        if sent.setdefault("name", held.name) != held.name:
            way_out = "Delete this one and create another."
            raise invalid("name", sent["name"], "cannot be changed.", way_out)
        catalog.save_pool(application=row, spec=sent, actor=self.actor, now=self.now)
        return Response(PoolBody(applications.pool_holding(row, pool)).data)

    @describe(operation_id="delete_pool", responses={204: None})
    def delete(self, request: Request, name: str, pool: str) -> Response:
        """Delete a pool that no query uses."""
        held = applications.pool_holding(applications.application(name), pool).pool
        catalog.delete_pool(pool=held, actor=self.actor, now=self.now)
        return Response(status=204)


def _body(detail: applications.ApplicationDetail) -> Any:
    return ApplicationBody(detail).data


def _answer(name: str, view: ApiView, *, status: int = 200, created: bool = False) -> Response:
    detail = applications.application_detail(name)
    headers = {"ETag": etag(detail.application, detail.newest.number if detail.newest else None)}
    if created:
        headers["Location"] = view.request.build_absolute_uri(
            reverse("api:application", args=[name])
        )
    return Response(_body(detail), status=status, headers=headers)
