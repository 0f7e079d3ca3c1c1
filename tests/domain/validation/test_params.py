"""Parameters of a run: what a definition and a start may say, and what a run gets."""

import json
from pathlib import Path
from typing import Any

import pytest

from queries.domain.definitions.spec import SqlQuery
from queries.domain.errors import Invalid
from queries.domain.validation.params import (
    accepted,
    as_text,
    effective,
    from_text,
    givable,
    kind_of,
    sql_params_problems,
)

FILE = Path(__file__).parents[2] / "cases/23-parameter-values/markers.jsonl"
CASES = [json.loads(line) for line in FILE.read_text().splitlines()]
DEFAULTS = {"day": "2026-11-25", "limit": 3, "share": 0.5, "all": False, "more": None}


def _spec(sql: str, params: dict[str, Any]) -> SqlQuery:
    source = {"name": "a", "format": "rate"}
    return SqlQuery.model_validate({"sources": [source], "sql": sql, "params": params})


def test_a_text_that_uses_each_parameter_once_or_more_is_accepted() -> None:
    sql = "SELECT value FROM a WHERE value > :low AND ':x' <> :text AND value <> :low LIMIT 3"
    assert sql_params_problems(_spec(sql, {"low": 1, "text": "x"})) == []


@pytest.mark.parametrize(
    ("sql", "params", "field", "said"),
    [
        ("SELECT :day FROM a", {}, "sql", "without a default"),
        ("SELECT value FROM a", {"day": "x"}, "params.day", "not used"),
        ("SELECT :day FROM a", {"day": ["x"]}, "params.day", "not a value that SQL can use"),
        ("SELECT :day FROM a", {"day": None}, "params.day", "not a value that SQL can use"),
        ("SELECT :day FROM a", {"day": "env:DAY"}, "params.day", "show in its plans"),
        ("SELECT :n FROM a", {"n": 2**63}, "params.n", "BIGINT"),
        ("not ( sql", {"a b": 1}, "params.a b", "not a valid name"),
        ("SELECT {a} FROM a", {}, "sql", "not a parameter syntax that Headgate supports"),
        ("SELECT {{a}} FROM a", {}, "sql", "not a parameter syntax that Headgate supports"),
        ("SELECT @a FROM a", {}, "sql", "not a parameter syntax that Headgate supports"),
        ("SELECT $a FROM a", {}, "sql", "not a parameter syntax that Headgate supports"),
    ],
)
def test_a_problem_names_the_parameter(
    sql: str, params: dict[str, Any], field: str, said: str
) -> None:
    [problem] = sql_params_problems(_spec(sql, params))
    assert problem.field == field
    assert said in problem.message


def test_the_markers_of_other_languages_have_a_way_out_that_exists() -> None:
    for text, marker, name in (("?", "?", "name"), ("{low}", "{low}", "low")):
        sql = next(one["sql"] for one in CASES if one.get("sql", "").endswith(text))
        [problem] = sql_params_problems(_spec(sql.replace("ticks", "a"), {}))
        assert problem.value == marker
        assert problem.way_out == f"Write :{name}, and add {name} with a default to params."
        right = _spec(sql.replace("ticks", "a").replace(marker, f":{name}"), {name: 1})
        assert sql_params_problems(right) == []


@pytest.mark.parametrize(
    ("default", "text"), [(one["default"], text) for one in CASES for text in one.get("given", ())]
)
def test_a_value_that_cannot_be_stored_is_refused_by_name(default: Any, text: str) -> None:
    defaults = {"value": default, "more": None}
    inside = f"[{text}]" if isinstance(default, float) else json.dumps([text])
    for name, given in (("value", text), ("more", inside)):
        read = from_text(defaults, {name: given})
        with pytest.raises(Invalid) as refused:
            accepted(defaults, read)
        [problem] = refused.value.problems
        assert problem.field.startswith(f"params.{name}")
        assert "Headgate cannot store" in problem.message or "JSON does not have" in problem.message
        assert effective(defaults, read) == defaults


def test_a_start_gives_values_of_the_defaults_types() -> None:
    given = {"day": "2026-11-26", "limit": 4, "share": 1, "all": True, "more": [1]}
    assert accepted(DEFAULTS, given) == given
    assert type(accepted(DEFAULTS, {"share": 1})["share"]) is float


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("dya", "x", "not a parameter"),
        ("day", 3, "than the default"),
        ("limit", "3", "than the default"),
        ("limit", True, "than the default"),
        ("limit", 2**63, "than the default"),
        ("day", "env:TOKEN", "refers to a secret"),
    ],
)
def test_another_name_or_type_or_a_secret_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        accepted(DEFAULTS, {name: value})
    [problem] = refused.value.problems
    assert problem.field == f"params.{name}"
    assert said in problem.message


def test_a_start_cannot_replace_a_secret() -> None:
    for defaults in ({"token": "file:t"}, {"password": "x"}):
        with pytest.raises(Invalid) as refused:
            accepted(defaults, dict.fromkeys(defaults, "mine"))
        assert "mine" not in str(refused.value.problems)


def test_a_run_gets_the_defaults_with_the_values_that_the_definition_still_accepts() -> None:
    assert effective({"day": "a", "n": 1}, None) == {"day": "a", "n": 1}
    given = {"day": "b", "n": "now text", "gone": 1}
    assert effective({"day": "a", "n": 1}, given) == {"day": "b", "n": 1}


def test_text_is_read_as_the_type_of_the_default() -> None:
    given = {"day": "2026", "limit": "4", "share": "1", "all": "true", "more": "x"}
    read = {"day": "2026", "limit": 4, "share": 1, "all": True, "more": "x"}
    assert from_text(DEFAULTS, given) == read
    assert from_text(DEFAULTS, {"limit": 4}) == {"limit": 4}


def test_a_form_shows_each_default_as_the_text_that_is_read_back() -> None:
    defaults = {**DEFAULTS, "token": "env:TOKEN", "password": "x"}
    assert givable(defaults) == DEFAULTS
    texts = {name: as_text(value) for name, value in DEFAULTS.items()}
    assert texts["all"] == "false"
    assert from_text(DEFAULTS, texts) == DEFAULTS
    assert [kind_of(value) for value in (True, 3, [1])] == [
        "true or false",
        "a whole number",
        "JSON",
    ]
