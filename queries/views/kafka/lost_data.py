"""What a failure for lost source data says is gone, and what the broker says of it now."""

from dataclasses import dataclass

from django.utils import timezone

from queries.domain.failures.diagnosis import Category, Classified
from queries.domain.kafka.losses import Gap, named_in
from queries.models.failures import Failure
from queries.selectors.kafka.lag import lag_of, records_in


@dataclass(frozen=True, slots=True)
class Lost:
    """Gaps with the records that they held; None: offsets are not records there."""

    gaps: list[tuple[Gap, int | None]]
    count: int
    now: bool  # according to the broker now; else as Spark named them when it failed


def lost_of(failure: Failure, advice: Classified) -> Lost | None:
    """Return what is gone; None for failures of another kind."""
    if advice.category is not Category.SOURCE_LOST or failure.run is None:
        return None
    lag = lag_of(failure.run.query, now=timezone.now())
    gaps = lag.gaps or named_in(f"{failure.root_cause}\n{failure.message}")
    return Lost(
        gaps=[(gap, records_in(lag, gap)) for gap in gaps],
        count=sum(gap.offsets for gap in gaps),
        now=bool(lag.gaps),
    )
