"""A driver that gets no answer about its checkpoint has ended before another may start."""

from hypothesis import given
from hypothesis import strategies as st

from queries.domain.checkpoints.fence import CALL_S, PAUSE_S, fence_s, silence_s


@given(st.floats(1, 60))
def test_the_old_driver_ends_before_a_takeover_and_after_more_than_a_pause(watch_s: float) -> None:
    assert silence_s(watch_s) + CALL_S < fence_s(watch_s)
    assert silence_s(watch_s) > 2 * watch_s + CALL_S
    assert fence_s(watch_s) > PAUSE_S


def test_the_times_at_the_default_interval() -> None:
    assert (fence_s(2), silence_s(2)) == (21, 16)
