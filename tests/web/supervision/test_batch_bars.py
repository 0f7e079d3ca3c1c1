"""The heartbeat bar shows how long batches took, which are missing, and where runs failed."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from listeners.selectors import BatchBar
from queries.domain.states import RunOutcome
from queries.selectors.supervision.health import BATCHES
from queries.views.supervision.charts import HEIGHT, SLOT_WIDTH, draw

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def batch(
    number: int,
    *,
    duration_ms: int = 1000,
    rows: int = 10,
    run: int = 1,
    missing: int = 0,
    repaired: bool = False,
) -> BatchBar:
    at = START + timedelta(seconds=5 * number)
    return BatchBar(number, at, duration_ms, rows, repaired, run, missing)


def kinds(batches: list[BatchBar], outcomes: dict[int, str] | None = None) -> list[str]:
    return [bar.kind for bar in draw(batches, interval_ms=5000, outcomes=outcomes or {})]


def test_a_batch_longer_than_its_trigger_is_late() -> None:
    assert kinds([batch(1), batch(2, duration_ms=5001)]) == ["ok", "late"]


def test_a_batch_without_rows_is_grey_and_a_repaired_one_is_hollow() -> None:
    assert kinds([batch(1, rows=0), batch(2, repaired=True)]) == ["empty", "repaired"]


def test_missing_batches_leave_a_gap_that_says_how_many() -> None:
    bars = draw([batch(1), batch(5, missing=3)], interval_ms=5000, outcomes={})
    assert [bar.kind for bar in bars] == ["ok", "gap", "gap", "gap", "ok"]
    assert bars[1].title == "3 missing before batch 5"


def test_a_gap_of_a_thousand_batches_does_not_push_the_rest_out() -> None:
    assert kinds([batch(1), batch(1001, missing=1000)]) == ["ok", "gap", "gap", "gap", "ok"]


def test_a_failed_run_leaves_a_red_mark_after_its_last_batch() -> None:
    assert kinds(
        [batch(1, run=1), batch(2, run=2)], {1: RunOutcome.FAILED, 2: RunOutcome.OPEN}
    ) == ["ok", "failed", "ok"]


def test_a_stopped_run_leaves_no_mark() -> None:
    assert kinds([batch(1, run=1), batch(2, run=2)], {1: RunOutcome.STOPPED}) == ["ok", "ok"]


def test_the_newest_batch_stands_at_the_right_edge() -> None:
    bars = draw([batch(1), batch(2)], interval_ms=None, outcomes={})
    assert bars[-1].x == (BATCHES - 1) * SLOT_WIDTH


def test_the_longest_batch_is_as_high_as_the_picture() -> None:
    bars = draw(
        [batch(1, duration_ms=100), batch(2, duration_ms=9000)], interval_ms=None, outcomes={}
    )
    assert bars[1].height == HEIGHT
    assert 0 < bars[0].height < HEIGHT


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**7), st.integers(0, 10**6), st.integers(1, 3), st.integers(0, 50)
        ),
        max_size=60,
    )
)
def test_bars_never_leave_the_picture(facts: list[tuple[int, int, int, int]]) -> None:
    batches = [
        batch(number, duration_ms=ms, rows=rows, run=run, missing=missing)
        for number, (ms, rows, run, missing) in enumerate(facts)
    ]
    bars = draw(batches, interval_ms=5000, outcomes={2: RunOutcome.FAILED})
    assert len(bars) <= BATCHES
    for bar in bars:
        assert 0 <= bar.x <= (BATCHES - 1) * SLOT_WIDTH
        assert bar.y >= 0
        assert bar.y + bar.height <= HEIGHT + 0.11
