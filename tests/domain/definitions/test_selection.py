"""A selection: its terms, its written forms, and what it matches in memory."""

import pytest

from queries.domain.definitions.labels import (
    MOST_TERMS,
    Term,
    matches,
    parse_filters,
    parse_selector,
    terms,
)
from queries.domain.errors import Invalid


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("team=data", [Term("team", ("data",))]),
        ("team=data, phase!=STOPPED", [Term("team", ("data",)), Term("phase", ("STOPPED",), True)]),
        ("phase=FAILED|ON_HOLD", [Term("phase", ("FAILED", "ON_HOLD"))]),
        ("tier=", [Term("tier", ("",), is_label=True)]),
        ("example.org/tier = 1", [Term("example.org/tier", ("1",), is_label=True)]),
    ],
)
def test_a_selector_is_its_terms(text: str, selection: list[Term]) -> None:
    assert list(parse_selector(text)) == selection


@pytest.mark.parametrize(
    "text",
    ["", "team", "=a", "a==b", "phase=FLYING", "desired=", "a=b,,c=d", "a=b," * MOST_TERMS + "a=b"],
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_selector(text)
    assert all(one.way_out for one in refused.value.problems)


def test_empty_fields_have_no_terms() -> None:
    assert terms() == terms({}, phase="", health=(), pool=[""]) == ()


def test_a_label_is_one_value_missing_or_any() -> None:
    assert terms({"phase": "x", "tier": "", "area": None}, phase="FAILED") == (
        Term("phase", ("FAILED",)),
        Term("phase", ("x",), is_label=True),
        Term("tier", ("",), is_label=True),
        Term("area", ("",), is_not=True, is_label=True),
    )


def test_filters_of_an_address_are_one_selection_on_a_page_and_over_rest() -> None:
    page = {"q": "de\x00lays", "team": "data", "phase": "FAILED", "label": "tier=1  area"}
    rest = {"search": "delays", "team": "data", "phase": ("FAILED",), "label": ["tier=1", "area"]}
    assert parse_filters(page) == parse_filters(rest)
    assert parse_filters(page) == (
        Term("search", ("delays",)),
        Term("owner", ("data",)),
        Term("phase", ("FAILED",)),
        Term("tier", ("1",), is_label=True),
        Term("area", ("",), is_not=True, is_label=True),
    )
    assert parse_filters({"q": "", "label": ""}) == parse_filters({}) == ()


@pytest.mark.parametrize(
    ("selection", "matched"),
    [
        ((), True),
        (terms(kind="stalled"), True),
        (terms(kind=["failed", "stalled"]), True),
        (terms({"kind": "stalled"}), False),
        (terms({"tier": "1", "area": ""}), True),
        (terms({"tier": None}), True),
        (terms({"area": None}), False),
        ((Term("kind", ("stalled",), is_not=True),), False),
    ],
)
def test_all_terms_are_true_of_what_matches(selection: tuple[Term, ...], matched: bool) -> None:
    assert matches(selection, {"kind": "stalled"}, {"tier": "1"}) is matched
