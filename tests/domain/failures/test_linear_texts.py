"""What reads logs and errors takes time in proportion to their length, whatever stands in them.

One line of 31 KB once kept the web process busy for 12 s. Texts that a quadratic search takes
seconds for are given to every reader, on a budget of CPU time that a linear one needs
a few per cent of.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_ground.masking import Mask, mask_text
from queries.domain.failures import diagnosis, error_text
from queries.domain.kafka import losses
from queries.domain.probes import plan_shapes
from queries.views.failures import logs
from tests.examples import examples

SIZE = 32 * 1024
BUDGET_S = 1.0  # of CPU time

PIECES = [
    *("a", " ", "\n", "\t", "\r", "a=", "at ", "a.", "a-", "'", '"', "/", "./", "-1", "1.", "0x1"),
    *("$", "{", "^", "== ", "@0a", "<n>,", "a: ", "Error", "Timeout: ", "TimeoutError"),
    *('File "', '  File "x", line 1, in ', 'File "/pyspark/', "\n at ", "\tat ", "at a.b("),
    *("token", "token ", "token=", "token:", 'token="', "Bearer ", "://", "://a:", "x://"),
    *("Caused by: ", "\nCaused by: ", "... 1 more ", "a in thread b ", "SQLSTATE ", "[A_B1]"),
    *("=== Streaming Query ===", "== SQL ==\n", "[A_A", "http error ", "Connection"),
    *("Traceback (most recent call last):\n", "Traceback (most recent call last):\n "),
    *("NullPointerException ", "WatermarkTracker", "Partition a-1"),
    *("Cannot fetch offset 1 (GroupId: ", "Cannot fetch offset 1 (GroupId: , TopicPartition: a-"),
    "offset [1, 2) for topic partition a-",
    *(" AS ", " AS a#1", "#1", "named_struct(start, knownnullable(precisetimestampconversion((("),
    *(", TimestampType, LongType)", ", TimestampType, LongType) - 1) % 1)", " - 1) % 1)", " + 1)"),
    *(", TimestampType, LongType) + ", ", TimestampType, LongType) + a as timestamp)"),
    *(" + a as interval) as timestamp), TimestampType, LongType)", " as timestamp)", " + cast("),
]
#: How Spark's columns of windows begin: what stands behind them is looked through for the rest.
OF_WINDOWS = (
    "",
    "named_struct(start, knownnullable(precisetimestampconversion(((precisetimestampconversion(",
    "named_struct(start, precisetimestampconversion(precisetimestampconversion(",
)
#: Words of the tables of failures, whose many rules take their time over every text.
OF_RULES = [
    *("a", " ", "\n", "Error", "Timeout: ", "TimeoutError", "Connection", "http error ", "[A_B1]"),
    *("SQLSTATE ", "NullPointerException ", "WatermarkTracker", "Cannot fetch offset 1 (GroupId: "),
]


def _plan(text: str) -> dict[str, Any]:
    """Return an aggregation over a column that is made of a text."""
    made = {"op": "Project", "streaming": True, "children": [], "expressions": [text]}
    rows = {"projections": [[text], ["null"]], "output": ["window#2"]}
    expand = {"op": "Expand", "streaming": True, "children": [made], **rows}
    keys = {"keys": [text], "aggregates": [text]}
    return {"op": "Aggregate", "streaming": True, "children": [expand], **keys}


def _read_plans(text: str) -> None:
    """Read plans of a text behind each beginning, whole and as long as one is looked into."""
    for beginning in OF_WINDOWS:
        for size in (SIZE, plan_shapes._LIMIT):
            plan_shapes.of_plan(_plan((beginning + text)[:size]), "append")


READERS: dict[str, Callable[[str], object]] = {
    "mask_text": mask_text,
    "mask by value": Mask.of(["aaaa", "a" * 300 + "b", "password=hunter2", " \n" * 40]),
    "classify": lambda text: diagnosis.classify(
        error_class="", type_name=text, root_cause=text, message=text
    ),
    "classify_exit": lambda text: diagnosis.classify_exit(
        python="1", jvm="1", oom=False, log_tail=f"No space left on device {text}"
    ),
    "fingerprint": lambda text: error_text.fingerprint(
        error_class="", type_name=text, root_cause=text, message=text
    ),
    "normalised": error_text.normalised,
    "named_in": losses.named_in,
    "conditions": error_text.conditions,
    "first_sentence": error_text.first_sentence,
    "readable": error_text.readable,
    "without_plan": error_text.without_plan,
    "top_frame": error_text.top_frame,
    "plan": _read_plans,
    "exceptions": error_text.exceptions,
    "innermost_line": error_text.innermost_line,
    "causes": logs.causes,
}


class TooLong(Exception):
    """The reader has used up its budget."""


@contextmanager
def budget(seconds: float) -> Iterator[None]:
    """Raise `TooLong` after that much CPU time: a search checks for signals as it goes."""

    def over(number: int, frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("reader", READERS)
def test_no_text_costs_more_than_its_length(reader: str) -> None:
    slow = []
    for piece in OF_RULES if reader.startswith("classify") else PIECES:
        long = (piece * (SIZE // len(piece) + 1))[:SIZE]
        try:
            with budget(BUDGET_S):
                READERS[reader](long)
                READERS[reader](f"Traceback (most recent call last):\n at {long}!")
        except TooLong:
            slow.append(piece)
    assert slow == []


@hypothesis.settings(max_examples=examples(40))
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.sampled_from(list(READERS)))
def test_pieces_in_any_order_cost_no_more(pieces: list[str], reader: str) -> None:
    piece = "".join(pieces)
    with budget(BUDGET_S):
        READERS[reader](piece * (SIZE // 2 // len(piece)))


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    text = f"begin{'x' * 100_000}end"
    kept = error_text.bounded(text, 1_000)
    assert len(kept) == 1_000
    assert kept.startswith("begin")
    assert kept.endswith("end")
    assert error_text.bounded("short", 1_000) == "short"
