"""A sentence from an earlier reading says how old it is."""

from datetime import UTC, datetime, timedelta

import pytest

from queries.domain.readings import Dated, span

NOW = datetime(2026, 3, 2, 18, 35, tzinfo=UTC)
LIMIT = timedelta(seconds=30)


@pytest.mark.parametrize(
    ("age", "says"),
    [
        (timedelta(seconds=-2), "Topic n5 does not exist."),
        (LIMIT, "Topic n5 does not exist."),
        (timedelta(seconds=31), "As of 18:34:29 UTC, 31 s ago: Topic n5 does not exist."),
        (timedelta(minutes=9), "As of 18:26:00 UTC, 9 min ago: Topic n5 does not exist."),
        (timedelta(days=2), "As of 2026-02-28 18:35 UTC, 48 h ago: Topic n5 does not exist."),
    ],
)
def test_a_sentence_says_its_age_once_it_is_older_than_its_limit(age: timedelta, says: str) -> None:
    assert Dated("Topic n5 does not exist.", NOW - age).at(NOW, fresh_for=LIMIT) == says


def test_no_sentence_has_no_age() -> None:
    assert Dated("", NOW - timedelta(days=9)).at(NOW, fresh_for=LIMIT) == ""


def test_a_time_in_the_future_is_no_age() -> None:
    assert span(timedelta(seconds=-4)) == "0 s"
