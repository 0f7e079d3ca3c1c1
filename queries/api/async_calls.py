"""The slow remote calls of a query over REST: what its async operators do and what bounds them."""

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.schema import describe
from queries.api.supervision.query_bodies import Body
from queries.domain.async_calls import Advice, Bound, Operator
from queries.selectors.async_calls import async_operators
from queries.selectors.definitions import definitions


class AsyncOperatorBody(Body):
    """One async operator over its newest batches with calls."""

    name = serializers.CharField()
    batches = serializers.IntegerField(help_text="Number of batches that the figures cover.")
    calls = serializers.IntegerField(help_text="Finished attempts, successful or not.")
    retries = serializers.IntegerField(help_text="Attempts after the first.")
    failed = serializers.IntegerField(help_text="Failed attempts.")
    timeouts = serializers.IntegerField(help_text="Of those, timed out.")
    dead_letters = serializers.IntegerField(help_text="Rows given up.")
    calls_per_second = serializers.FloatField(help_text="Total over all tasks of a batch.")
    possible_per_second = serializers.FloatField(
        help_text="Rate possible at this latency with all allowed calls in flight."
    )
    latency_ms = serializers.ListField(child=serializers.FloatField(), help_text="p50, p95, p99.")
    waited_ms = serializers.ListField(
        child=serializers.FloatField(), help_text="Wait for the key: p50, p95, p99."
    )
    allowed = serializers.FloatField(help_text="Calls allowed in flight per task, mean.")
    used = serializers.FloatField(help_text="Calls actually in flight per task, mean.")
    cap = serializers.IntegerField(help_text="The limiter's cap.")
    keys = serializers.FloatField(help_text="Distinct keys held per task, mean.")
    cpu = serializers.FloatField(help_text="Share of a core used by a Python worker.")
    tasks = serializers.FloatField(help_text="Per batch, mean.")
    bound = serializers.ChoiceField([one.name.lower() for one in Bound])
    evidence = serializers.CharField()
    advice = serializers.CharField()
    number = serializers.IntegerField(allow_null=True, help_text="The number to set, if any.")


class QueryAsyncBody(Body):
    """The async operators of a query; none where it has none, or made no call yet."""

    operators = AsyncOperatorBody(many=True)


class QueryAsyncView(ApiView):
    """What a query's async operators do."""

    @describe(operation_id="get_query_async", responses=QueryAsyncBody)
    def get(self, request: Request, name: str) -> Response:
        """Return the figures of a query's async operators, what bounds them, and advice."""
        found = async_operators(definitions.query(name).pk)
        return Response(QueryAsyncBody({"operators": [_body(*each) for each in found]}).data)


def _body(one: Operator, advice: Advice) -> dict[str, object]:
    same = (
        *("name", "batches", "calls", "retries", "timeouts", "dead_letters"),
        *("waited_ms", "allowed", "used", "cap", "keys", "cpu", "tasks"),
    )
    return {
        **{field: getattr(one, field) for field in same},
        "failed": one.errors,
        "calls_per_second": one.rate,
        "possible_per_second": one.possible,
        "latency_ms": one.percentiles_ms,
        "bound": advice.bound.name.lower(),
        "evidence": advice.evidence,
        "advice": advice.advice,
        "number": advice.number,
    }
