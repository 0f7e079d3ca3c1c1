"""Good, not yet, or bad: known outcomes at once, others at the deadline with what is waited for."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.deploys.course import Basis, ChangeOutcome, ObservedChange, SeenFailure, judge
from queries.domain.deploys.request import Good
from queries.domain.reasons import Because, Detail
from queries.domain.states import Phase

AT = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
RUNNING = ObservedChange(
    name="delays",
    restarted_at=AT,
    is_wanted=True,
    on_revision=True,
    phase=Phase.RUNNING,
    waits_for=Because(Detail.STEP, {"note": "Pending: waiting for a start slot"}),
    proven_at=AT + timedelta(minutes=1),
    batches=1,
)
STARTING = replace(RUNNING, phase=Phase.STARTING, proven_at=None, batches=0)
NEW = SeenFailure(Because(Detail.GROUP, {"group": "Division by zero."}), is_new=True)
KNOWN = replace(NEW, is_new=False)


LONGEST = timedelta(minutes=30)
SLOW = replace(STARTING, start_max=LONGEST, is_starting=True)
STARTED = replace(SLOW, is_starting=False, started_at=AT + timedelta(minutes=25))


def after(minutes: float, good: Good, seen: ObservedChange) -> tuple[ChangeOutcome, str]:
    found = judge(good, seen, now=AT + timedelta(minutes=minutes))
    return found.outcome, found.reason.text


@pytest.mark.parametrize(
    ("seen", "good"),
    [
        (RUNNING, {}),
        (replace(RUNNING, batches=0), {}),  # an idle trigger
        (replace(RUNNING, batches=3), {"batches": 3}),
        (RUNNING, {"minutes": 1}),
        (replace(RUNNING, failures=(KNOWN,)), {}),
        (replace(RUNNING, failures=(NEW,)), {"no_new_failures": False}),
        (replace(STARTING, batches=1), {"first_commit": False, "batches": 1}),
        (RUNNING, {"lag_not_worse": True}),  # nobody measures it
        (replace(RUNNING, lag_before=10, lag=10), {"lag_not_worse": True}),
        (
            replace(RUNNING, lag_before=10, lag=310, arrival_rate=10.0),
            {"lag_not_worse": True},
        ),
        (replace(RUNNING, phase=Phase.COMPLETED, is_wanted=False), {"batches": 99}),
    ],
)
def test_good(seen: ObservedChange, good: dict[str, Any]) -> None:
    assert after(2, Good(**good), seen) == (ChangeOutcome.OK, "")


@pytest.mark.parametrize(
    ("seen", "good", "reason"),
    [
        (STARTING, {}, "It has not committed a batch or had an idle trigger yet. Pending: "),
        (RUNNING, {"batches": 3}, "1 of 3 batches have committed."),
        (RUNNING, {"minutes": 3}, "It has been running for 1 of 3 minutes."),
        (STARTING, {"first_commit": False, "minutes": 3}, "It has not committed a batch"),
        (replace(RUNNING, lag_before=5), {"lag_not_worse": True}, "Its lag is not known"),
        (
            replace(RUNNING, lag_before=5, lag=6),
            {"lag_not_worse": True},
            "It is 6 records behind its sources, compared with 5 before the deploy.",
        ),
    ],
)
def test_what_only_time_can_tell_waits_and_is_bad_at_the_deadline(
    seen: ObservedChange, good: dict[str, Any], reason: str
) -> None:
    outcome, told = after(2, Good(**good, deadline_minutes=5), seen)
    assert outcome is ChangeOutcome.WAITS
    assert told.startswith(reason)
    late = replace(seen, proven_at=AT + timedelta(minutes=4)) if seen.proven_at else seen
    outcome, told = after(5, Good(**good, deadline_minutes=5), late)
    assert outcome is ChangeOutcome.BAD
    assert told.startswith("delays did not meet the conditions within 5 min: ")


@pytest.mark.parametrize(
    ("seen", "minutes", "outcome"),
    [
        (STARTING, 10, ChangeOutcome.BAD),
        (SLOW, 10, ChangeOutcome.WAITS),
        (SLOW, 39, ChangeOutcome.WAITS),
        (SLOW, 40, ChangeOutcome.BAD),  # the longest start, and the deploy's own time
        (STARTED, 34, ChangeOutcome.WAITS),
        (STARTED, 35, ChangeOutcome.BAD),
        (replace(STARTED, started_at=AT + timedelta(minutes=99)), 40, ChangeOutcome.BAD),
        (replace(STARTED, started_at=AT - timedelta(minutes=99)), 10, ChangeOutcome.BAD),
    ],
)
def test_a_start_that_advances_uses_none_of_the_time_until_the_deadline(
    seen: ObservedChange, minutes: float, outcome: ChangeOutcome
) -> None:
    assert after(minutes, Good(), seen)[0] is outcome


def test_what_it_was_held_for_before_the_restart_says_nothing() -> None:
    before = replace(STARTING, phase=Phase.FAILED, is_looked_at=False)
    assert after(0, Good(), before)[0] is ChangeOutcome.WAITS


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (replace(RUNNING, is_wanted=False), "delays was stopped in the meantime."),
        (replace(RUNNING, on_revision=False), "delays was changed or started on another revision"),
        (replace(RUNNING, failures=(KNOWN, NEW)), "delays failed: Division by zero."),
        (
            replace(STARTING, phase=Phase.FAILED, failures=(KNOWN,)),
            "delays failed: Division by zero.",
        ),
        (replace(STARTING, phase=Phase.ON_HOLD), "delays failed: Pending: "),
    ],
)
def test_what_is_known_is_told_at_once(seen: ObservedChange, reason: str) -> None:
    outcome, told = after(0, Good(), seen)
    assert outcome is ChangeOutcome.BAD
    assert told.startswith(reason)


SCRIPT = replace(RUNNING, basis=Basis.SCRIPT, batches=3)
DRIVER = replace(RUNNING, basis=Basis.DRIVER, batches=0)
FOUND = replace(RUNNING, basis=Basis.FOUND)
UNSTARTED = replace(FOUND, proven_at=None, batches=0, unstarted_since=AT)
BESIDE = replace(STARTING, basis=Basis.FAILURES)


@pytest.mark.parametrize(
    ("seen", "good"),
    [
        (SCRIPT, {"first_commit": False, "batches": 3}),  # of the query with the fewest
        (replace(SCRIPT, phase=Phase.COMPLETED, is_wanted=False), {"minutes": 3}),
        (replace(SCRIPT, lag_before=1), {"lag_not_worse": True}),  # its queries have lag
        (DRIVER, {"batches": 3}),  # its queries are asked
        (DRIVER, {"first_commit": False, "batches": 1}),
        (replace(DRIVER, failures=(KNOWN,)), {}),
        (FOUND, {}),
        (replace(UNSTARTED, unstarted_since=AT + timedelta(minutes=1)), {"batches": 3}),
        (BESIDE, {"batches": 3}),
        (replace(BESIDE, phase=Phase.FAILED, failures=(KNOWN,)), {}),
        (replace(BESIDE, is_wanted=False), {}),
    ],
)
def test_each_is_asked_for_what_it_can_show(seen: ObservedChange, good: dict[str, Any]) -> None:
    assert after(2, Good(**good), seen) == (ChangeOutcome.OK, "")


@pytest.mark.parametrize(
    ("seen", "good", "outcome", "reason"),
    [
        (replace(SCRIPT, proven_at=None), {"first_commit": False, "batches": 1}, "WAITS", "Pend"),
        (replace(SCRIPT, batches=2), {"batches": 3}, "WAITS", "2 of 3 batches"),
        (replace(SCRIPT, failures=(NEW,)), {}, "BAD", "delays failed: Division by zero."),
        (
            replace(SCRIPT, phase=Phase.COMPLETED, is_wanted=False, failures=(NEW,)),
            {},
            "BAD",
            "delays failed: Division by zero.",
        ),
        (replace(DRIVER, proven_at=None), {"first_commit": False, "batches": 1}, "WAITS", "Pend"),
        (replace(DRIVER, is_wanted=False), {}, "BAD", "delays was stopped"),
        (replace(UNSTARTED, unstarted_since=AT + timedelta(minutes=2)), {}, "WAITS", "Pend"),
        (replace(BESIDE, failures=(NEW,)), {}, "BAD", "delays failed: Division by zero."),
    ],
)
def test_what_each_waits_for_and_is_bad_by(
    seen: ObservedChange, good: dict[str, Any], outcome: str, reason: str
) -> None:
    found, told = after(2, Good(**good), seen)
    assert (found, told[: len(reason)]) == (outcome, reason)


@given(
    st.builds(
        Good,
        first_commit=st.just(True),
        batches=st.integers(0, 5),
        minutes=st.integers(0, 9),
        lag_not_worse=st.booleans(),
        no_new_failures=st.booleans(),
    ),
    st.builds(
        ObservedChange,
        name=st.just("delays"),
        restarted_at=st.just(AT),
        is_wanted=st.booleans(),
        on_revision=st.booleans(),
        phase=st.sampled_from(Phase),
        is_looked_at=st.booleans(),
        waits_for=st.just(Because(Detail.STEP, {"note": "…"})),
        proven_at=st.none() | st.just(AT),
        batches=st.integers(0, 9),
        failures=st.lists(st.sampled_from([NEW, KNOWN]), max_size=2).map(tuple),
        lag_before=st.none() | st.integers(0, 9),
        lag=st.none() | st.integers(0, 9),
        basis=st.sampled_from(Basis),
        unstarted_since=st.none() | st.just(AT),
    ),
)
def test_nothing_waits_beyond_the_deadline_and_all_that_is_not_good_has_a_reason(
    good: Good, seen: ObservedChange
) -> None:
    found = judge(good, seen, now=AT + timedelta(minutes=good.deadline_minutes))
    assert found.outcome in (ChangeOutcome.OK, ChangeOutcome.BAD)
    assert bool(found.reason) is (found.outcome is ChangeOutcome.BAD)
