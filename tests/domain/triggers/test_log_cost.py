"""The cost of log entries on a storage is shown with what would help against it."""

import pytest

from queries.domain.triggers.batch_cost import FILE_MANAGER, OUR_FILES, LogFiles, log_cost

OURS = LogFiles(on_s3=True, manager="", fenced=True)
ANOTHER = LogFiles(on_s3=True, manager="org.example.Files", fenced=True)
UNFENCED = LogFiles(on_s3=True, manager="", fenced=False)
ELSEWHERE = LogFiles(on_s3=False, manager="org.example.Files", fenced=False)

LONGER = "With an interval of 10 seconds it would be 4%"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (OURS, LONGER),
        (LogFiles(on_s3=True, manager=OUR_FILES, fenced=True), LONGER),
        (ELSEWHERE, LONGER),
        (ANOTHER, f"{FILE_MANAGER} is org.example.Files. Headgate's file manager writes each"),
        (UNFENCED, "Spark's file manager may write them. Headgate's file manager writes each"),
    ],
)
def test_what_helps_depends_on_who_writes_the_entries(files: LogFiles, says: str) -> None:
    told = log_cost(files, 400, 800, 1000)
    assert told.startswith("The log entries of a batch take 400 ms, 40% of the time.")
    assert says in told
    assert ("not with this query" in told) is (files in (ANOTHER, UNFENCED))


@pytest.mark.parametrize("files", [OURS, ANOTHER, UNFENCED, ELSEWHERE])
def test_nothing_is_told_if_they_take_little_of_the_time(files: LogFiles) -> None:
    assert log_cost(files, 400, 800, 10_000) == ""
    assert log_cost(files, 20, 800, 0) == ""


def test_batches_that_take_longer_than_the_interval_are_what_the_share_is_of() -> None:
    assert "take 400 ms, 10% of the time" in log_cost(OURS, 400, 4000, 1000)


def test_no_interval_is_named_if_none_is_long_enough() -> None:
    told = log_cost(OURS, 100_000, 200_000, 1000)
    assert told == "The log entries of a batch take 100 s, 50% of the time."
