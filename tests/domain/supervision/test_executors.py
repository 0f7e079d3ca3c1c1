"""An executor lost and found again is told in a sentence, for as long as it is news."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from queries.domain.protocol import ExecutorSeen, Status
from queries.domain.supervision.executors import Executors, executors

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


def told(number: int, *, added_s: float, removed_s: float | None = None) -> dict[str, Any]:
    """Return an executor that came and went so many seconds ago."""
    return asdict(
        ExecutorSeen(
            id=str(number),
            address=f"10.0.0.{number}:7000",
            cores=2,
            active=removed_s is None,
            added_at=(NOW - timedelta(seconds=added_s)).isoformat(),
            removed_at=None
            if removed_s is None
            else (NOW - timedelta(seconds=removed_s)).isoformat(),
            reason="" if removed_s is None else "worker lost.",
        )
    )


def test_a_driver_on_one_machine_has_none() -> None:
    assert executors([], now=NOW) == Executors()


def test_cores_are_those_at_work() -> None:
    seen = executors([told(0, added_s=900), told(1, added_s=900, removed_s=700)], now=NOW)
    assert (seen.cores, len(seen.active), len(seen.lost)) == (2, 1, 1)


def test_an_old_loss_is_no_news() -> None:
    assert executors([told(1, added_s=900, removed_s=601)], now=NOW).news == ""


def test_a_loss_says_which_when_why_and_what_is_left() -> None:
    seen = executors([told(0, added_s=900), told(1, added_s=900, removed_s=60)], now=NOW)
    assert seen.news == (
        "Executor 1 on 10.0.0.1:7000 was lost at 02:59:00 UTC (worker lost); not replaced yet. 1 "
        "with 2 cores are active."
    )


def test_one_found_again_is_said_too() -> None:
    seen = executors(
        [
            told(0, added_s=900),
            told(3, added_s=50),
            told(2, added_s=900, removed_s=55),
            told(1, added_s=900, removed_s=60),
        ],
        now=NOW,
    )
    assert seen.news == (
        "2 executors were lost at 02:59:00 UTC; 1 replaced. 2 with 4 cores are active."
    )


def test_a_status_carries_them_there_and_back() -> None:
    one = ExecutorSeen("1", "here:1", 2, True, NOW.isoformat())
    status = Status(epoch=1, applied_generation=1, at=NOW.isoformat(), executors=(one,))
    assert Status.loads(status.dumps()) == status
