"""YAML of version 1.2, without what hides or multiplies; values of an environment in texts."""

from typing import Any

import pytest

from queries.domain.errors import Invalid
from queries.domain.manifests.sets import read_text, value_problems, with_values


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("a: 1\n---\nb: [x, y]", [{"a": 1}, {"b": ["x", "y"]}]),
        ("---\n---\na: 1", [{"a": 1}]),
        ("", []),
        ('{"a": {"b": null}}', [{"a": {"b": None}}]),
        (
            "a: on\nb: 12:30\nc: 2026-01-05\nd: true",
            [{"a": "on", "b": "12:30", "c": "2026-01-05", "d": True}],
        ),
        (
            "a: 0o17\nb: 0x1F\nc: -3\nd: 1.5e3\ne: ~",
            [{"a": 15, "b": 31, "c": -3, "d": 1500.0, "e": None}],
        ),
        ("<<: {a: 1}", [{"<<": {"a": 1}}]),
        ("a: |\n  SELECT 1\n", [{"a": "SELECT 1\n"}]),
        ("[{a: 1}, null, {b: 2}]", [{"a": 1}, {"b": 2}]),  # as `export -o json` prints them
    ],
)
def test_a_text_is_read_as_yaml_1_2(text: str, documents: list[Any]) -> None:
    assert read_text(text) == documents


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line 2"),
        ("a: &x 1\nb: *x", "aliases"),
        ("a: 1\na: 2", "'a' appears twice"),
        ("1: 2", "not text"),
        ("[" * 51 + "]" * 51, "more than 50 levels"),
        ("a: !!python/name:os.system x", "constructor"),
        ("a: \x00", "control characters"),
        ("a: 1e999", "too large"),
        ("a: " + "9" * 5000, "digits"),
    ],
)
def test_a_text_that_cannot_be_read_says_where(text: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_text(text)
    [problem] = refused.value.problems
    assert said in problem.message
    assert problem.way_out


def test_values_are_put_into_texts_at_any_depth() -> None:
    raw = {"a": ["${values.X}-${values.Y}", 3], "${values.X}": "${env:HOME}"}
    assert with_values(raw, {"X": "x", "Y": True}) == {
        "a": ["x-true", 3],
        "${values.X}": "${env:HOME}",
    }


@pytest.mark.parametrize("values", [{}, {"OTHER": "1"}])
def test_a_name_without_a_value_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(Invalid) as refused:
        with_values({"a": [{"b": "${values.X}"}]}, values)
    [problem] = refused.value.problems
    assert (problem.field, problem.value) == ("a.0.b", "${values.X}")
    with pytest.raises(Invalid):
        with_values("${values.X}", values)


def test_values_are_plain_and_no_secrets() -> None:
    good = {"A": "a", "B": 1, "C": 1.5, "D": True, "PASSWORD": "env:PASSWORD"}
    assert value_problems(good) == []
    bad = {"": "a", "A B": "a", "C": [1], "D": None, "PASSWORD": "hunter22"}
    assert [one.field for one in value_problems(bad)] == [f"values.{name}" for name in bad]
    assert all("hunter22" not in one.sentence() for one in value_problems(bad))
