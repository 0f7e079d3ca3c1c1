"""Trigger advice over REST: what a query's batches cost, what would change that, and its limits."""

from dataclasses import dataclass
from typing import Any

from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.derived import Body, described, serializer_for
from queries.api.methods import answers
from queries.api.schema import QuerySpecField
from queries.domain.errors import NotAllowed
from queries.domain.triggers.advice import Suggestion, TriggerAdvice
from queries.domain.triggers.interval_model import Expected
from queries.domain.triggers.limits import TriggerFit
from queries.domain.triggers.slow_batches import BatchCause, CauseShare
from queries.selectors.query_lines import query_line
from queries.selectors.triggers.advice import QueryAdvice, query_advice, trigger_note
from queries.selectors.triggers.slow_batches import Explained, slow_batches


@described
class CostBody(Body):
    """Cost of a batch: `fixed + per row × rows`, with 95 % confidence limits.

    scatter_ms: Median distance of the batches from the fitted line.
    least_rows: The smallest number of rows in a measured batch.
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


@serializer_for(Expected, "interval_ms period_ms latency_ms low_ms high_ms busy throughput")
class ExpectedBody(Body):
    """The model's figures for one interval.

    interval_ms: 0 means as fast as possible.
    period_ms: Null if rows accumulate.
    latency_ms: Average time from a row's arrival to the end of its batch.
    high_ms: Null if there is no upper limit.
    busy: Share of time spent in batches.
    throughput: Maximum rows/s at this interval; null: unbounded.
    """


@serializer_for(Suggestion, "key title brings costs doubts spec")
class SuggestionBody(Body):
    """A suggested change. Reading it changes nothing.

    doubts: Questions that only a preflight can answer.
    spec: The definition with the change applied; PUT it to save it.
    """

    key = serializers.ChoiceField(["interval", "async_progress", "real_time"])
    spec = QuerySpecField()


@serializer_for(TriggerFit, "key name means=costs standing reasons chosen")
class LimitBody(Body):
    """Whether one kind of trigger supports the query.

    chosen: Whether the definition uses it.
    """


@serializer_for(CauseShare, "cause ms says=text")
class SlowCauseBody(Body):
    """One cause of a slow batch.

    ms: Its part of the batch.
    """

    cause = serializers.ChoiceField([one.value for one in BatchCause])


@serializer_for(Explained, "batch run at took_ms rows says=diagnosis.says causes")
class SlowBatchBody(Body):
    """A slow batch of the last day, and why it was slow.

    at: When its trigger started.
    says: The reason in one sentence; it also says if there is no stage data.
    causes: The largest causes, largest first.
    """

    causes = SlowCauseBody(many=True)


@dataclass(frozen=True, slots=True)
class AdvisedTrigger:
    """The advice on a query's trigger."""

    found: QueryAdvice
    outgrown: str
    slow_batches: list[Explained]

    @property
    def says(self) -> TriggerAdvice:
        """Return the advice."""
        return self.found.advice

    @property
    def cost(self) -> dict[str, Any] | None:
        """Return the cost of a batch, or None if it cannot be calculated."""
        if (cost := self.says.cost) is None:
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


@serializer_for(
    AdvisedTrigger,
    "found.revision measured_revision=found.measured found.measured_at says.batches says.untold "
    "cost rows_per_second=says.rate checkpoint_tax=says.tax says.log_cost says.now says.curve "
    "says.overload outgrown says.suggestions triggers=says.limits slow_batches",
)
class AdviceBody(Body):
    """Advice on a query's trigger, from its own measured batches.

    revision: The newest revision, which suggestions change.
    measured_revision: The revision whose batches were measured; null if none has run.
    measured_at: When the newest measured batch began.
    batches: Number of measured batches.
    untold: Why the cost cannot be calculated from the batches; otherwise empty.
    rows_per_second: Rows read per second.
    checkpoint_tax: Share of trigger time spent in walCommit and commitOffsets.
    log_cost: What would help if log entries on a storage cost much; otherwise empty.
    now: The figures at the query's own interval.
    overload: Why no interval, or not the current one, keeps up.
    outgrown: Why it has too few cores for its partitions.
    slow_batches: The slowest batches of the last day, slowest first, at most 5.
    """

    cost = CostBody(allow_null=True)
    slow_batches = SlowBatchBody(many=True)


class QueryAdviceView(ApiView):
    """Advice on a query's trigger."""

    @answers("get_query_advice", AdviceBody)
    def get(self, name: str) -> AdvisedTrigger:
        """Return trigger advice from a query's measured batches, with suggestions."""
        line = query_line(name, now=self.now)
        advice = query_advice(line)
        if advice is None:
            raise NotAllowed(
                f"The definition of {name} can no longer be read.", way_out="PUT a new definition."
            )
        slow = slow_batches(line.query.pk, now=self.now)
        return AdvisedTrigger(advice, trigger_note(line), slow)
