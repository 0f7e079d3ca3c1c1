"""The batch bar: the last batches as bars; height shows the duration, colour the result."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from listeners.selectors import BatchBar
from queries.domain.counts import counted
from queries.domain.states import BAD_OUTCOMES
from queries.selectors.supervision.health import BATCHES
from queries.views.console.wording import duration_words

SLOT_WIDTH = 5  # units in the picture, as are all below
HEIGHT = 24
LOWEST = 3.0
#: Maximum number of slots for a gap in batch IDs, however many batches are missing.
WIDEST_GAP = 3


@dataclass(frozen=True, slots=True)
class BarSlot:
    """One slot in the picture."""

    x: int
    y: float
    height: float
    kind: str  # ok | late | empty | repaired | gap | failed
    title: str


def draw(
    batches: list[BatchBar], *, interval_ms: int | None, outcomes: Mapping[int, str]
) -> list[BarSlot]:
    """Return the bars, with the newest at the right edge.

    Heights grow with the square root of the duration, so that one long batch does not flatten the
    rest. `outcomes` are the outcomes of ended runs: a failed run's red mark follows its last batch.
    A gap in batch IDs is drawn as dotted slots.
    """
    slots = _slots(batches, interval_ms=interval_ms, outcomes=outcomes)[-BATCHES:]
    tallest = max([batch.duration_ms for batch in batches] + [1])
    first = BATCHES - len(slots)
    bars = []
    for position, (kind, duration_ms, title) in enumerate(slots):
        if kind in ("gap", "failed"):
            height = float(HEIGHT)
        else:
            height = max(LOWEST, round(HEIGHT * math.sqrt(duration_ms / tallest), 1))
        x = (first + position) * SLOT_WIDTH
        bars.append(BarSlot(x, round(HEIGHT - height, 1), height, kind, title))
    return bars


def _slots(
    batches: list[BatchBar], *, interval_ms: int | None, outcomes: Mapping[int, str]
) -> list[tuple[str, int, str]]:
    slots: list[tuple[str, int, str]] = []
    for index, batch in enumerate(batches):
        before = batches[index - 1] if index else None
        if before is not None and before.run != batch.run:
            slots += _end_of(before.run, outcomes)
        if batch.missing_before:
            title = f"{batch.missing_before} missing before batch {batch.batch}"
            slots += [("gap", 0, title)] * min(batch.missing_before, WIDEST_GAP)
        slots.append((_kind(batch, interval_ms), batch.duration_ms, _title(batch, interval_ms)))
    if batches:
        slots += _end_of(batches[-1].run, outcomes)
    return slots


def _end_of(run: int, outcomes: Mapping[int, str]) -> list[tuple[str, int, str]]:
    outcome = outcomes.get(run, "")
    if outcome in BAD_OUTCOMES:
        return [("failed", 0, f"This run ended: {outcome.replace('_', ' ').lower()}")]
    return []


def _kind(batch: BatchBar, interval_ms: int | None) -> str:
    if batch.repaired:
        return "repaired"
    if interval_ms and batch.duration_ms > interval_ms:
        return "late"
    return "ok" if batch.rows else "empty"


def _title(batch: BatchBar, interval_ms: int | None) -> str:
    parts = [
        f"Batch {batch.batch}",
        f"{batch.at:%H:%M:%S} UTC",
        duration_words(batch.duration_ms),
        counted(batch.rows, "row"),
    ]
    if interval_ms and batch.duration_ms > interval_ms:
        parts.append(f"longer than its {duration_words(interval_ms)} trigger")
    if batch.repaired:
        parts.append("repaired from the driver's memory")
    return " · ".join(parts)
