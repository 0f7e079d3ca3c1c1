"""What a SQL text asks for is read from it, and nothing else is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.spec import SqlQuery
from queries.domain.definitions.sql_text import Operators, SqlOperator, operators


def asked(text: str, **source: Any) -> Operators:
    return operators(
        SqlQuery.model_validate(
            {
                "sources": [
                    {"name": "s", "format": "kafka", **source},
                    {"name": "t", "format": "kafka"},
                ],
                "tables": [{"name": "d", "format": "csv"}],
                "sql": text,
            }
        )
    )


O = SqlOperator  # noqa: E741


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT key, upper(value) v FROM s WHERE length(value) > 1", set()),
        ("SELECT key FROM (SELECT * FROM s) x", set()),
        ("SELECT CASE WHEN key IN ('1', '2') THEN value END v FROM s", set()),
        ("SELECT key, (SELECT max(n) FROM d) m FROM s", set()),
        ("SELECT key, rand() r, uuid() u FROM s", set()),
        ("WITH c AS (SELECT * FROM s) SELECT key FROM c", {O.WITH}),
        ("SELECT key, count(*) c FROM s GROUP BY key", {O.AGGREGATION}),
        ("SELECT * FROM (SELECT value FROM s) PIVOT (sum(1) FOR value IN (1, 2))", {O.AGGREGATION}),
        (
            "SELECT window(timestamp, '1 s').start a, count(*) c FROM s "
            "GROUP BY window(timestamp, '1 s'), key",
            {O.AGGREGATION},
        ),
        ("SELECT DISTINCT key FROM s", {O.DISTINCT}),
        ("SELECT key FROM s UNION SELECT key FROM t", {O.DISTINCT, O.UNION}),
        ("SELECT key FROM s UNION ALL SELECT key FROM t", {O.UNION}),
        ("SELECT key FROM s UNION ALL SELECT value FROM s", {O.UNION, O.TWICE}),
        ("SELECT s.key FROM s JOIN t ON s.key = t.key", {O.STREAM_JOIN}),
        ("SELECT a.key FROM s a JOIN s b ON a.key = b.key", {O.STREAM_JOIN, O.TWICE}),
        ("SELECT s.key FROM s LEFT JOIN d ON s.key = d.k", {O.STATIC_JOIN}),
        ("SELECT d.k FROM d JOIN s ON s.key = d.k", {O.STATIC_JOIN}),
        ("SELECT s.key FROM s JOIN (SELECT k FROM d) x ON s.key = x.k", {O.STATIC_JOIN}),
        ("SELECT key FROM s WHERE key IN (SELECT k FROM d)", {O.MEMBERSHIP}),
        ("SELECT key FROM s WHERE EXISTS (SELECT 1 FROM d)", {O.MEMBERSHIP}),
        ("SELECT key FROM s LIMIT 5", {O.LIMIT}),
        ("SELECT key FROM s ORDER BY key", {O.SORT}),
        ("SELECT key FROM s SORT BY key", {O.SORT}),
        ("SELECT row_number() OVER (PARTITION BY key ORDER BY value) n FROM s", {O.WINDOW, O.SORT}),
        ("SELECT explode(array(key, value)) v FROM s", {O.GENERATOR}),
        ("SELECT stack(2, key, value) FROM s", {O.GENERATOR}),
        ("SELECT json_tuple(value, 'a') FROM s", {O.GENERATOR}),
        ("SELECT key, v FROM s LATERAL VIEW explode(array(value)) e AS v", {O.GENERATOR}),
        ("SELECT key, v FROM s, LATERAL explode(array(value)) AS e(v)", {O.GENERATOR}),
        ("SELECT key, now() at FROM s", {O.CURRENT_TIME}),
        ("SELECT key, current_timestamp() at, current_date() day FROM s", {O.CURRENT_TIME}),
        ("SELECT key FROM s TABLESAMPLE (50 PERCENT)", {O.SAMPLE}),
        ("SELECT key FROM s DISTRIBUTE BY key", {O.SHUFFLE}),
        ("SELECT /*+ REPARTITION(3) */ key FROM s", {O.REPARTITION}),
        ("SELECT /*+ BROADCAST(d) */ s.key FROM s JOIN d ON s.key = d.k", {O.STATIC_JOIN}),
    ],
)
def test_a_text_says_what_it_asks_for(text: str, found: set[SqlOperator]) -> None:
    assert asked(text) == Operators(frozenset(found))


def test_a_function_that_nobody_knows_may_be_anything() -> None:
    assert asked("SELECT mine(key), now() FROM s").unknown == ("mine",)


@pytest.mark.parametrize("text", ["SELEC key FRM s", "SELECT 'open", "", "DROP TABLE s"])
def test_a_text_that_cannot_be_read_is_left_to_spark(text: str) -> None:
    assert asked(text) == Operators(readable=False)


@pytest.mark.parametrize("text", ["SELECT key FROM s", "not a text at all"])
def test_a_watermark_of_a_source_is_known_without_the_text(text: str) -> None:
    marked = asked(text, watermark={"column": "timestamp", "delay": "10 seconds"})
    assert marked.used == {SqlOperator.WATERMARK}


@given(st.text(max_size=60))
def test_no_text_breaks_the_reading(text: str) -> None:
    assert isinstance(asked(f"SELECT {text} FROM s").used, frozenset)
