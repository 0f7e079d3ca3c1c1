"""What a page offers to do about a failure, the best first."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.failures.categories import Category, FailureSubject
from queries.domain.failures.next_steps import ActionKind, FailedRun, offered_actions
from queries.domain.states import Phase, Policy

ON_HOLD = FailedRun(
    category=Category.DATA,
    phase=Phase.ON_HOLD,
    wanted=True,
    batch=7,
    revision=3,
    newest=3,
    good=3,
)


def acts(seen: FailedRun) -> list[ActionKind]:
    return [way.act for way in offered_actions(seen)]


@pytest.mark.guarantee("G-RESTART-4")
@pytest.mark.parametrize(
    ("category", "offered"),
    [
        (Category.DATA, [ActionKind.EDIT, ActionKind.REWIND]),
        (Category.USER_CODE, [ActionKind.EDIT, ActionKind.REWIND]),
        (Category.CONFIGURATION, [ActionKind.EDIT]),
        (Category.PLAN, [ActionKind.EDIT]),
        (Category.CULPRIT, [ActionKind.EDIT]),
        (Category.INCOMPATIBLE, [ActionKind.EDIT, ActionKind.RESET]),
        (Category.CORRUPTION, [ActionKind.REWIND, ActionKind.RESET]),
        (Category.DAMAGED, [ActionKind.REWIND, ActionKind.RESET]),
        (Category.CONNECTION, []),
        (Category.MEMORY, []),
        (Category.SOURCE_LOST, []),  # going on and resetting are offered with the lost offsets
        (Category.OWNERSHIP, []),  # taking over is
    ],
)
def test_what_is_offered_follows_the_category(
    category: Category, offered: list[ActionKind]
) -> None:
    last = [ActionKind.AGAIN, ActionKind.STOP]
    if category.policy is Policy.FATAL:  # a restart cannot fix it
        last.reverse()
    found = offered_actions(replace(ON_HOLD, category=category))
    assert [way.act for way in found] == [*offered, *last]
    hopeless = [way.act for way in found if not way.helps]
    assert hopeless == (last if category.policy is Policy.FATAL else [])


def test_a_start_on_another_revision_may_help() -> None:
    (first, *_) = offered_actions(replace(ON_HOLD, category=Category.SOURCE_LOST, newest=4))
    assert (first.act, first.helps) == (ActionKind.AGAIN, True)


@pytest.mark.parametrize(
    ("category", "offered"),
    [
        (Category.PLAN, [ActionKind.EDIT, ActionKind.BACK]),
        (Category.INCOMPATIBLE, [ActionKind.BACK, ActionKind.EDIT, ActionKind.RESET]),
        (Category.CONNECTION, []),
    ],
)
def test_the_revision_that_ran_well_is_offered_where_a_newer_one_fails(
    category: Category, offered: list[ActionKind]
) -> None:
    seen = replace(ON_HOLD, category=category, good=2)
    found = offered_actions(seen)
    last = {ActionKind.AGAIN, ActionKind.STOP}
    assert [way.act for way in found if way.act not in last] == offered
    assert [way.number for way in found if way.act is ActionKind.BACK] == [2] * (
        ActionKind.BACK in offered
    )


def test_a_revision_that_never_ran_well_is_nowhere_to_go_back_to() -> None:
    assert ActionKind.BACK not in acts(replace(ON_HOLD, good=None))


def test_a_rewind_is_to_the_batch_before_and_not_where_there_is_none() -> None:
    (rewind,) = (way for way in offered_actions(ON_HOLD) if way.act is ActionKind.REWIND)
    assert (rewind.number, rewind.words) == (6, "Rewind to batch 6")
    assert ActionKind.REWIND not in acts(replace(ON_HOLD, batch=None))
    assert ActionKind.REWIND not in acts(replace(ON_HOLD, batch=0))


def test_a_start_says_which_revision_it_takes_where_that_is_another_one() -> None:
    (start,) = (
        way for way in offered_actions(replace(ON_HOLD, newest=4)) if way.act is ActionKind.AGAIN
    )
    assert "on revision 4" in start.leads_to
    (start,) = (way for way in offered_actions(ON_HOLD) if way.act is ActionKind.AGAIN)
    assert "revision" not in start.leads_to


def test_a_query_that_waits_for_nobody_is_not_started_from_here() -> None:
    assert acts(replace(ON_HOLD, phase=Phase.STARTING)) == [
        ActionKind.EDIT,
        ActionKind.REWIND,
        ActionKind.STOP,
    ]


def test_a_stopped_query_can_be_mended_and_started() -> None:
    stopped = replace(ON_HOLD, phase=Phase.STOPPED, wanted=False)
    assert acts(stopped) == [ActionKind.EDIT, ActionKind.REWIND, ActionKind.AGAIN]
    assert acts(replace(stopped, category=Category.CONNECTION)) == []


@given(
    st.builds(
        FailedRun,
        category=st.sampled_from(Category),
        phase=st.sampled_from(Phase),
        wanted=st.booleans(),
        batch=st.none() | st.integers(0, 99),
        revision=st.integers(1, 5),
        newest=st.integers(1, 5),
        good=st.none() | st.integers(1, 5),
    )
)
def test_no_act_is_offered_twice_and_none_for_a_query_that_runs(seen: FailedRun) -> None:
    found = acts(seen)
    assert len(found) == len(set(found))
    assert seen.phase is not Phase.RUNNING or not found
    assert all(way.words and way.leads_to.endswith(".") for way in offered_actions(seen))


def test_the_acts_for_a_query_of_a_script_are_its_applications() -> None:
    of_script = replace(ON_HOLD, category=Category.DATA, subject=FailureSubject.SCRIPT)
    words = [way.words for way in offered_actions(of_script)]
    assert words == [
        "Edit the application",
        "Rewind to batch 6",
        "Restart the application",
        "Stop the application",
    ]
    unwanted = replace(of_script, phase=Phase.STARTING, wanted=False)
    assert [way.act for way in offered_actions(unwanted)] == [ActionKind.EDIT, ActionKind.REWIND]
