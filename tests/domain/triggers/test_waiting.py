"""Who starves whom, and which pools mend it."""

from collections.abc import Mapping

import pytest

from queries.domain.triggers.cores import TaskShare, starved

PLAIN: Mapping[str, int] = {}


def share(
    query: str, percent: Mapping[str, float] = PLAIN, *, pool: str = "", since: float = 1_000
) -> TaskShare:
    """Return the share of a query that waited for others for these percentages of its time."""
    waited_for = {name: since * part / 100 for name, part in percent.items()}
    waited_s = sum(waited_for.values())
    return TaskShare(query, pool, since, 10.0, 0.5, waited_s, waited_for)


def told(
    *shares: TaskShare, mode: str = "FIFO", min_shares: Mapping[str, int] = PLAIN
) -> list[str]:
    found = starved(
        shares, scheduler_mode=mode, min_shares=min_shares, span="the last hour", application="app"
    )
    return [f"{one.says} {one.change}" for one in found]


def test_who_waits_little_is_not_told() -> None:
    assert told(share("light", {"heavy": 9.9}), share("heavy")) == []


def test_nothing_is_said_of_a_query_that_has_just_begun() -> None:
    assert told(share("light", {"heavy": 90}, since=299), share("heavy")) == []
    assert len(told(share("light", {"heavy": 90}, since=300), share("heavy"))) == 1


def test_under_fifo_pools_are_advised() -> None:
    assert told(share("light", {"heavy": 41}), share("heavy")) == [
        "light waited 41 % of its time in the last hour for heavy. Set the scheduler mode to "
        "FAIR, give light its own pool with a minimum share of 1, and put heavy into one pool "
        "without a minimum share. This takes effect when app restarts with all its queries."
    ]


def test_several_heavy_ones_go_into_one_pool_and_small_parts_are_left_out() -> None:
    [text] = told(share("light", {"a": 30, "b": 20, "c": 1}), share("a"), share("b"), mode="FAIR")
    assert "for a and b. Give light" in text
    assert "put a and b into one pool together" in text
    assert "FAIR" not in text


def test_a_pool_that_is_protected_already_needs_cores_or_shorter_tasks() -> None:
    shares = share("light", {"heavy": 50}, pool="quick"), share("heavy", pool="slow")
    [text] = told(*shares, mode="FAIR", min_shares={"quick": 1})
    assert "already has a minimum share" in text
    assert "shorter tasks in heavy" in text


@pytest.mark.parametrize(
    ("mode", "pool"), [("FIFO", "slow"), ("FAIR", "quick")], ids=["no pools", "a shared pool"]
)
def test_a_minimum_share_that_does_not_protect_is_no_protection(mode: str, pool: str) -> None:
    shares = share("light", {"heavy": 50}, pool="quick"), share("heavy", pool=pool)
    [text] = told(*shares, mode=mode, min_shares={"quick": 1})
    assert "its own pool" in text


def test_the_worst_comes_first_and_many_waits_are_at_most_all_the_time() -> None:
    worst = share("b", {"heavy": 180})
    assert worst.waiting == 1.0
    assert [text[0] for text in told(share("a", {"heavy": 20}), worst, share("heavy"))] == [
        "b",
        "a",
    ]


def test_a_query_that_did_not_run_waited_for_nobody() -> None:
    assert share("light", {"heavy": 3}, since=0).waiting == 0.0
    assert share("light").percent == 50


def test_many_small_waits_are_told_by_the_longest() -> None:
    others = dict.fromkeys("abcdefgh", 3.0) | {"i": 4.0}
    [text] = told(share("light", others))
    assert "for i." in text
