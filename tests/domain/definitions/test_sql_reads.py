"""The stored form of what a SQL text names."""

from typing import Any

import pytest

from queries.domain.definitions.sql_verdict import MOST_RELATIONS, SqlReads


def test_the_stored_form_is_read_again() -> None:
    found = SqlReads((("lake", "air", "dim"), ("ticks",)), ("a table function",))
    assert SqlReads.from_json(found.as_json()) == found


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        {"relations": []},
        {"relations": "ticks", "unknown": []},
        {"relations": [["a"], "b"], "unknown": []},
        {"relations": [["a", 7]], "unknown": []},
        {"relations": [[]], "unknown": []},
        {"relations": [["a"]] * (MOST_RELATIONS + 1), "unknown": []},
        {"relations": [], "unknown": [7]},
    ],
)
def test_what_is_no_stored_form_is_refused(stored: Any) -> None:
    with pytest.raises(ValueError, match="relations of a text"):
        SqlReads.from_json(stored)
