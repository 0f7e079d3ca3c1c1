"""A batch that no run of ours can have made is somebody else's; what may be ours never is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.checkpoints.batches import LoggedBatch, RunSpan, foreign_batches

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def log(**at_s: float) -> list[LoggedBatch]:
    """Return batches by number ("b7"), each begun so many seconds ago."""
    return [LoggedBatch(int(name[1:]), ago(seconds)) for name, seconds in at_s.items()]


def numbers(found: list[LoggedBatch]) -> list[int]:
    return [one.number for one in found]


ENDED = RunSpan(ago(1000), ago(500))
OPEN = RunSpan(ago(300), None, reported=10, heartbeat_at=ago(1))


@pytest.mark.parametrize(
    ("logged", "runs", "foreign"),
    [
        (log(b3=700, b4=501), [ENDED], []),
        (log(b3=700, b4=499.5), [ENDED], []),  # an end is recorded after it has happened
        (log(b3=700, b4=450, b5=400), [ENDED], [4, 5]),  # while nothing of ours ran
        (log(b4=400, b5=200), [ENDED, OPEN], [4]),
        (log(b4=1100), [ENDED], [4]),  # between two of our runs, or before this one
        (log(b10=250, b11=200, b12=150), [OPEN], [12]),  # 11 may be its batch in flight
        (log(b12=150), [RunSpan(ago(300), None, 10, ago(100))], []),  # its report may be coming
        (log(b12=150), [RunSpan(ago(300), None, 10, None)], []),  # nothing is heard of it
        (log(b10=250, b11=200), [RunSpan(ago(300), None, None, ago(1))], [11]),
        (log(b12=150), [OPEN, RunSpan(ago(300), None, 12, ago(1))], []),  # one of them made it
        (log(b12=-50), [], []),  # a clock ahead of ours proves nothing
        ([], [], []),
    ],
)
def test_what_no_run_made_is_foreign(
    logged: list[LoggedBatch], runs: list[RunSpan], foreign: list[int]
) -> None:
    assert numbers(foreign_batches(logged, runs, since=LONG_AGO, now=NOW)) == foreign


def test_what_was_there_before_us_is_history() -> None:
    logged = log(b1=400, b2=300, b3=100)
    assert numbers(foreign_batches(logged, [], since=ago(300), now=NOW)) == [3]


@given(
    began=st.integers(0, 10_000),
    lived=st.integers(0, 10_000),
    at=st.lists(st.integers(0, 10_000), max_size=8),
    reported=st.none() | st.integers(0, 8),
    heartbeat_at=st.none() | st.integers(0, 20_000),
)
def test_a_run_that_has_reported_all_its_batches_is_never_accused(
    began: int, lived: int, at: list[int], reported: int | None, heartbeat_at: int | None
) -> None:
    start = LONG_AGO + timedelta(seconds=began)
    times = sorted(start + timedelta(seconds=min(second, lived)) for second in at)
    logged = [LoggedBatch(number, moment) for number, moment in enumerate(times)]
    newest = len(logged) - 1 if logged else None
    run = RunSpan(
        began=start,
        ended=start + timedelta(seconds=lived),
        reported=newest if reported is None or newest is None else max(newest - 1, 0),
        heartbeat_at=None if heartbeat_at is None else start + timedelta(seconds=heartbeat_at),
    )
    assert foreign_batches(logged, [run], since=LONG_AGO - timedelta(days=1), now=NOW) == []
