"""Five failures in ten minutes are one incident, for as long as they follow on each other."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.failures.crashes import FAILURES, WINDOW, CrashLoop, crash_loop

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def ago(*minutes: float) -> list[datetime]:
    return [NOW - timedelta(minutes=one) for one in minutes]


@pytest.mark.parametrize(
    ("minutes", "incident"),
    [
        ((), None),
        ((1, 2, 3, 4), None),  # four are not yet one
        ((0, 1, 2, 3, 4), (4, 0, 5)),
        ((1, 2, 3, 4, 5), (5, 1, 5)),
        ((0, 2.5, 5, 7.5, 10), (10, 0, 5)),  # within ten minutes, to the second
        ((0, 2.6, 5.2, 7.8, 10.4), None),  # five, but never within ten
        ((9, 9.5, 9.6, 9.8, 9.9), (9.9, 9, 5)),
        ((10.1, 10.2, 10.3, 10.4, 10.5), None),  # the last is too long ago: it is over
        # The ladder spreads them: five minutes apart they are still the same incident.
        ((1, 6, 11, 16, 21, 21.1, 21.2, 21.3, 21.4), (21.4, 1, 9)),
        # What was before a pause is another one.
        ((1, 2, 3, 4, 5, 20, 21), (5, 1, 5)),
        ((1, 2, 15, 16, 17, 18, 19), None),
        ((-1, -2, -3, -4, -5), None),  # nothing of what is to come
    ],
)
def test_an_incident_has_a_first_a_last_and_a_count(
    minutes: tuple[float, ...], incident: tuple[float, float, int] | None
) -> None:
    found = crash_loop(ago(*minutes), now=NOW)
    if incident is None:
        assert found is None
    else:
        first, last, count = incident
        assert found == CrashLoop(ago(first)[0], ago(last)[0], count)


MINUTES = st.lists(st.floats(0, 60, allow_nan=False), max_size=40)


@given(MINUTES)
def test_the_order_in_which_failures_are_given_makes_no_difference(minutes: list[float]) -> None:
    assert crash_loop(ago(*minutes), now=NOW) == crash_loop(ago(*sorted(minutes)), now=NOW)


@given(MINUTES)
def test_an_incident_never_tells_of_failures_that_were_not(minutes: list[float]) -> None:
    found = crash_loop(ago(*minutes), now=NOW)
    if found is None:
        return
    times = ago(*minutes)
    assert {found.first_at, found.last_at} <= set(times)
    assert found.count == sum(found.first_at <= at <= found.last_at for at in times)
    assert found.count >= FAILURES
    assert NOW - found.last_at <= WINDOW


@given(MINUTES, st.floats(0, 9))
def test_one_more_failure_never_ends_an_incident(minutes: list[float], more: float) -> None:
    before = crash_loop(ago(*minutes), now=NOW)
    after = crash_loop(ago(*minutes, more), now=NOW)
    if before is not None:
        assert after is not None
        assert after.count > before.count or more * 60 > (NOW - before.first_at).total_seconds()
