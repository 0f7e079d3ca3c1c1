"""What a page offers to do about a failure, the best first."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.failures.categories import Category
from queries.domain.failures.next_steps import Act, Seen, ways
from queries.domain.failures.subjects import Subject
from queries.domain.states import Phase, Policy

BROKEN = Seen(
    category=Category.DATA,
    phase=Phase.BROKEN,
    wanted=True,
    batch=7,
    revision=3,
    newest=3,
    good=3,
)


def acts(seen: Seen) -> list[Act]:
    return [way.act for way in ways(seen)]


@pytest.mark.parametrize(
    ("category", "offered"),
    [
        (Category.DATA, [Act.EDIT, Act.REWIND]),
        (Category.USER_CODE, [Act.EDIT, Act.REWIND]),
        (Category.CONFIGURATION, [Act.EDIT]),
        (Category.PLAN, [Act.EDIT]),
        (Category.CULPRIT, [Act.EDIT]),
        (Category.INCOMPATIBLE, [Act.EDIT, Act.RESET]),
        (Category.CORRUPTION, [Act.REWIND, Act.RESET]),
        (Category.DAMAGED, [Act.REWIND, Act.RESET]),
        (Category.CONNECTION, []),
        (Category.MEMORY, []),
        (Category.SOURCE_LOST, []),  # going on and resetting are offered with the lost offsets
        (Category.OWNERSHIP, []),  # taking over is
    ],
)
def test_what_is_offered_follows_the_category(category: Category, offered: list[Act]) -> None:
    last = [Act.AGAIN, Act.STOP]
    if category.policy is Policy.FATAL:  # a restart cannot fix it
        last.reverse()
    found = ways(replace(BROKEN, category=category))
    assert [way.act for way in found] == [*offered, *last]
    hopeless = [way.act for way in found if not way.helps]
    assert hopeless == (last if category.policy is Policy.FATAL else [])


def test_a_start_on_another_revision_may_help() -> None:
    (first, *_) = ways(replace(BROKEN, category=Category.SOURCE_LOST, newest=4))
    assert (first.act, first.helps) == (Act.AGAIN, True)


@pytest.mark.parametrize(
    ("category", "offered"),
    [
        (Category.PLAN, [Act.EDIT, Act.BACK]),
        (Category.INCOMPATIBLE, [Act.BACK, Act.EDIT, Act.RESET]),
        (Category.CONNECTION, []),
    ],
)
def test_the_revision_that_ran_well_is_offered_where_a_newer_one_fails(
    category: Category, offered: list[Act]
) -> None:
    seen = replace(BROKEN, category=category, good=2)
    found = ways(seen)
    last = {Act.AGAIN, Act.STOP}
    assert [way.act for way in found if way.act not in last] == offered
    assert [way.number for way in found if way.act is Act.BACK] == [2] * (Act.BACK in offered)


def test_a_revision_that_never_ran_well_is_nowhere_to_go_back_to() -> None:
    assert Act.BACK not in acts(replace(BROKEN, good=None))


def test_a_rewind_is_to_the_batch_before_and_not_where_there_is_none() -> None:
    (rewind,) = (way for way in ways(BROKEN) if way.act is Act.REWIND)
    assert (rewind.number, rewind.words) == (6, "Rewind to batch 6")
    assert Act.REWIND not in acts(replace(BROKEN, batch=None))
    assert Act.REWIND not in acts(replace(BROKEN, batch=0))


def test_a_start_says_which_revision_it_takes_where_that_is_another_one() -> None:
    (start,) = (way for way in ways(replace(BROKEN, newest=4)) if way.act is Act.AGAIN)
    assert "on revision 4" in start.leads_to
    (start,) = (way for way in ways(BROKEN) if way.act is Act.AGAIN)
    assert "revision" not in start.leads_to


def test_a_query_that_waits_for_nobody_is_not_started_from_here() -> None:
    assert acts(replace(BROKEN, phase=Phase.STARTING)) == [Act.EDIT, Act.REWIND, Act.STOP]


def test_a_stopped_query_can_be_mended_and_started() -> None:
    stopped = replace(BROKEN, phase=Phase.STOPPED, wanted=False)
    assert acts(stopped) == [Act.EDIT, Act.REWIND, Act.AGAIN]
    assert acts(replace(stopped, category=Category.CONNECTION)) == []


@given(
    st.builds(
        Seen,
        category=st.sampled_from(Category),
        phase=st.sampled_from(Phase),
        wanted=st.booleans(),
        batch=st.none() | st.integers(0, 99),
        revision=st.integers(1, 5),
        newest=st.integers(1, 5),
        good=st.none() | st.integers(1, 5),
    )
)
def test_no_act_is_offered_twice_and_none_for_a_query_that_runs(seen: Seen) -> None:
    found = acts(seen)
    assert len(found) == len(set(found))
    assert seen.phase is not Phase.RUNNING or not found
    assert all(way.words and way.leads_to.endswith(".") for way in ways(seen))


def test_the_acts_for_a_query_of_a_script_are_its_applications() -> None:
    of_script = replace(BROKEN, category=Category.DATA, subject=Subject.SCRIPT)
    words = [way.words for way in ways(of_script)]
    assert words == [
        "Edit the application",
        "Rewind to batch 6",
        "Restart the application",
        "Stop the application",
    ]
    unwanted = replace(of_script, phase=Phase.STARTING, wanted=False)
    assert [way.act for way in ways(unwanted)] == [Act.EDIT, Act.REWIND]
