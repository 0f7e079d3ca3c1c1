"""Deploys over REST, and the rollback of one query."""

from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.deploys import bodies
from queries.api.manifests.views import SetParser
from queries.api.methods import Nothing, Sent, accepts, answers, lists
from queries.api.paging import word
from queries.domain.deploys.forms import parse_deploy
from queries.domain.deploys.states import DeployState
from queries.models.deploys.receipts import Deploy
from queries.models.history import Operation
from queries.roles import DEFINE
from queries.selectors.definitions import definitions
from queries.selectors.deploys.receipts import deploy_of, deploys
from queries.services.deploys.requesting import cancel_deploy, request_deploy
from queries.services.deploys.rollback import rollback_query


class DeploysView(ApiView):
    """All deploys."""

    parser_classes = (SetParser,)

    @lists(
        "list_deploys",
        bodies.DeployLineBody,
        by="created_at pk",
        parameters=[word("state", DeployState), word("owner"), word("query")],
    )
    def get(self) -> QuerySet[Deploy]:
        """List deploys, newest first."""
        self.choice_params("state", DeployState)
        return deploys(**{name: self.query_param(name) for name in ("state", "owner", "query")})

    @answers(
        "deploy",
        bodies.DeployBody,
        role=DEFINE,
        request=bodies.DeployRequest,  # for the document only: `parse_deploy` reports errors better
        responses={202: bodies.DeployBody},
    )
    def post(self) -> Response:
        """Deploy a set of changes in waves; poll its state until it ends.

        If a wave fails, everything is rolled back (`on_failure`).
        """
        form = parse_deploy(self.request.data if isinstance(self.request.data, dict) else {})
        made = request_deploy(form=form, user=self.request.user, **self.by)
        location = reverse("api:deploy", args=[made.uuid])
        body = bodies.DeployBody(deploy_of(made.uuid)).data
        return Response(body, status=202, headers={"Location": location})


class DeployView(ApiView):
    """One deploy."""

    @answers("get_deploy", bodies.DeployBody)
    def get(self, uuid: UUID) -> Deploy:
        """Return a deploy's receipt, which covers its progress so far."""
        return deploy_of(uuid)


class DeployCancelView(ApiView):
    """The `cancel` verb."""

    @answers("cancel_deploy", bodies.DeployBody, role=DEFINE, form=Nothing)
    def post(self, uuid: UUID) -> Deploy:
        """Cancel a deploy: make no further changes, and undo those already made (`on_failure`)."""
        cancel_deploy(deploy_of(uuid), **self.by)
        return deploy_of(uuid)


class QueryRollbackView(ApiView):
    """The `rollback` verb."""

    @accepts("rollback_query", role=DEFINE, form=bodies.RollbackForm)
    def post(self, sent: Sent, name: str) -> Operation:
        """Make an earlier revision the newest again, and restart the query on it.

        The checkpoint is not changed; a preflight of that revision shows whether it can continue.
        """
        return rollback_query(query=definitions.query(name), **sent, **self.author)
