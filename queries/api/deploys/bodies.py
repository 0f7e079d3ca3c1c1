"""What the API takes for deploys and rollbacks, and what it says of them."""

from typing import Any

from rest_framework import serializers

from queries.api.deploys.links import deploy_links
from queries.api.derived import Body, described, shows, takes
from queries.api.manifests.bodies import ObjectBody, SetForm
from queries.api.operation_bodies import MaskedText
from queries.api.reasons import DetailCodeField
from queries.api.schema import MaskedObject
from queries.domain.deploys.forms import Good, Waves
from queries.domain.deploys.states import ChangeState, DeployState, OnFailure, Stage
from queries.models.deploys.receipts import Deploy
from queries.selectors.deploys.receipts import receipt

Form = serializers.Serializer[Any]

#: Names of the document's enums, which would be called by their fields (settings).
CHANGE_STATES = [str(one) for one in ChangeState]
DEPLOY_STATES = [str(one) for one in DeployState]


@described
@takes(Waves)
class WavesForm(Form):
    """In which order queries restart: the canary, then so many at a time.

    canary: Names of queries or applications that go first.
    size: Queries, or applications whose drivers are replaced, of each further wave.
    """

    canary = serializers.ListField(child=serializers.CharField(max_length=80), required=False)


@takes(Good)
class GoodForm(Form):
    """What must hold of each query before the next wave begins."""


@described
class DeployRequest(Form):
    """A set of changes to deploy.

    apply: The body of an apply.
    on_failure: Roll everything back, or stop where it is.
    preflight: Try each new definition on a copy of its checkpoint before anything is written.
    """

    apply = SetForm()
    waves = WavesForm(required=False)
    good = GoodForm(required=False)
    on_failure = serializers.ChoiceField([str(one) for one in OnFailure], required=False)
    preflight = serializers.BooleanField(required=False)


class RollbackForm(Form):
    """The revision to go back to."""

    revision = serializers.IntegerField(min_value=1, max_value=2**31 - 1)


@described
class DeployedApplicationBody(Body):
    """An application whose driver is replaced, and what was seen of it.

    from_revision: What it ran; null where it is new.
    to_revision: Null until it is written.
    reason: What it waits for, or why it is bad.
    judged_by: What shows whether it is good, in plain words; empty before its first look.
    evidence: Its driver, runs, batches, failures, lag; `back`: on the former definition.
    operations: The operation of each stage.
    restarted_at: When it was restarted on the new definition; null until then.
    proven_at: When it was first shown to run on it; null until then.
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
    """A query of a deploy, and what was seen of it.

    snapshot: Of its checkpoint before its wave; null where there is none.
    first_batch: The first that the new definition has committed.
    """

    snapshot = serializers.IntegerField(source="snapshot_id", allow_null=True)
    first_batch = serializers.IntegerField(allow_null=True)


@described
class WaveBody(Body):
    """One wave.

    began_at: Null until it has begun.
    ended_at: When it was good, or ended the way forward; null until then.
    """

    number = serializers.IntegerField()
    state = serializers.ChoiceField(CHANGE_STATES)
    began_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    queries = DeployedQueryBody(many=True)
    applications = DeployedApplicationBody(many=True)


@described
class OfferBody(Body):
    """What a person may do after a deploy that has failed.

    act: rewind: to the snapshot's batch; rollback: to the revision.
    """

    act = serializers.CharField()
    query = serializers.CharField()
    snapshot = serializers.IntegerField(allow_null=True)
    batch = serializers.IntegerField(allow_null=True)
    revision = serializers.IntegerField(allow_null=True)


@shows(
    Deploy,
    "id=uuid state reason reason_code actor owner source created_at ended_at cancelled_by links",
    links=deploy_links,
)
class DeployLineBody(Body):
    """A deploy in a list.

    state: PENDING and RUNNING have not ended.
    reason: Why it is not, or was not, good.
    """

    state = serializers.ChoiceField(DEPLOY_STATES)
    reason = MaskedText()
    reason_code = DetailCodeField(source="reason")
    source = MaskedObject()  # type: ignore[assignment]  # no field's own


@described
class DeployBody(DeployLineBody):
    """A deploy: its receipt, which is kept for good.

    stage: What it is doing; over once it has ended.
    diff: What the set changes, object by object.
    offers: What is left to a person.
    follows: Operations, begun at its end, that stop what the set stops and delete what it prunes.
    """

    stage = serializers.ChoiceField(["", *(str(one) for one in Stage)])
    canary = serializers.ListField(child=serializers.CharField())
    size = serializers.IntegerField()
    good = GoodForm()
    on_failure = serializers.ChoiceField([str(one) for one in OnFailure])
    preflight = serializers.BooleanField()
    diff = ObjectBody(many=True)
    waves = WaveBody(many=True)
    offers = OfferBody(many=True)
    follows = serializers.ListField(child=serializers.UUIDField())

    def to_representation(self, instance: Deploy) -> dict[str, Any]:
        """Return the deploy with its waves and offers."""
        whole = receipt(instance)
        instance.waves = whole.waves  # type: ignore[assignment]  # their number is a column
        instance.offers = whole.offers  # type: ignore[attr-defined]
        found: dict[str, Any] = super().to_representation(instance)
        return found
