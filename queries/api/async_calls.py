"""A query's async operators over REST: figures for their remote calls, and what limits them."""

from dataclasses import dataclass
from typing import Any

from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.derived import Body, serializer_for
from queries.api.methods import answers
from queries.domain.async_calls import AsyncOperator, Bound, OperatorAdvice
from queries.selectors.definitions import definitions
from queries.selectors.triggers.advice import async_operators


@dataclass(frozen=True, slots=True)
class AdvisedOperator:
    """An operator and the advice for it."""

    one: AsyncOperator
    says: OperatorAdvice

    @property
    def bound_name(self) -> str:
        """Return the name of the factor that limits the operator."""
        return self.says.bound.name.lower()


@serializer_for(
    AdvisedOperator,
    "one.name one.until one.batches one.calls one.retries failed=one.errors one.timeouts "
    "one.dead_letters "
    "calls_per_second=one.rate possible_per_second=one.possible latency_ms=one.percentiles_ms "
    "one.waited_ms one.allowed one.used one.cap one.keys one.cpu one.tasks bound says.evidence "
    "says.advice says.number",
)
class AsyncOperatorBody(Body):
    """An async operator, with figures from its newest batches that made calls.

    until: When the newest batch covered by the figures began.
    batches: Number of batches that the figures cover.
    calls: Finished attempts, successful or not.
    retries: Attempts after the first.
    failed: Failed attempts.
    timeouts: Failed attempts that timed out.
    dead_letters: Rows that the operator gave up on.
    calls_per_second: Total over all tasks in a batch.
    possible_per_second: Rate possible at this latency with all allowed calls in flight.
    latency_ms: Latency of calls: p50, p95, p99.
    waited_ms: Time spent waiting for a key: p50, p95, p99.
    allowed: Mean number of calls allowed in flight per task.
    used: Mean number of calls actually in flight per task.
    cap: The limiter's cap.
    keys: Mean number of distinct keys held per task.
    cpu: Share of a core that a task's Python worker uses.
    tasks: Mean number of tasks per batch.
    number: The suggested value, if any.
    """

    bound = serializers.ChoiceField([one.name.lower() for one in Bound], source="bound_name")


class QueryAsyncBody(Body):
    """A query's async operators; empty if it has none, or none of them has made a call yet."""

    operators = AsyncOperatorBody(many=True)


class QueryAsyncView(ApiView):
    """A query's async operators."""

    @answers("get_query_async", QueryAsyncBody)
    def get(self, name: str) -> dict[str, Any]:
        """Return the figures for a query's async operators, what limits them, and advice."""
        return {
            "operators": [
                AdvisedOperator(*pair) for pair in async_operators(definitions.query(name).pk)
            ]
        }
