"""The response body for an operation, returned by every verb."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from headgate_ground.masking import mask_text
from queries.api.derived import Body, described, serializer_for
from queries.api.links import operation_links
from queries.api.reasons import DetailCodeField
from queries.api.schema import MaskedObject
from queries.domain.states import Completion, OperationOutcome, StepState
from queries.models.history import Operation
from queries.selectors.supervision.history import completion

#: The choices of an operation's outcome; the API document names them after the operation.
OUTCOMES = [str(outcome) for outcome in OperationOutcome if outcome]


class MaskedText(serializers.CharField):
    """Text from a driver, with anything that looks like a secret masked."""

    def to_representation(self, value: Any) -> str:
        """Return the text, masked."""
        return mask_text(str(value))


class OutcomeField(serializers.ChoiceField):
    """How an operation or a step ended; null while it is in progress."""

    def to_representation(self, value: Any) -> Any:
        """Return the outcome or None."""
        return value or None


@described
class OperationStepBody(Body):
    """One step of a multi-step operation.

    detail: What it is waiting for, or why it failed.
    """

    name = serializers.CharField()
    state = serializers.ChoiceField([str(state) for state in StepState])
    at = serializers.CharField(allow_null=True)
    detail = MaskedText(default="")


@serializer_for(
    Operation,
    "id=uuid verb query=query.name application=application.name outcome detail detail_code actor "
    "created_at deadline ended_at failure=failure_id steps arguments result "
    "parent=parent.uuid cancellable links",
    links=operation_links,
)
class OperationBody(Body):
    """A request by a user or by CI, tracked to its end.

    outcome: Null while it is in progress.
    failure: The failure that ended it; null if there is none.
    arguments: The arguments of the verb.
    result: The results of its steps.
    parent: The operation of which this one is a step.
    cancellable: Whether it can be cancelled: it has not passed its point of no return.
    """

    outcome = OutcomeField(OUTCOMES, allow_null=True)
    detail = MaskedText()
    detail_code = DetailCodeField(source="detail")
    steps = OperationStepBody(many=True)
    arguments = MaskedObject()
    result = MaskedObject()

    def get_cancellable(self, operation: Operation) -> bool:
        """Return whether it can be cancelled now."""
        return operation.cancellable


@described
class OperationDetailBody(OperationBody):
    """An operation, and for a start or restart of one query how its work has ended.

    completion: Null while the query runs or is restarted automatically; COMPLETED if it has read
    all available data, as with the triggers available_now and once.
    """

    completion = serializers.SerializerMethodField()

    @extend_schema_field(  # type: ignore[untyped-decorator]
        serializers.ChoiceField([str(end) for end in Completion], allow_null=True)
    )
    def get_completion(self, operation: Operation) -> Completion | None:
        """Return how the query's work has ended; None while it goes on."""
        return completion(operation)


class OperationsBody(Body):
    """The operations that one request started."""

    results = OperationBody(many=True)
