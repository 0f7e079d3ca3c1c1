"""A task holds a bounded number of rows, however many pass through it."""

from tests.headgate_async.passage import BATCH, pass_through


def test_a_task_holds_no_more_than_its_bound() -> None:
    found = pass_through(20 * BATCH, hold=2048)
    # A slice is in the hand while it waits for room.
    assert 0 < found["most_held"] <= 2048 + 512
    assert found["highest_mb"] <= found["early_mb"] + 100
