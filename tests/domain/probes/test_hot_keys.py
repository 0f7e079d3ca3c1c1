"""The statement that counts a query's rows by its keys, in each form in which Spark takes a key."""

import re

import pytest

from queries.domain.probes.hot_keys import keys_sql


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT carrier, count(*) FROM flights GROUP BY carrier", "carrier"),
        ("SELECT upper(carrier) AS c, count(*) FROM flights GROUP BY c", "UPPER(carrier)"),
        ("SELECT origin, count(*) FROM flights GROUP BY 1", "origin"),
        ("SELECT f.origin FROM flights f GROUP BY f.origin", "f.origin"),
        (
            "SELECT window(at, '1 hour'), carrier FROM flights"
            " GROUP BY window(at, '1 hour'), carrier",
            "window(at, '1 hour'), carrier",
        ),
    ],
)
def test_the_keys_are_those_of_the_outermost_grouping(text: str, keys: str) -> None:
    found = keys_sql(text)
    assert found.endswith(f"GROUP BY {keys} ORDER BY _headgate_rows DESC LIMIT 10")
    named = re.sub(r"( AS key\d+)", "", found)
    assert named.startswith(f"SELECT {keys}, COUNT(*) AS _headgate_rows, SUM(COUNT(*)) OVER ()")


def test_inputs_joins_conditions_and_parameters_remain() -> None:
    found = keys_sql(
        "WITH late AS (SELECT * FROM flights WHERE delay > :least)"
        " SELECT l.tail, max(delay) AS most FROM late l JOIN planes p ON l.tail = p.tail"
        " LATERAL VIEW explode(stops) s AS stop WHERE p.seats > 9 GROUP BY l.tail HAVING most > 1"
    )
    for part in ("WITH late AS", ":least", "JOIN planes", "LATERAL VIEW", "p.seats > 9"):
        assert part in found
    assert "HAVING" not in found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM flights",
        "SELECT count(*) FROM flights",
        "not SQL at all (",
        "SELECT 1; SELECT 2",
        "INSERT INTO t SELECT carrier FROM flights GROUP BY carrier",
    ],
)
def test_a_text_without_a_grouping_has_no_keys(text: str) -> None:
    assert keys_sql(text) == ""


def test_a_number_that_names_no_column_is_left_to_spark() -> None:
    assert "GROUP BY 7" in keys_sql("SELECT carrier FROM flights GROUP BY 7")
