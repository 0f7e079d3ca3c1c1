"""Labels: what is taken, what is said of the rest, and what a search means."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_ground.labels import MOST_LABELS
from queries.domain.definitions.labels import (
    labels_text,
    parse_labels,
    read_labels,
    searched_labels,
)
from queries.domain.errors import Invalid


def said(labels: dict[str, Any]) -> dict[str, str]:
    """Return what is said of each field."""
    with pytest.raises(Invalid) as refused:
        parse_labels(labels)
    return {problem.field: problem.message for problem in refused.value.problems}


@pytest.mark.parametrize(
    "labels",
    [{}, {"team": "data"}, {"a": "1"}, {"app.kubernetes.io/name": "flights_2-x"}],
)
def test_labels_are_taken_as_kubernetes_would(labels: dict[str, str]) -> None:
    assert parse_labels(labels) == labels


@pytest.mark.parametrize(
    "label", [("Team", "a"), ("team", ""), ("", "a"), ("team", "-a"), ("t" * 64, "a"), ("a", "b c")]
)
def test_a_label_of_another_form_is_refused(label: tuple[str, str]) -> None:
    assert list(said(dict([label])).values()) == ["is not a valid label."]


def test_more_labels_than_a_page_can_show_are_refused() -> None:
    many = {f"label-{number}": "x" for number in range(MOST_LABELS + 1)}
    assert said(many) == {"labels": "are too many labels."}


def test_labels_are_read_as_people_write_them() -> None:
    assert read_labels("") == {}
    assert read_labels(" team=data, severity=low\nregion=eu ") == {
        "team": "data",
        "severity": "low",
        "region": "eu",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("team", "has no value."),
        ("team=a team=b", "appears twice."),
        ("Team=a", "is not a valid label."),
        ("team=", "is not a valid label."),
    ],
)
def test_a_text_that_is_no_label_is_refused(text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_labels(text)
    assert [problem.message for problem in refused.value.problems] == [message]


_WORDS = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)


@given(st.dictionaries(_WORDS, _WORDS, max_size=MOST_LABELS))
def test_what_is_shown_can_be_written_again(labels: dict[str, str]) -> None:
    assert read_labels(labels_text(labels)) == labels


def test_a_search_means_a_value_none_or_any() -> None:
    assert searched_labels(["team=data", "region=", " owner ", "", "="]) == {
        "team": "data",
        "region": "",
        "owner": None,
    }
