"""What a new definition changes of state: what Spark refuses, and what it silently accepts."""

from dataclasses import asdict
from typing import Any

import pytest

from queries.domain.definitions.spec import SqlQuery
from queries.domain.probes.plan_comparison import AnalyzedQuery, shapes_of, state_change
from queries.domain.probes.plan_shapes import OperatorShape, Shapes


def _seen(sql: str, shapes: Shapes | None = None) -> AnalyzedQuery:
    source = {"name": "t", "format": "rate"}
    form = {"sources": [source], "sql": sql, "sink": {"format": "noop", "output_mode": "update"}}
    return AnalyzedQuery(SqlQuery.model_validate(form), shapes)


COUNT = "SELECT k, count(*) AS n FROM t GROUP BY k"


@pytest.mark.parametrize(
    ("sql", "refused", "silent"),
    [
        (COUNT.replace("GROUP BY k", "GROUP BY k, j"), True, False),
        (COUNT.replace("k", "j"), False, True),
        (COUNT.replace("FROM t", "FROM t WHERE k > 1"), False, True),
        ("SELECT k FROM t", True, False),
        (COUNT, False, False),
    ],
)
def test_changes_of_form_are_refused_and_changes_of_meaning_are_silent(
    sql: str, refused: bool, silent: bool
) -> None:
    found = state_change(_seen(COUNT), _seen(sql))
    assert (bool(found.refused), bool(found.silent)) == (refused, silent)


def test_plans_decide_where_both_are_known() -> None:
    shapes = Shapes((OperatorShape("aggregation", keys=("k",)),), "update")
    same = state_change(_seen(COUNT, shapes), _seen(COUNT.replace("k", "j"), shapes))
    assert same.silent == ()


def test_where_neither_can_be_read_it_is_said() -> None:
    found = state_change(_seen("FROM t |> SELECT k |> ???"), _seen(COUNT))
    assert found.unknown


@pytest.mark.parametrize(
    "kept", [None, {}, {"operators": [{}], "output_mode": "x"}, {"operators": 7}]
)
def test_shapes_of_another_release_are_none(kept: dict[str, Any] | None) -> None:
    assert shapes_of(kept) is None


def test_shapes_are_kept_as_json() -> None:
    shapes = Shapes((OperatorShape("aggregation", keys=("k",), windows=("1 hour",)),), "update")
    assert shapes_of(asdict(shapes)) == shapes
