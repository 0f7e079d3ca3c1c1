"""Who may act for an application, and for a host's name: tables of everything that can be."""

from datetime import UTC, datetime, timedelta

import pytest

from queries.domain.hosts import (
    SILENT_AFTER,
    ClaimSeen,
    ClaimVerdict,
    Responsibility,
    judge_claim,
    memory_mb,
    responsibility,
)

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
FRESH = NOW - timedelta(seconds=2)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("movable", [False, True])
@pytest.mark.parametrize("placed_on", ["", "host-a"])
def test_what_is_placed_here_or_nowhere_is_ours(
    placed_on: str, movable: bool, silent: bool
) -> None:
    assert (
        responsibility(placed_on, "host-a", silent=silent, movable=movable) is Responsibility.OURS
    )


@pytest.mark.parametrize(
    ("silent", "movable", "whose"),
    [
        (False, False, Responsibility.THEIRS),
        (False, True, Responsibility.THEIRS),  # its host is there: it need not move
        (True, False, Responsibility.SILENT),
        (True, True, Responsibility.OURS),
    ],
)
def test_what_is_placed_elsewhere_is_theirs_until_its_host_is_silent(
    silent: bool, movable: bool, whose: Responsibility
) -> None:
    assert responsibility("host-b", "host-a", silent=silent, movable=movable) is whose


def _seen(claim: str = "other", at: datetime | None = FRESH, *, dead: bool = False) -> ClaimSeen:
    return ClaimSeen(claim, at, NOW, dead)


@pytest.mark.parametrize(
    ("first", "seen", "verdict"),
    [
        (_seen("", None), _seen("", None), ClaimVerdict.TAKE),  # a new name
        (_seen(""), _seen(""), ClaimVerdict.TAKE),  # given back a moment ago
        (_seen(at=None), _seen(at=None), ClaimVerdict.TAKE),
        (_seen(dead=True), _seen(dead=True), ClaimVerdict.TAKE),  # killed on this machine
        (_seen(), _seen(), ClaimVerdict.WATCH),  # dead or alive: it cannot be told yet
        (_seen(at=NOW - SILENT_AFTER), _seen(at=NOW - SILENT_AFTER), ClaimVerdict.WATCH),
        (
            _seen(at=NOW - SILENT_AFTER - timedelta(milliseconds=1)),
            _seen(at=NOW - SILENT_AFTER - timedelta(milliseconds=1)),
            ClaimVerdict.TAKE,
        ),
        (_seen(), _seen(at=NOW), ClaimVerdict.LEAVE),  # renewed while we looked on
        (_seen("", None), _seen(), ClaimVerdict.WATCH),  # taken by another just now
    ],
)
def test_a_name_is_taken_where_its_holder_is_gone_and_left_where_it_lives(
    first: ClaimSeen, seen: ClaimSeen, verdict: ClaimVerdict
) -> None:
    assert judge_claim(first, seen) is verdict


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("1g", 1024), ("512m", 512), ("2048", 2048), (" 2 GB ", 2048), ("1t", 1024 * 1024)]
    + [("1048576k", 1024), ("", 0), ("much", 0), ("1.5g", 0), ("-1g", 0), ("\u0663g", 0)],
)
def test_a_memory_size_of_spark_in_megabytes(text: str, megabytes: int) -> None:
    assert memory_mb(text) == megabytes
