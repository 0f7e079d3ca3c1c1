"""A query's thresholds over REST: their state, and how often one would have fired."""

from dataclasses import dataclass

from queries.api.alerts.bodies import Form
from queries.api.base import ApiView
from queries.api.derived import Body, described, form_for, serializer_for
from queries.api.methods import Sent, answers
from queries.domain.alerts.thresholds import Crossing, Replay, Span
from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import Threshold
from queries.domain.errors import Invalid
from queries.domain.validation.thresholds import threshold_problems
from queries.selectors.alerts.thresholds import Status, preview, threshold_status
from queries.selectors.definitions import definitions


@serializer_for(
    Status,
    "held.threshold.figure held.threshold.window_minutes held.rule judged.state "
    "current_value=judged.value judged.limit judged.text judged.seen_at",
    state=Crossing,
)
class ThresholdStatusBody(Body):
    """A threshold that applies to a query, and its state.

    rule: The alert rule that it comes from; empty for the query's own.
    state: "unknown" if there is not enough data.
    current_value: Over the window; null if there is not enough data.
    limit: Null for a factor if there were no batches last week.
    seen_at: Minute of the newest figure in the window; null if there are none.
    """


@dataclass(frozen=True, slots=True)
class QueryThresholds:
    """The thresholds that apply to one query."""

    thresholds: list[Status]


@serializer_for(QueryThresholds, "thresholds")
class QueryThresholdsBody(Body):
    """The thresholds that apply to a query: its own, and those of alert rules."""


@serializer_for(Span, "since until")
class SpanBody(Body):
    """A time without figures."""


@serializer_for(Replay, "crossed_at limit known_minutes minutes unknown text")
class ThresholdPreviewBody(Body):
    """When a threshold would have fired in the last 7 days, from stored figures.

    limit: Null for a factor if there were no batches last week.
    known_minutes: Minutes with enough figures.
    minutes: Minutes in the 7 days.
    unknown: The longest times without figures, at most 3.
    """


@described
@form_for(Threshold)
class ThresholdForm(Form):
    """A threshold, as in a query's definition.

    value: In the figure's unit; 0 if `factor` is set.
    factor: For batch_seconds only: the limit is this factor times last week's 95th percentile.
    """


class QueryThresholdsView(ApiView):
    """A query's thresholds."""

    @answers("get_query_thresholds", QueryThresholdsBody)
    def get(self, name: str) -> QueryThresholds:
        """Return the thresholds that apply to a query, each with its state."""
        return QueryThresholds(threshold_status(definitions.query(name), now=self.now))


class QueryThresholdPreviewView(ApiView):
    """The preview of a threshold."""

    writes_nothing = True

    @answers("preview_query_threshold", ThresholdPreviewBody, form=ThresholdForm)
    def post(self, name: str, sent: Sent) -> Replay:
        """Return when a threshold would have fired in the last 7 days; nothing is saved."""
        threshold: Threshold = parsed(Threshold.model_validate, sent)
        if problems := threshold_problems([threshold]):
            raise Invalid(problems)
        return preview(definitions.query(name), threshold, now=self.now)
