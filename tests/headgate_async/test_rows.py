"""Rows in and out of Arrow: what the function sees, and what may be made of its results."""

from collections import namedtuple
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headgate_async.calls import BadArgument, BadResult
from headgate_async.rows import (
    Shape,
    arranged,
    as_json,
    columns_of,
    identity_of,
    row_class,
    rows_of,
)

KAFKA = {"topic": ["t", "t"], "partition": [0, 1], "offset": [7, 8]}


def rows(columns: dict[str, Any], key: tuple[int, ...] = ()) -> tuple[list[Any], list[Any]]:
    batch = pa.RecordBatch.from_pydict(columns)
    return rows_of(batch, row_class(batch.schema.names), key)


def test_a_row_is_read_by_name_and_place() -> None:
    (row, _), _ = rows({"key": ["a", "b"], "value": [1, None]})
    assert (row.key, row["value"], row[1]) == ("a", 1, 1)
    assert row.asDict() == {"key": "a", "value": 1}
    assert row == ("a", 1)
    with pytest.raises(AttributeError):
        _ = row.nothing


def test_keys_are_values_tuples_or_none() -> None:
    columns = {"a": [1, 2], "b": ["x", None]}
    assert rows(columns)[1] == [None, None]
    assert rows(columns, (1,))[1] == ["x", None]
    assert rows(columns, (0, 1))[1] == [(1, "x"), (2, None)]


def test_timestamps_come_as_datetimes() -> None:
    at = datetime(2026, 11, 21, 12, 30, 1, 5, tzinfo=UTC)
    zoned = pa.array([at, None], pa.timestamp("us", "Europe/Berlin"))
    plain = pa.array([at.replace(tzinfo=None), None], pa.timestamp("us"))
    batch = pa.RecordBatch.from_arrays([zoned, plain], names=["zoned", "plain"])
    (row, none), _ = rows_of(batch, row_class(batch.schema.names))
    assert row["zoned"].tzinfo is UTC
    assert row == (at, at.replace(tzinfo=None))
    assert none == (None, None)


def test_a_row_of_kafka_is_named_by_where_it_lies() -> None:
    (row, other), _ = rows({**KAFKA, "value": ["x", "x"]})
    assert (row.identity, other.identity) == ("t:0:7", "t:1:8")


def test_other_rows_are_named_by_their_values_the_same_each_time() -> None:
    (one, two), _ = rows({"a": [1, 1], "b": ["x", "y"]})
    (same, _), _ = rows({"a": [1, 1], "b": ["x", "y"]})
    assert one.identity == same.identity != two.identity
    (chosen, _), _ = rows({"a": [1, 1], "b": ["x", "y"]})
    kind = row_class(["a", "b"], ["b"])
    assert tuple.__new__(kind, chosen).identity == "x"


def test_a_column_named_identity_is_read_and_the_identity_still_to_be_had() -> None:
    (row, _), _ = rows({**KAFKA, "identity": ["mine", "mine"]})
    assert row.identity == "mine"
    assert identity_of(row) == "t:0:7"


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(BadArgument, match="two columns are named 'a'"):
        row_class(["a", "b", "a"])


Pair = namedtuple("Pair", ["b", "a"])


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, []),
        ((1, 2), [(1, 2)]),
        ({"b": 2}, [(None, 2)]),
        (Pair(2, 1), [(1, 2)]),
        ([{"a": 1}, (3, 4)], [(1, None), (3, 4)]),
        ([], []),
    ],
)
def test_results_become_tuples_of_the_schema(result: Any, expected: list[Any]) -> None:
    assert Shape(["a", "b"]).tuples(result) == expected


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ((1,), "a tuple of 1 values; the schema has 2 columns: a, b"),
        ({"a": 1, "c": 2}, "'c', which the schema does not have"),
        ("text", "returned str; return a dict or a tuple"),
        ([1], "returned int"),
    ],
)
def test_what_is_no_row_is_named_with_the_way_out(result: Any, words: str) -> None:
    with pytest.raises(BadResult, match=words):
        Shape(["a", "b"]).tuples(result)


def test_a_value_that_does_not_fit_is_named_with_its_column() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    with pytest.raises(BadResult, match="column 'a' is int32"):
        columns_of([("x", "y")], schema)
    assert [one.to_pylist() for one in columns_of([], schema)] == [[], []]


def test_a_row_as_json_bears_bytes_and_times() -> None:
    (row,), _ = rows({"a": [b"\x00\xff"], "t": [datetime(2026, 1, 1, tzinfo=UTC)]})
    assert as_json(row) == '{"a": "00ff", "t": "2026-01-01 00:00:00+00:00"}'


@pytest.mark.parametrize("held", [1_000_000, 700])
def test_rows_are_ordered_in_memory_and_by_way_of_files(held: int) -> None:
    numbers = [(one * 7919) % 3001 for one in range(3001)]
    values: list[int | None] = [None if one == 17 else one for one in numbers]
    batches = [
        pa.RecordBatch.from_pydict({"n": values[at : at + 250], "m": numbers[at : at + 250]})
        for at in range(0, 3001, 250)
    ]
    found = [row for one in arranged(iter(batches), ("n",), rows=held) for row in one.to_pylist()]
    assert [row["m"] for row in found] == [*range(17), *range(18, 3001), 17]
    assert found[-1]["n"] is None
    assert list(arranged(iter([]), ("n",), rows=held)) == []
