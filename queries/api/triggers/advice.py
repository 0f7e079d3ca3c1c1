"""A query's trigger over REST: what its batches cost, what would change it, and its limits."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.schema import QuerySpecField, describe
from queries.api.supervision.query_bodies import Body
from queries.domain.errors import NotAllowed
from queries.domain.triggers.advice import Advice
from queries.domain.triggers.limits import Standing
from queries.selectors.query_lines import query_line
from queries.selectors.triggers.advice import query_advice, trigger_note


class CostBody(Body):
    """Cost of a batch: `fixed + per row × rows`, with the limits of 95 of 100 such fits."""

    fixed_ms = serializers.FloatField()
    fixed_low_ms = serializers.FloatField()
    fixed_high_ms = serializers.FloatField()
    per_row_ms = serializers.FloatField()
    per_row_low_ms = serializers.FloatField()
    per_row_high_ms = serializers.FloatField()
    scatter_ms = serializers.FloatField(
        help_text="Median distance of a batch from the fitted line."
    )
    least_rows = serializers.IntegerField(help_text="Of the measured batches.")
    most_rows = serializers.IntegerField()


class ExpectedBody(Body):
    """The model's figures for one interval."""

    interval_ms = serializers.FloatField(help_text="0: as fast as possible.")
    period_ms = serializers.FloatField(allow_null=True, help_text="Null: rows accumulate.")
    latency_ms = serializers.FloatField(
        allow_null=True, help_text="On average, from a row's arrival to its batch's end."
    )
    low_ms = serializers.FloatField(allow_null=True)
    high_ms = serializers.FloatField(allow_null=True, help_text="Null: no limit.")
    busy = serializers.FloatField(allow_null=True, help_text="Share of the time in batches.")
    throughput = serializers.FloatField(
        allow_null=True, help_text="Rows/s that fit the interval; null: unbounded."
    )


class SuggestionBody(Body):
    """A suggested change. Reading it changes nothing."""

    key = serializers.ChoiceField(["interval", "async_progress", "real_time"])
    title = serializers.CharField()
    brings = serializers.CharField()
    costs = serializers.CharField()
    doubts = serializers.ListField(
        child=serializers.CharField(), help_text="What only a preflight can show."
    )
    spec = QuerySpecField(help_text="The definition with the change applied; PUT it to save it.")


class LimitBody(Body):
    """Whether one kind of trigger supports the query."""

    key = serializers.CharField()
    name = serializers.CharField()
    means = serializers.CharField(source="costs")
    standing = serializers.ChoiceField([str(each) for each in Standing])
    reasons = serializers.ListField(child=serializers.CharField())
    chosen = serializers.BooleanField(help_text="Used by the definition.")


class AdviceBody(Body):
    """Advice on a query's trigger, from its own measured batches."""

    revision = serializers.IntegerField(help_text="The newest revision, which suggestions change.")
    measured_revision = serializers.IntegerField(
        allow_null=True,
        help_text="The revision whose batches were measured; null: it has never run.",
    )
    batches = serializers.IntegerField(help_text="Number of measured batches.")
    untold = serializers.CharField(help_text="Why the batches do not show a cost; otherwise empty.")
    cost = CostBody(allow_null=True)
    rows_per_second = serializers.FloatField(allow_null=True, help_text="Formats of the sources.")
    checkpoint_tax = serializers.FloatField(
        allow_null=True, help_text="Share of walCommit and commitOffsets in its triggers."
    )
    now = ExpectedBody(allow_null=True, help_text="At its own interval.")
    curve = ExpectedBody(many=True)
    overload = serializers.CharField(help_text="Why no interval, or not the current one, keeps up.")
    outgrown = serializers.CharField(help_text="Why it has too few cores for its partitions.")
    suggestions = SuggestionBody(many=True)
    triggers = LimitBody(many=True)


class QueryAdviceView(ApiView):
    """Advice on a query's trigger."""

    @describe(operation_id="get_query_advice", responses=AdviceBody)
    def get(self, request: Request, name: str) -> Response:
        """Return what a query's batches show about its trigger, with suggestions."""
        line = query_line(name, now=self.now)
        found = query_advice(line)
        if found is None:
            raise NotAllowed(
                f"The definition of {name} can no longer be read.", way_out="PUT a new one."
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
