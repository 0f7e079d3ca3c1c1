"""Deploys over REST, and the rollback of one query."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.bodies import (
    Body,
    DetailCodeField,
    MaskedText,
    described,
    form_for,
    serializer_for,
)
from queries.api.manifests import ObjectBody, SetForm, SetParser
from queries.api.methods import Nothing, Sent, accepts, answers, lists, word
from queries.api.schema import MaskedObject
from queries.domain.deploys.request import (
    MOST_CANARIES,
    ChangeState,
    DeployStage,
    DeployState,
    Good,
    OnFailure,
    Waves,
    parse_deploy,
)
from queries.models.deploys import Deploy
from queries.models.history import Operation
from queries.roles import DEFINE
from queries.selectors.definitions import definitions
from queries.selectors.deploys.reports import deploy_of, deploy_report, deploys
from queries.services.deploys.requesting import cancel_deploy, request_deploy
from queries.services.deploys.rollback import rollback_query

Form = serializers.Serializer[Any]

#: Names for the document's enums, which would otherwise be called by their fields (settings).
CHANGE_STATES = [str(choice) for choice in ChangeState]
DEPLOY_STATES = [str(choice) for choice in DeployState]


def deploy_links(deploy: Deploy) -> dict[str, str]:
    """Return a deploy's URLs; a deploy that has ended cannot be cancelled."""
    links = {"self": reverse("api:deploy", args=[deploy.uuid])}
    if deploy.ended_at is None:
        links["cancel"] = reverse("api:deploy-cancel", args=[deploy.uuid])
    return links


@described
@form_for(Waves)
class WavesForm(Form):
    """The order of restarts: the canary first, then `size` at a time.

    canary: Names of queries or applications that go first.
    size: Queries, or applications whose drivers are replaced, in each further wave.
    first: upstream (queries that write data before their readers), downstream, or name.
    """

    canary = serializers.ListField(
        child=serializers.CharField(), required=False, max_length=MOST_CANARIES
    )


@form_for(Good)
class GoodForm(Form):
    """Conditions that each query must meet before the next wave begins."""


@described
class DeployRequest(Form):
    """A set of changes to deploy.

    apply: The body of an apply.
    on_failure: Roll everything back, or stop.
    preflight: Try each new definition on a copy of its checkpoint before anything is written. This
    is not possible for queries that a script starts.
    """

    apply = SetForm()
    waves = WavesForm(required=False)
    good = GoodForm(required=False)
    on_failure = serializers.ChoiceField([str(choice) for choice in OnFailure], required=False)
    preflight = serializers.BooleanField(required=False)


class RollbackForm(Form):
    """The revision to roll back to."""

    revision = serializers.IntegerField(min_value=1, max_value=2**31 - 1)
    accept_state_change = serializers.BooleanField(default=False)


@described
class DeployedApplicationBody(Body):
    """An application whose driver is replaced, and the evidence for its outcome.

    from_revision: The revision that it was running; null if it is new.
    to_revision: Null until it is written.
    reason: What it is waiting for, or why it did not succeed.
    judged_by: The criterion for its success, in plain words; empty before the first check.
    evidence: Its driver, runs, batches, failures, lag; `back` describes the rollback.
    operations: The operation of each stage.
    restarted_at: When it was restarted on the new definition; null until then.
    proven_at: When it was first confirmed to run on the new definition; null until then.
    """

    name = serializers.CharField()
    from_revision = serializers.IntegerField(allow_null=True)
    to_revision = serializers.IntegerField(allow_null=True)
    back_revision = serializers.IntegerField(allow_null=True)
    state = serializers.ChoiceField(CHANGE_STATES)
    reason = MaskedText()
    reason_code = DetailCodeField(source="reason")
    judged_by = MaskedText()
    evidence = MaskedObject()
    operations = serializers.DictField(child=serializers.UUIDField())
    restarted_at = serializers.DateTimeField(source="tried_at", allow_null=True)
    proven_at = serializers.DateTimeField(allow_null=True)


@described
class DeployedQueryBody(DeployedApplicationBody):
    """A query of a deploy, and the evidence for its outcome.

    snapshot: The snapshot of its checkpoint before its wave; null if there is none.
    first_batch: The first batch committed with the new definition.
    """

    snapshot = serializers.IntegerField(source="snapshot_id", allow_null=True)
    first_batch = serializers.IntegerField(allow_null=True)


@described
class WaveBody(Body):
    """One wave.

    began_at: Null until the wave begins.
    ended_at: When the wave succeeded, or made the deploy fail; null until then.
    """

    number = serializers.IntegerField()
    state = serializers.ChoiceField(CHANGE_STATES)
    began_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    queries = DeployedQueryBody(many=True)
    applications = DeployedApplicationBody(many=True)


@described
class OfferBody(Body):
    """An action that users can take after a failed deploy.

    act: rewind (to the snapshot's batch) or rollback (to the revision).
    """

    act = serializers.CharField()
    query = serializers.CharField()
    snapshot = serializers.IntegerField(allow_null=True)
    batch = serializers.IntegerField(allow_null=True)
    revision = serializers.IntegerField(allow_null=True)


@serializer_for(
    Deploy,
    "id=uuid state reason reason_code actor owner source created_at ended_at cancelled_by links",
    links=deploy_links,
)
class DeployLineBody(Body):
    """A deploy in a list.

    state: A deploy that is PENDING or RUNNING has not ended.
    reason: Why it has not succeeded yet, or did not succeed.
    """

    state = serializers.ChoiceField(DEPLOY_STATES)
    reason = MaskedText()
    reason_code = DetailCodeField(source="reason")
    source = MaskedObject()  # type: ignore[assignment]  # no field's own


@described
class DeployBody(DeployLineBody):
    """A deploy report, which is stored permanently.

    stage: What the deploy is doing; `over` once it has ended. diff: The changes in the set, object
    by object. unsure: Queries whose reads or writes are not all known, so the wave order may be
    incomplete. offers: Actions that users can take. follows: Operations started at its end: they
    stop and delete what the set stops and prunes.
    """

    stage = serializers.ChoiceField(["", *(str(choice) for choice in DeployStage)])
    canary = serializers.ListField(child=serializers.CharField())
    size = serializers.IntegerField()
    good = GoodForm()
    on_failure = serializers.ChoiceField([str(choice) for choice in OnFailure])
    preflight = serializers.BooleanField()
    diff = ObjectBody(many=True)
    waves = WaveBody(many=True)
    unsure = serializers.ListField(child=serializers.CharField())
    offers = OfferBody(many=True)
    follows = serializers.ListField(child=serializers.UUIDField())

    def to_representation(self, instance: Deploy) -> dict[str, Any]:
        """Return the deploy with its waves and offers."""
        whole = deploy_report(instance)
        instance.waves = whole.waves  # type: ignore[assignment]  # their number is a column
        instance.offers = whole.offers  # type: ignore[attr-defined]
        body: dict[str, Any] = super().to_representation(instance)
        return body


class DeploysView(ApiView):
    """All deploys."""

    parser_classes = (SetParser,)

    @lists(
        "list_deploys",
        DeployLineBody,
        by="created_at pk",
        parameters=[word("state", DeployState), word("owner"), word("query")],
    )
    def get(self) -> QuerySet[Deploy]:
        """List deploys, newest first."""
        self.choice_params("state", DeployState)
        return deploys(**{name: self.query_param(name) for name in ("state", "owner", "query")})

    @answers(
        "deploy",
        DeployBody,
        role=DEFINE,
        request=DeployRequest,  # for the document only: `parse_deploy` reports errors better
        responses={202: DeployBody},
    )
    def post(self) -> Response:
        """Deploy a set of changes in waves; poll its state until it ends.

        If a wave fails, everything is rolled back (`on_failure`).
        """
        form = parse_deploy(self.request.data if isinstance(self.request.data, dict) else {})
        made = request_deploy(form=form, user=self.request.user, **self.by)
        location = reverse("api:deploy", args=[made.uuid])
        body = DeployBody(deploy_of(made.uuid)).data
        return Response(body, status=202, headers={"Location": location})


class DeployView(ApiView):
    """One deploy."""

    @answers("get_deploy", DeployBody)
    def get(self, uuid: UUID) -> Deploy:
        """Return a deploy report, which covers its progress so far."""
        return deploy_of(uuid)


class DeployCancelView(ApiView):
    """The `cancel` verb."""

    @answers("cancel_deploy", DeployBody, role=DEFINE, form=Nothing)
    def post(self, uuid: UUID) -> Deploy:
        """Cancel a deploy: make no further changes, and undo those already made (`on_failure`)."""
        cancel_deploy(deploy_of(uuid), **self.by)
        return deploy_of(uuid)


class QueryRollbackView(ApiView):
    """The `rollback` verb."""

    @accepts("rollback_query", role=DEFINE, form=RollbackForm)
    def post(self, sent: Sent, name: str) -> Operation:
        """Make an earlier revision the newest again, and restart the query on it.

        The checkpoint is not changed; a preflight of that revision shows whether it can continue.
        """
        return rollback_query(query=definitions.query(name), **sent, **self.author)
