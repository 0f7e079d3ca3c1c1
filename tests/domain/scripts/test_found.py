"""Which query is which from one driver to the next, and what of a report is believed."""

from dataclasses import replace
from typing import Any

import pytest

from queries.domain.protocol import FoundQuery
from queries.domain.scripts import (
    MAX_QUERIES,
    believed,
    folder,
    identity,
    row_name,
    slug,
    trigger_of,
)

COUNTS = FoundQuery(1, "name:counts", "counts", "", "file:///cp/counts")


@pytest.mark.parametrize(
    ("name", "asked", "known", "part"),
    [
        ("counts", "", "name:counts", "counts"),
        ("counts", "file:///cp/x", "name:counts", "counts"),
        ("", "file:///cp/x", "checkpoint:file:///cp/x", "x"),
        ("", "", "unnamed", "query"),
        ("Wörter je Stunde!", "", "name:Wörter je Stunde!", "W-rter-je-Stunde"),
        ("../..", "", "name:../..", "query"),
    ],
)
def test_a_query_is_known_by_its_name_else_its_checkpoint_else_as_the_only_one(
    name: str, asked: str, known: str, part: str
) -> None:
    assert identity(name, asked) == known
    assert slug(name, asked) == part


def test_no_two_queries_share_a_folder() -> None:
    named = [("a b", ""), ("a-b", ""), ("a/b", ""), ("", ""), ("query", ""), ("unnamed", "")]
    folders = [folder(*one) for one in named]
    assert folders[1] == "a-b"
    assert folders[3] == folders[5] == "unnamed" or len(set(folders)) == len(folders)
    assert len({*folders[:5]}) == 5
    assert not any("/" in one or one.startswith(".") for one in folders)


def test_a_row_is_named_by_application_and_query_and_numbered_where_that_is_taken() -> None:
    assert row_name("job", COUNTS, []) == "job/counts"
    assert row_name("job", COUNTS, ["job/counts"]) == "job/counts-2"
    assert row_name("job", COUNTS, ["job/counts", "job/counts-2"]) == "job/counts-3"


def test_what_has_the_right_form_is_believed() -> None:
    found = believed([COUNTS])
    assert found.queries == (COUNTS,)
    assert found.refused == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"number": 0}, "no number"),
        ({"number": True}, "no number"),
        ({"number": "1"}, "no number"),
        ({"number": 2**31}, "belongs to another query"),
        ({"name": 7}, "no description"),
        ({"name": "x" * 2_000, "identity": "name:" + "x" * 2_000}, "too long"),
        ({"temporary": "a\nb"}, "control characters"),
        ({"identity": "name:other"}, "a different name"),
        ({"location": "cp/counts"}, "is not absolute"),
        ({"location": "file:///cp//counts/"}, "not an absolute location"),
    ],
)
def test_what_a_driver_makes_up_is_refused_with_a_sentence(
    changes: dict[str, Any], said: str
) -> None:
    found = believed([replace(COUNTS, **changes)])
    assert found.queries == ()
    assert said in found.refused[0]


def test_a_number_is_believed_once() -> None:
    found = believed([COUNTS, replace(COUNTS, name="b", identity="name:b")])
    assert found.queries == (COUNTS,)
    assert "belongs to another query" in found.refused[0]


def test_fifty_queries_are_believed() -> None:
    many = [replace(COUNTS, number=number) for number in range(1, 100)]
    found = believed(many)
    assert len(found.queries) == MAX_QUERIES
    assert "50" in found.refused[-1]


@pytest.mark.parametrize(
    ("trigger", "shown"),
    [
        ({"kind": "available_now"}, {"kind": "available_now"}),
        (
            {"kind": "continuous", "interval": "1 second"},
            {"kind": "continuous", "interval": "1 second"},
        ),
        ({}, {"kind": "processing_time", "interval": "0 seconds"}),
        ({"kind": "none"}, {"kind": "processing_time", "interval": "0 seconds"}),
        (
            {"kind": "processing_time", "interval": "1" * 200},
            {"kind": "processing_time", "interval": "0 seconds"},
        ),
    ],
)
def test_a_trigger_is_shown_as_a_definition_writes_it(
    trigger: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert trigger_of(replace(COUNTS, trigger=trigger)).model_dump(mode="json") == shown
