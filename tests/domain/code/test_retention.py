"""What may be deleted of code and packages."""

from datetime import UTC, datetime, timedelta

import pytest

from queries.domain.code.archives import StoredFolder, forgotten

NOW = datetime(2026, 1, 31, tzinfo=UTC)
WEEK = NOW - timedelta(days=7)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


OLD, OLDER, NEW = (
    StoredFolder("old", days_ago(8)),
    StoredFolder("older", days_ago(30)),
    StoredFolder("new", NOW),
)


@pytest.mark.parametrize(
    ("contents", "named", "oldest_driver", "found"),
    [
        ([OLD], [], None, ["old"]),
        ([OLD], ["old"], None, []),  # something names it
        ([NEW], [], None, []),  # a start has just taken it
        ([OLD, OLDER], [], None, ["older", "old"]),
        ([OLD, OLDER], ["older"], None, ["old"]),
        ([StoredFolder("edge", WEEK)], [], None, []),
        ([OLD, OLDER], [], days_ago(20), ["older"]),  # the driver may have been launched with it
        ([OLD], [], days_ago(1), ["old"]),  # launched long after it was last taken
        ([OLD], [], days_ago(8) + timedelta(minutes=59), []),  # taken, and then given a row
        ([OLD], ["old"], days_ago(1), []),
        ([], [], None, []),
    ],
)
def test_what_nothing_names_and_nothing_uses_goes(
    contents: list[StoredFolder], named: list[str], oldest_driver: datetime | None, found: list[str]
) -> None:
    kept = forgotten(contents, named=named, before=WEEK, oldest_driver=oldest_driver)
    assert kept == found
