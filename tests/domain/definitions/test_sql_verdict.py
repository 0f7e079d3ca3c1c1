"""A refusal of Spark's parser is a problem that shows the place."""

from pathlib import Path

import pytest

from queries.domain.definitions.declarations import conf_of, read
from queries.domain.definitions.parsing import parse_query
from queries.domain.definitions.spec import SqlQuery
from queries.domain.definitions.sql_verdict import (
    SqlVerdict,
    has_own_grammar,
    question_about,
    refused,
)

SAID = (
    "[PARSE_SYNTAX_ERROR] Syntax error at or near 'b': extra input 'b'. SQLSTATE: 42601 "
    "(line 1, pos 14)\n\n== SQL ==\nSELECT a FORM b\n--------------^^^\n"
)


def test_the_line_is_shown_with_a_caret_under_the_place() -> None:
    problem = refused("SELECT a FORM b", SqlVerdict(False, SAID, 1, 15))
    assert problem.field == "sql"
    assert problem.message == (
        "is not valid Spark SQL: Syntax error at or near 'b': extra input 'b'. (line 1, column 15)"
    )
    assert problem.way_out == "\nSELECT a FORM b\n              ^"
    assert (problem.line, problem.column) == (1, 15)


@pytest.mark.parametrize(("line", "column"), [(2, 3), (99, 1), (1, 1)])
def test_any_place_can_be_shown(line: int, column: int) -> None:
    problem = refused("SELECT\n\ta", SqlVerdict(False, SAID, line, column))
    assert problem.way_out.endswith("^")


def test_of_a_very_long_line_the_place_is_shown() -> None:
    text = "SELECT " + "a, " * 2_000 + "FORM b"
    problem = refused(text, SqlVerdict(False, SAID, 1, 6_008))
    _, shown, caret = problem.way_out.split("\n")
    assert shown[caret.index("^") :].startswith("FORM")
    assert len(shown) <= 120


def test_a_refusal_without_a_place_is_told_without_one() -> None:
    problem = refused("SELECT 1", SqlVerdict(False, "[A_CODE] Something\n is wrong"))
    assert problem.message == "is not valid Spark SQL: Something"
    assert "^" not in problem.way_out
    assert problem.line is problem.column is None


def test_what_spark_could_run_and_no_driver_does_is_not_called_invalid() -> None:
    problem = refused("SELECT 1", SqlVerdict(False, "It is\n a command."))
    assert problem.message == "cannot be run: It is a command."


def test_an_empty_text_has_a_first_line() -> None:
    assert refused("", SqlVerdict(False, SAID, 1, 1)).way_out == "\n\n^"


@pytest.mark.parametrize(
    ("marker", "way_out"),
    [
        ("?", "Write :name, and add name with a default to params."),
        ("{low}", "Write :low, and add low with a default to params."),
        ("{{ low }}", "Write :low, and add low with a default to params."),
        ("$low", "Write :low, and add low with a default to params."),
        (":low", "Add low with a default to params, or write the value itself."),
    ],
)
def test_a_marker_that_is_not_bound_has_a_way_out_that_exists(marker: str, way_out: str) -> None:
    """Spark's own advice is about arguments of `spark.sql`, which no author can give."""
    text = f"SELECT a |> WHERE b > {marker}"
    name = {"?": "_22", ":low": "low"}.get(marker)
    said = "Please, fix `args` and provide a mapping of the parameter to a SQL literal"
    verdict = SqlVerdict(
        False, f"[UNBOUND_SQL_PARAMETER] Found the unbound parameter: {name}. {said}"
    )
    if name is None:
        verdict = SqlVerdict(False, SAID, 1, 23)
    problem = refused(text, verdict)
    assert (problem.field, problem.value, problem.way_out) == ("sql", marker, way_out)


@pytest.mark.parametrize(
    ("key", "own"),
    [
        ("spark.sql.extensions", True),
        ("spark.sql.parser.quotedRegexColumnNames", True),
        ("spark.sql.ansi.enforceReservedKeywords", True),
        ("spark.sql.ansi.enabled", False),
        ("spark.sql.shuffle.partitions", False),
    ],
)
def test_some_configuration_gives_spark_another_grammar(key: str, own: bool) -> None:
    assert has_own_grammar({key: "x"}) is own


@pytest.mark.parametrize("connector", ["delta", "iceberg"])
def test_queries_over_tables_are_checked_as_sparks_own(connector: str) -> None:
    recipe = Path(__file__).resolve().parents[3] / "connectors" / connector / "connector.toml"
    conf = conf_of([read(recipe.read_text())])
    assert not has_own_grammar(conf)
    assert has_own_grammar({"spark.sql.extensions": f"{conf['spark.sql.extensions']},org.acme.X"})
    spec = parse_query(
        {
            "kind": "sql",
            "sources": [{"name": "ticks", "format": "rate"}],
            "sql": "SELECT value FROM ticks",
            "sink": {"format": "noop"},
        }
    )
    assert isinstance(spec, SqlQuery)
    asked = question_about(spec, conf=conf, partitioned={})
    assert [view.name for view in asked.views] == ["ticks"]
    assert not any("extensions" in key or "catalog" in key for key in asked.conf)
