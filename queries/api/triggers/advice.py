"""A query's trigger over REST: what its batches cost, what would change it, and its limits."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.derived import described, shows
from queries.api.schema import QuerySpecField, describe
from queries.api.supervision.query_bodies import Body
from queries.domain.errors import NotAllowed
from queries.domain.triggers.advice import Advice, Suggestion
from queries.domain.triggers.interval_model import Expected
from queries.domain.triggers.limits import Limit
from queries.selectors.query_lines import query_line
from queries.selectors.triggers.advice import query_advice, trigger_note


@described
class CostBody(Body):
    """What a batch costs: `fixed + per row × rows`, with the limits of 95 of 100 such fits.

    scatter_ms: Median distance of a batch from the line.
    least_rows: Of the batches that were measured.
    """

    fixed_ms = serializers.FloatField()
    fixed_low_ms = serializers.FloatField()
    fixed_high_ms = serializers.FloatField()
    per_row_ms = serializers.FloatField()
    per_row_low_ms = serializers.FloatField()
    per_row_high_ms = serializers.FloatField()
    scatter_ms = serializers.FloatField()
    least_rows = serializers.IntegerField()
    most_rows = serializers.IntegerField()


@shows(Expected, "interval_ms period_ms latency_ms low_ms high_ms busy throughput")
class ExpectedBody(Body):
    """What the model says of one interval.

    interval_ms: 0: as fast as possible.
    period_ms: Null: rows pile up.
    latency_ms: On average, from a row's arrival to its batch's end.
    high_ms: Null: without limit.
    busy: Share of the time in batches.
    throughput: Rows a second that fit the interval; null: not bounded.
    """


@shows(Suggestion, "key title brings costs doubts spec")
class SuggestionBody(Body):
    """One thing that would change it. Nothing is changed by reading it.

    doubts: What only a preflight can tell.
    spec: The definition with the change made; put it to have it.
    """

    key = serializers.ChoiceField(["interval", "async_progress", "real_time"])
    spec = QuerySpecField()


@shows(Limit, "key name means=costs standing reasons chosen")
class LimitBody(Body):
    """What one way to be triggered would say to the query.

    chosen: The definition has it.
    """


@described
class AdviceBody(Body):
    """All that can be said of a query's trigger, from its own measured batches.

    revision: The newest; suggestions change it.
    measured_revision: The one whose batches were measured; null: it has never run.
    batches: That were measured.
    untold: Why the batches do not tell a cost; else empty.
    rows_per_second: That it has read.
    checkpoint_tax: Share of walCommit and commitOffsets in its triggers.
    now: At its own interval.
    overload: Why no interval, or not its own, keeps up.
    outgrown: Why its cores are too few for its partitions.
    """

    revision = serializers.IntegerField()
    measured_revision = serializers.IntegerField(allow_null=True)
    batches = serializers.IntegerField()
    untold = serializers.CharField()
    cost = CostBody(allow_null=True)
    rows_per_second = serializers.FloatField(allow_null=True)
    checkpoint_tax = serializers.FloatField(allow_null=True)
    now = ExpectedBody(allow_null=True)
    curve = ExpectedBody(many=True)
    overload = serializers.CharField()
    outgrown = serializers.CharField()
    suggestions = SuggestionBody(many=True)
    triggers = LimitBody(many=True)


class QueryAdviceView(ApiView):
    """Advice on a query's trigger."""

    @describe(operation_id="get_query_advice", responses=AdviceBody)
    def get(self, request: Request, name: str) -> Response:
        """Return what a query's batches say of its trigger, and what would change it."""
        line = query_line(name, now=self.now)
        found = query_advice(line)
        if found is None:
            raise NotAllowed(
                f"The definition of {name} cannot be read any more.", way_out="Put a new one."
            )
        body = {
            "revision": found.revision,
            "measured_revision": found.measured,
            "outgrown": trigger_note(line),
            **_told(found.advice),
        }
        return Response(AdviceBody(body).data)


def _told(advice: Advice) -> dict[str, Any]:
    return {
        "batches": advice.batches,
        "untold": advice.untold,
        "cost": _cost(advice),
        "rows_per_second": advice.rate,
        "checkpoint_tax": advice.tax,
        "now": advice.now,
        "curve": advice.curve,
        "overload": advice.overload,
        "suggestions": advice.suggestions,
        "triggers": advice.limits,
    }


def _cost(advice: Advice) -> dict[str, Any] | None:
    cost = advice.cost
    if cost is None:
        return None
    low, high = cost.band(0)
    per_row = [line.per_row_ms for line in (cost.line, *cost.edges)]
    return {
        "fixed_ms": cost.line.fixed_ms,
        "fixed_low_ms": low,
        "fixed_high_ms": high,
        "per_row_ms": cost.line.per_row_ms,
        "per_row_low_ms": min(per_row),
        "per_row_high_ms": max(per_row),
        "scatter_ms": cost.scatter_ms,
        "least_rows": cost.least_rows,
        "most_rows": cost.most_rows,
    }
