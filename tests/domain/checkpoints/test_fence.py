"""A driver that gets no answer about its checkpoint has ended before another may start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.checkpoints.ownership import (
    CALL_S,
    LONGEST_WATCH_S,
    PAUSE_S,
    Former,
    fence_s,
    silence_s,
    takeover_s,
)


@given(st.floats(1, 60))
def test_the_old_driver_ends_before_a_takeover_and_after_more_than_a_pause(watch_s: float) -> None:
    assert silence_s(watch_s) + CALL_S < fence_s(watch_s)
    assert silence_s(watch_s) > 2 * watch_s + CALL_S
    assert fence_s(watch_s) > PAUSE_S


def test_the_times_at_the_default_interval() -> None:
    assert (fence_s(2), silence_s(2)) == (21, 16)


def _former(where: str, watch_s: float = 2, succeeded_s: float = 0) -> Former:
    installation, host = where.split("/")
    return Former(installation, host, watch_s, succeeded_s)


@pytest.mark.parametrize(
    ("formers", "wait_s"),
    [
        ([], 0),  # a new checkpoint
        ([_former("here/one")], 0),  # its exit was recorded before this driver was started
        ([_former("here/two")], 21),
        ([_former("here/pod:x")], 0),  # the kubelet reported its end
        ([_former("here/pod:y")], 21),  # it is gone, and nobody saw it end
        ([_former("there/pod:x")], 21),
        ([_former("there/one")], 21),
        ([_former("/")], 21),  # an object that cannot be read
        ([_former("there/two", watch_s=0)], 21),  # of an earlier release
        ([_former("there/two", watch_s=10)], 45),  # it asks less often than this one
        ([_former("there/two", watch_s=1)], 21),  # this one asks less often
        ([_former("there/two", watch_s=1e9)], fence_s(LONGEST_WATCH_S)),
        # A takeover that was stopped and started again: a part of the wait has passed.
        ([_former("here/one"), _former("there/two", succeeded_s=8)], 14),
        ([_former("here/one"), _former("there/two", succeeded_s=0.5)], 21),
        ([_former("here/one"), _former("there/two", succeeded_s=22)], 0),
        ([_former("there/two", succeeded_s=3), _former("here/two", succeeded_s=9)], 19),
    ],
)
def test_a_takeover_waits_until_a_driver_elsewhere_must_have_halted(
    formers: list[Former], wait_s: float
) -> None:
    assert takeover_s(formers, installation="here", ended={"one", "pod:x"}, watch_s=2) == wait_s
