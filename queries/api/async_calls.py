"""The slow remote calls of a query over REST: what its async operators do and what bounds them."""

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.derived import described
from queries.api.schema import describe
from queries.api.supervision.query_bodies import Body
from queries.domain.async_calls import Advice, Bound, Operator
from queries.selectors.async_calls import async_operators
from queries.selectors.definitions import definitions


@described
class AsyncOperatorBody(Body):
    """One async operator over its newest batches with calls.

    batches: That the figures are of.
    calls: Tries that ended, well or not.
    retries: Tries after the first.
    failed: Tries that failed.
    timeouts: Of them, by time-out.
    dead_letters: Rows that were given up.
    calls_per_second: All tasks of a batch side by side.
    possible_per_second: What the latency allows with all allowed calls in flight.
    latency_ms: p50, p95, p99.
    waited_ms: For its key: p50, p95, p99.
    allowed: Calls that may be in flight in a task, mean.
    used: Calls really in flight in a task, mean.
    cap: The limiter's cap.
    keys: Distinct keys that a task held, mean.
    cpu: Share of a core that a Python worker took.
    tasks: In a batch, mean.
    number: The number to set, if any.
    """

    name = serializers.CharField()
    batches = serializers.IntegerField()
    calls = serializers.IntegerField()
    retries = serializers.IntegerField()
    failed = serializers.IntegerField()
    timeouts = serializers.IntegerField()
    dead_letters = serializers.IntegerField()
    calls_per_second = serializers.FloatField()
    possible_per_second = serializers.FloatField()
    latency_ms = serializers.ListField(child=serializers.FloatField())
    waited_ms = serializers.ListField(child=serializers.FloatField())
    allowed = serializers.FloatField()
    used = serializers.FloatField()
    cap = serializers.IntegerField()
    keys = serializers.FloatField()
    cpu = serializers.FloatField()
    tasks = serializers.FloatField()
    bound = serializers.ChoiceField([one.name.lower() for one in Bound])
    evidence = serializers.CharField()
    advice = serializers.CharField()
    number = serializers.IntegerField(allow_null=True)


class QueryAsyncBody(Body):
    """The async operators of a query; none where it has none, or made no call yet."""

    operators = AsyncOperatorBody(many=True)


class QueryAsyncView(ApiView):
    """What a query's async operators do."""

    @describe(operation_id="get_query_async", responses=QueryAsyncBody)
    def get(self, request: Request, name: str) -> Response:
        """Return what the async operators of a query do, what bounds them, and advice."""
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
