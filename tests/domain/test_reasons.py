"""A reason is a code; its words stand in one module, and a code unknown to it shows as itself."""

import string

import pytest

from queries.domain.reasons import NOTHING, Because, Detail, phrase, waited, why
from queries.domain.states import Phase, Reason


def test_every_reason_has_words_of_its_own() -> None:
    words = [phrase(reason) for reason in Reason if reason]
    assert all(text and not text.isupper() for text in words)
    assert len(set(words)) == len(words)
    assert phrase(Reason.NONE) == ""


def test_a_text_that_is_no_code_is_its_own_words() -> None:
    assert phrase("as the release before said") == "as the release before said"
    assert Reason("as the release before said") is Reason.OTHER


def test_what_a_row_keeps_is_read_as_it_was_written(subtests: pytest.Subtests) -> None:
    for code in Detail:
        names = [name for _, name, _, _ in string.Formatter().parse(code.value) if name]
        said = Because(code, {name: f"a {name}" for name in names})
        with subtests.test(code.name):
            assert Because.of(said.as_json()) == said
            assert bool(said) == (code is not Detail.NOTHING)
            assert all(f"a {name}".lower() in str(said).lower() for name in names)


def test_a_sentence_names_its_values_and_a_dash_where_one_is_missing() -> None:
    taken = Because(Detail.SLOTS_TAKEN, {"starting": 2, "limit": 3})
    assert taken.text == "2 of 3 drivers are starting on this host."
    assert Because(Detail.SLOTS_TAKEN, {"limit": 3}).text.startswith("– of 3")
    assert Because(Detail.FAILURE, {"title": "No Java", "way_out": ""}).text == "No Java."


def test_nothing_is_kept_as_nothing() -> None:
    assert (NOTHING.as_json(), NOTHING.text) == ({}, "")
    assert Because.of({}) == NOTHING


def test_a_code_of_a_later_release_is_shown_as_it_is() -> None:
    assert Because.of({"code": "MOON_FULL", "at": 3}).text == "MOON_FULL"


def test_why_is_what_goes_on_else_the_reason() -> None:
    going_on = Because(Detail.QUERY_BUILDING)
    assert why(Reason.WAITS_DRIVER, going_on) is going_on
    assert why(Reason.WAITS_DRIVER, NOTHING).text == "waiting for its driver"


def test_what_is_waited_for_names_the_phase_and_why() -> None:
    said = waited(Phase.PENDING, Reason.WAITS_SLOT, NOTHING)
    assert said.text == "Pending: waiting for a start slot"
    assert Because.of(said.as_json()) == said
    building = waited(Phase.STARTING, Reason.WAITS_DRIVER, Because(Detail.QUERY_BUILDING))
    assert building.text == "Starting: Spark is building the query."


@pytest.mark.parametrize("raw", [[None], 7, "soon", True])
def test_what_is_no_such_form_is_shown_as_it_is_stored(raw: object) -> None:
    assert Because.of(raw).text == f"cannot be shown: {raw}"


def test_a_code_that_is_no_text_is_its_own_text() -> None:
    assert Because.of({"code": {"a": 1}}).text == "{'a': 1}"
