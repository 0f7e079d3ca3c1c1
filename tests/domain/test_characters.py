"""What no text can hold is refused by its field, and shown with escapes."""

import json
from typing import Any

import pytest

from headgate_ground.masking import MASK
from queries.domain.accepted_values import MOST_ELEMENTS, MOST_KEYS, refuse_characters, with_escapes
from queries.domain.errors import Invalid


@pytest.mark.parametrize(
    ("value", "field", "shown"),
    [
        ({"spec": {"description": "a\x00b"}}, "spec.description", r"a\u0000b"),
        ({"sources": [{"name": "x"}, {"name": "\ud800"}]}, "sources.1.name", r"\ud800"),
        ({"labels": {"a\udfff": "b"}}, r"labels.a\udfff", r"a\udfff"),
        ("\x00", "body", r"\u0000"),
        ({"options": {"password": "hunter\x00"}}, "options.password", MASK),
    ],
)
def test_a_character_is_told_by_its_field(value: Any, field: str, shown: str) -> None:
    with pytest.raises(Invalid) as caught:
        refuse_characters(value)
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == (field, shown)
    assert "which JSON and YAML can express" in problem.message
    assert problem.way_out


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_json_does_not_have_is_told_by_its_field(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        refuse_characters({"params": {"more": [json.loads(text)]}})
    (problem,) = caught.value.problems
    assert problem.field == "params.more.0"
    assert problem.value == ("Infinity" if text == "1e999" else text)
    assert "JSON does not have" in problem.message


def test_the_value_itself_can_have_a_name() -> None:
    with pytest.raises(Invalid) as caught:
        refuse_characters({"path": "\x00"}, field="sink")
    assert [problem.field for problem in caught.value.problems] == ["sink.path"]


def test_a_body_full_of_them_names_twenty() -> None:
    with pytest.raises(Invalid) as caught:
        refuse_characters(["\x00"] * 1000)
    assert len(caught.value.problems) == 20


@pytest.mark.parametrize("value", ["", "é\U0001f600\n", {"a": [1, None, True, 1.5]}, []])
def test_everything_else_is_fine(value: Any) -> None:
    refuse_characters(value)
    assert with_escapes(str(value)) == str(value)


def test_a_body_with_too_many_entries_is_refused_before_its_parts_are_looked_at() -> None:
    for value, most in (
        ({str(n): n for n in range(MOST_KEYS + 1)}, MOST_KEYS),
        ([0] * (MOST_ELEMENTS + 1), MOST_ELEMENTS),
    ):
        with pytest.raises(Invalid) as caught:
            refuse_characters(value)
        [problem] = caught.value.problems
        assert (problem.field, problem.way_out) == ("body", "Send fewer entries.")
        assert f"{most:,} are allowed" in problem.message
