"""Arguments of `map_async`: what is refused, and in which words."""

from functools import partial
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from headgate_async import map_async
from headgate_async.calls import Backoff, BadArgument, Pace
from headgate_async.operator import checked_in_flight, is_blocking, matcher, takes_client


class Conf:
    def get(self, name: str) -> str:
        return {"spark.sql.session.timeZone": "UTC"}[name]


class Session:
    conf = Conf()


class Frame:
    """As much of a DataFrame as is looked at before anything is built."""

    columns = ["key", "value"]
    sparkSession = Session()


async def ask(row: Any, client: Any) -> None:
    return None


def schema(name: str) -> StructType:
    return StructType([StructField(name, StringType())])


GOOD: dict[str, Any] = {"key": "key", "schema": schema("a"), "shuffle": False}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"key": "tail"}, "key: there is no column 'tail'; choose key, value"),
        ({"identity": ["where"]}, "identity: there is no column 'where'"),
        ({"in_flight": 0}, "in_flight: 0 must be a whole number of 1 or more"),
        ({"in_flight": "many"}, "neither a whole number, 'auto' nor 'sequential'"),
        ({"in_flight": 300, "cap": 200}, "in_flight: 300 is more than the cap of 200"),
        ({"cap": 1.5}, "cap: 1.5 must be a whole number"),
        ({"shuffle": "maybe"}, "shuffle: 'maybe' is neither"),
        ({"shuffle": True, "key": None}, "specify a key"),
        ({"shuffle": True}, "order_by: the shuffle that groups the rows"),
        ({"timeout_s": 0}, "timeout_s: 0 must be a number above 0"),
        ({"retries": -1}, "retries: -1 must be a whole number of 0 or more"),
        ({"backoff_s": 3}, "backoff_s: 3 must be two numbers"),
        ({"transient": "all"}, "transient: 'all' is not an exception class"),
        ({"broken": (ValueError, 3)}, "must contain only exception classes"),
        ({"calls_per_second": float("nan")}, "calls_per_second: nan must be a number above 0"),
        ({"on_error": "ignore"}, "on_error: 'ignore' is neither 'fail' nor 'dead_letter'"),
        ({"hold": True}, "hold: True must be a number above 0"),
        ({"schema": schema("_async_kept")}, "is a column that map_async adds itself"),
        ({"schema": schema("dead_letter"), "on_error": "dead_letter"}, "map_async adds itself"),
    ],
)
def test_what_cannot_be_meant_is_named_with_its_value(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(BadArgument) as caught:
        map_async(Frame(), ask, **{**GOOD, **changed})
    assert words in str(caught.value)


def test_a_function_is_told_apart_by_what_it_is() -> None:
    class Asks:
        async def __call__(self, row: Any) -> None:
            return None

    assert not is_blocking(ask)
    assert not is_blocking(partial(ask, client=None))
    assert not is_blocking(Asks())
    assert is_blocking(len)
    assert takes_client(ask)
    assert takes_client(lambda *all_: None)
    assert not takes_client(lambda row: None)
    assert not takes_client(Asks())
    assert not takes_client(partial(ask, client=None))


def test_the_cap_of_threads_is_lower_than_that_of_coroutines() -> None:
    assert checked_in_flight("auto", cap=None, blocking=False) == ("auto", 256)
    assert checked_in_flight("auto", cap=None, blocking=True) == ("auto", 64)
    assert checked_in_flight("sequential", cap=None, blocking=True) == ("sequential", 1)
    assert checked_in_flight(500, cap=None, blocking=False) == (500, 500)


def test_errors_are_named_by_class_or_by_a_test() -> None:
    assert matcher("transient", ConnectionError)(ConnectionResetError())
    assert not matcher("transient", (ConnectionError,))(ValueError())
    assert matcher("transient", lambda error: "again" in str(error))(ValueError("again"))


def test_pauses_grow_up_to_the_most_and_are_spread() -> None:
    sure = Backoff(first_s=0.1, most_s=1.0, chance=lambda: 1.0)
    assert [sure.delay(tried) for tried in (1, 2, 3, 5, 5000)] == [0.1, 0.2, 0.4, 1.0, 1.0]
    assert Backoff(chance=lambda: 0.0).delay(3) == 0.0


def test_a_pace_spaces_calls_and_saves_up_a_tenth_of_a_second() -> None:
    pace = Pace(100.0)
    waits = [pace.reserve(5.0) for _ in range(30)]
    assert waits[:9] == [0.0] * 9
    assert waits[-1] == pytest.approx(29 * 0.01 - 0.09)
    slow = Pace(2.0)
    assert [slow.reserve(0.0) for _ in range(3)] == [0.0, 0.5, 1.0]
