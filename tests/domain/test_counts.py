"""A number and its noun agree."""

import pytest

from queries.domain.readings import counted


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (1, "run", "1 run"),
        (0, "run", "0 runs"),
        (1200, "run", "1,200 runs"),
        (1, "query,queries", "1 query"),
        (2, "query,queries", "2 queries"),
        (1, "request is,requests are", "1 request is"),
        (3, "request is,requests are", "3 requests are"),
    ],
)
def test_a_noun_agrees_with_its_number(count: int, noun: str, words: str) -> None:
    assert counted(count, noun) == words
