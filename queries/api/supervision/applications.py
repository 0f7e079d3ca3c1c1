"""Applications, their verbs, and their scheduler pools."""

from functools import partial
from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.bodies import Body, OperationsBody
from queries.api.definitions import changes as definitions
from queries.api.definitions.bodies import ApplicationBody, PoolBody
from queries.api.definitions.changes import IF_MATCH, DefinitionView, changes, defined
from queries.api.errors import invalid
from queries.api.methods import (
    Key,
    Sent,
    accepts,
    answers,
    creates,
    lists,
    page,
    page_of_rows,
    word,
)
from queries.domain.errors import Conflict
from queries.domain.states import StopMode
from queries.models.applications import Application
from queries.models.history import Operation
from queries.roles import DEFINE
from queries.selectors.access import team_for_new
from queries.selectors.supervision import applications
from queries.selectors.supervision.applications import pool_form
from queries.services import idempotency_keys
from queries.services.definitions import catalog
from queries.services.supervision import application_operations
from queries.services.system import installation


class ApplicationsView(ApiView):
    """All applications."""

    @lists("list_applications", ApplicationBody, parameters=[word("team")])
    def get(self) -> Response:
        """List applications, sorted by name."""

        def fetch(after: Key | None, count: int) -> list[applications.ApplicationDetail]:
            rows = applications.applications()
            if team := self.query_param("team"):
                rows = rows.filter(team__name=team)
            if after is not None:
                rows = rows.filter(name__gt=str(after[0]))
            return applications.application_details(list(rows[:count]))

        return page(self.request, fetch, lambda row: [row.application.name], ApplicationBody)

    @creates(
        "create_application",
        ApplicationBody,
        definitions.ApplicationCreate,
        parameters=[definitions.DRY_RUN],
        again=definitions.or_trial(ApplicationBody),
    )
    def post(self, sent: Sent) -> Response:
        """Create an application that queries can share.

        An identical existing one is returned unchanged, with 200.
        """
        if (same := idempotency_keys.same_application(self.request.user, sent)) is not None:
            return _answer(same.name, sent=sent)
        return _create(self, sent)


class ApplicationView(DefinitionView):
    """One application."""

    @answers("get_application", ApplicationBody)
    def get(self, name: str) -> Response:
        """Return an application; the ETag covers only its definition."""
        return _answer(name)

    @changes("replace_application", ApplicationBody, definitions.ApplicationReplace)
    def put(self, sent: Sent, name: str) -> Response:
        """Replace the definition; a running driver keeps its own until it is replaced."""
        if definitions.is_new(self.request):
            return self._create(sent, name)
        row = applications.application(name)
        fixed = {"name": row.name}
        saved = definitions.replace(self.request, row, sent, fixed, self._store(row))
        return (
            definitions.would_save(saved) if definitions.is_dry(self) else _answer(name, sent=sent)
        )

    @changes("patch_application", ApplicationBody, definitions.ApplicationMerge)
    def patch(self, sent: Sent, name: str) -> Response:
        """Merge a part into the newest definition; If-Match is optional."""
        row = applications.application(name)
        saved = definitions.patch(self.request, row, sent["spec"], self._store(row))
        return (
            definitions.would_save(saved) if definitions.is_dry(self) else _answer(name, sent=sent)
        )

    def _create(self, sent: Sent, name: str) -> Response:
        """Create the application with this URL."""
        if sent.get("name", name) != name:
            raise invalid("name", sent["name"], f"is not {name}.", "Remove it.")
        exists = Application.objects.filter(name=name, archived_at=None).exists()
        definitions.refuse_there(name, there=exists)
        return _create(self, {"team": "", **sent, "name": name})

    def _store(self, row: Application) -> Any:
        """Return the function that stores a definition, or that only plans it."""
        if definitions.is_dry(self):
            rights = self.author["rights"]
            return partial(catalog.plan_application, application=row, rights=rights)
        return partial(catalog.revise_application, application=row, **self.author)

    @answers("delete_application", None, role=DEFINE, parameters=[IF_MATCH, definitions.DRY_RUN])
    def delete(self, name: str) -> None:
        """Delete an application that has no queries."""
        row = applications.application(name)
        definitions.check_deleted(self.request, row)
        with definitions.undone(self):
            application_operations.archive_application(application=row, **self.by)


class ApplicationStartView(ApiView):
    """The `start` verb for an application that runs a script."""

    @accepts("start_application")
    def post(self, name: str) -> Operation:
        """Run the script on the newest revision and code; start defined queries individually."""
        return application_operations.request_script_start(
            application=applications.application(name), **self.by
        )


class ApplicationStopView(ApiView):
    """The `stop` verb for all queries of an application, or for its script."""

    @accepts("stop_application", form=definitions.Stop, responses={202: OperationsBody})
    def post(self, sent: Sent, name: str) -> Response:
        """Stop every query, or the script; return an operation for each."""
        begun = application_operations.request_application_stop(
            application=applications.application(name), mode=StopMode(sent["mode"]), **self.by
        )
        body = OperationsBody({"results": begun}).data
        location = reverse("api:operation", args=[begun[0].uuid]) if len(begun) == 1 else None
        return Response(body, status=202, headers={"Location": location} if location else {})


class HostGone(Body):
    """The declaration that an application's host is gone.

    host: Its name, as confirmation. A driver there exits, or writes until it reaches Redis again.
    """

    host = serializers.CharField(max_length=255)


class ApplicationHostGoneView(ApiView):
    """The `declare-host-gone` verb."""

    @accepts("declare_application_host_gone", form=HostGone)
    def post(self, sent: Sent, name: str) -> Operation:
        """Treat the driver on a silent host as dead; local checkpoints stay on that host."""
        return installation.declare_host_gone(
            application=applications.application(name), **sent, **self.by
        )


class ApplicationRestartView(ApiView):
    """The `restart` verb, which starts a new driver."""

    @accepts("restart_application")
    def post(self, name: str) -> Operation:
        """Replace the driver with one on the newest revision, pools and code."""
        return application_operations.request_application_restart(
            application=applications.application(name), **self.by
        )


class ApplicationAnswerView(ApiView):
    """The answer to `script.question`."""

    @answers("answer_application", ApplicationBody, role=DEFINE, form=definitions.Answer)
    def post(self, sent: Sent, name: str) -> Response:
        """Identify a script's new query; the script continues if it should run."""
        application_operations.answer_script(
            application=applications.application(name), **sent, **self.by
        )
        return _answer(name)


class PoolsView(ApiView):
    """An application's scheduler pools."""

    @lists("list_pools", PoolBody)
    def get(self, name: str) -> Response:
        """List the pools, sorted by name, each with its queries."""
        row = applications.application(name)
        holdings = {
            holding.pool.pk: holding for holding in applications.application_details([row])[0].pools
        }

        def body(pool: Any) -> PoolBody:
            return PoolBody(holdings[pool.pk])

        return page_of_rows(self.request, row.pools.all(), body, "name", descending=False)

    @creates("create_pool", PoolBody, definitions.PoolCreate, again=PoolBody)
    def post(self, sent: Sent, name: str) -> Response:
        """Create a pool; it takes effect when the application's next driver starts."""
        row = applications.application(name)
        existing_pool = row.pools.filter(name=sent["name"]).first()
        if existing_pool is not None and pool_form(existing_pool) == sent:
            return Response(PoolBody(applications.pool_holding(row, existing_pool.name)).data)
        if existing_pool is not None:
            raise Conflict(
                f"Application {row.name} already has a pool named {sent['name']}.",
                way_out="PUT to its own URL to change it.",
            )
        pool = catalog.save_pool(application=row, spec=sent, **self.by)
        location = reverse("api:pool", args=[row.name, pool.name])
        body = PoolBody(applications.pool_holding(row, pool.name)).data
        return Response(body, status=201, headers={"Location": location})


class PoolView(ApiView):
    """One scheduler pool."""

    @answers("get_pool", PoolBody)
    def get(self, name: str, pool: str) -> applications.PoolHolding:
        """Return a pool with its queries."""
        return applications.pool_holding(applications.application(name), pool)

    @answers("replace_pool", PoolBody, role=DEFINE, form=definitions.PoolReplace)
    def put(self, sent: Sent, name: str, pool: str) -> applications.PoolHolding:
        """Change a pool; it takes effect when the application's next driver starts."""
        row = applications.application(name)
        stored_pool = applications.pool_holding(row, pool).pool
        if sent.setdefault("name", stored_pool.name) != stored_pool.name:
            way_out = "Delete this one and create another."
            raise invalid("name", sent["name"], "cannot be changed.", way_out)
        catalog.save_pool(application=row, spec=sent, **self.by)
        return applications.pool_holding(row, pool)

    @answers("delete_pool", None, role=DEFINE)
    def delete(self, name: str, pool: str) -> None:
        """Delete a pool that no query uses."""
        stored_pool = applications.pool_holding(applications.application(name), pool).pool
        catalog.delete_pool(pool=stored_pool, **self.by)


def _create(view: ApiView, sent: Sent) -> Response:
    sent["team"] = team_for_new(view.request.user, sent["team"])
    if definitions.is_dry(view):
        return definitions.would_save(
            catalog.plan_application(**sent, rights=view.author["rights"])
        )
    return _answer(catalog.create_application(**sent, **view.author).name, new=True, sent=sent)


def _answer(name: str, **how: Any) -> Response:
    detail = applications.application_detail(name)
    revision = detail.newest.number if detail.newest else None
    return defined(ApplicationBody(detail).data, detail.application, revision, **how)
