"""Selectors: `team=data,phase!=STOPPED`."""

import pytest

from queries.domain.definitions.selection import MOST_TERMS, Term, parse_selector
from queries.domain.errors import Invalid


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("team=data", [Term("team", ("data",))]),
        ("team=data, phase!=STOPPED", [Term("team", ("data",)), Term("phase", ("STOPPED",), True)]),
        ("phase=FAILED|BROKEN", [Term("phase", ("FAILED", "BROKEN"))]),
        ("tier=", [Term("tier", ("",))]),
        ("example.org/tier = 1", [Term("example.org/tier", ("1",))]),
    ],
)
def test_a_selector_is_its_terms(text: str, terms: list[Term]) -> None:
    assert list(parse_selector(text)) == terms


@pytest.mark.parametrize(
    "text",
    ["", "team", "=a", "a==b", "phase=FLYING", "desired=", "a=b,,c=d", "a=b," * MOST_TERMS + "a=b"],
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_selector(text)
    assert all(one.way_out for one in refused.value.problems)
