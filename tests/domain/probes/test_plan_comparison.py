"""What Spark accepts in silence is named: tables of plans as Spark 4.3 writes them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.spec import SqlQuery
from queries.domain.probes.plan_comparison import (
    ShapeDifference,
    compare,
    in_words,
    of_text,
    pinned,
)
from queries.domain.probes.plan_shapes import OperatorShape, Shapes, conjuncts, human, of_plan

TIME = "precisetimestampconversion(sched#3-T600000ms, TimestampType, LongType)"


def window(slide: int, length: int, shift: int = 0, offset: int = 0) -> str:
    """Return a time window as the analyzer writes it."""
    rest = f"(({TIME} - {offset}) % {slide})"
    start = (
        f"(({TIME} - CASE WHEN ({rest} < cast(0 as bigint)) THEN ({rest} + {slide}) "
        f"ELSE {rest} END) - {shift})"
    )
    return (
        f"named_struct(start, knownnullable(precisetimestampconversion({start}, LongType, "
        f"TimestampType)), end, knownnullable(precisetimestampconversion(({start} + {length}), "
        "LongType, TimestampType)))"
    )


SESSION = (
    "named_struct(start, precisetimestampconversion(precisetimestampconversion("
    "sched#3-T600000ms, TimestampType, LongType), LongType, TimestampType), end, knownnullable("
    "precisetimestampconversion(precisetimestampconversion(cast(sched#3-T600000ms + cast("
    "5 minutes as interval) as timestamp), TimestampType, LongType), LongType, TimestampType)))"
)
HOUR = 3_600_000_000


def node(op: str, *children: dict[str, Any], streaming: bool = True, **parts: Any) -> Any:
    return {"op": op, "streaming": streaming, **parts, "children": list(children)}


SOURCE = node("StreamingRelation")


def watermarked(delay: str = "10 minutes", below: Any = SOURCE) -> Any:
    return node("EventTimeWatermark", below, column="sched#3: timestamp", delay=delay)


def delays(**changes: Any) -> Any:
    """Return the plan of an aggregation by carrier and hour, as it stands or changed."""
    made = {
        "key": "carrier#0",
        "aggregate": "avg(dep_delay#2)",
        "window": window(HOUR, HOUR),
        "delay": "10 minutes",
        "condition": "(dep_delay#2 > cast(0 as double))",
        **changes,
    }
    below = watermarked(made["delay"])
    if made["condition"]:
        below = node("Filter", below, condition=made["condition"])
    below = node("Filter", below, condition="isnotnull(sched#3-T600000ms)")
    named = [f"{made['window']} AS window#13-T600000ms", "carrier#0", "origin#1", "dep_delay#2"]
    return node(
        "Aggregate",
        node("Project", below, expressions=named),
        keys=[made["key"], "window#13-T600000ms"],
        expressions=["carrier#0", "window#13-T600000ms AS w#8-T600000ms", "avg(x#2) AS d#9"],
        aggregates=[made["aggregate"]],
    )


def shapes(plan: Any, mode: str = "update") -> Shapes:
    return of_plan(plan, mode)


def test_a_plan_is_read_in_terms_of_the_sources_columns() -> None:
    assert shapes(delays()).operators == (
        OperatorShape(
            kind="aggregation",
            keys=("carrier",),
            aggregates=("avg(dep_delay)",),
            windows=("window(sched, 1 hour)",),
            watermarks=("sched, 10 minutes",),
            filters=("dep_delay > cast(0 as double)",),
        ),
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": "origin#1"}, "grouping key: carrier → origin"),
        ({"aggregate": "max(dep_delay#2)"}, "aggregate: avg(dep_delay) → max(dep_delay)"),
        ({"aggregate": "avg(arr_delay#4)"}, "aggregate: avg(dep_delay) → avg(arr_delay)"),
        (
            {"window": window(HOUR, 2 * HOUR)},
            "window: window(sched, 1 hour) → window(sched, 2 hours, 1 hour)",
        ),
        (
            {"window": window(2 * HOUR, 2 * HOUR)},
            "window: window(sched, 1 hour) → window(sched, 2 hours)",
        ),
        (
            {"window": window(HOUR, HOUR, offset=60_000_000)},
            "window: window(sched, 1 hour) → window(sched, 1 hour, 1 hour, 1 minute)",
        ),
        (
            {"window": SESSION},
            "window: window(sched, 1 hour) → session_window(sched, 5 minutes)",
        ),
        ({"delay": "2 hours"}, "watermark: sched, 10 minutes → sched, 2 hours"),
        ({"condition": ""}, "filter removed: dep_delay > cast(0 as double)"),
        (
            {"condition": "((dep_delay#2 > cast(0 as double)) AND (origin#1 = JFK))"},
            "filter added: origin = JFK",
        ),
    ],
)
def test_each_silent_change_is_named_with_before_and_after(
    change: dict[str, Any], said: str
) -> None:
    found = compare(shapes(delays()), shapes(delays(**change)))
    assert [each.sentence() for each in found] == [said]


def test_the_same_plan_under_other_numbers_differs_in_nothing() -> None:
    text = str(delays())
    for old, new in (("#0", "#70"), ("#13-", "#83-"), ("#2)", "#72)"), ("#2'", "#72'")):
        text = text.replace(old, new)
    assert compare(shapes(delays()), shapes(eval(text))) == ()


def test_a_key_swapped_under_the_same_alias_is_seen() -> None:
    def grouped(column: str) -> Any:
        project = node("Project", SOURCE, expressions=[f"{column} AS k#24", "dep_delay#2"])
        renamed = node("Rename", project, columns=[["k#31", "k#24"], ["odd", "odd"]])
        return node("Aggregate", renamed, keys=["k#31"], expressions=[], aggregates=["count(1)"])

    found = compare(shapes(grouped("carrier#0")), shapes(grouped("origin#1")))
    assert found == (ShapeDifference("grouping key", "carrier", "origin"),)


def test_a_sliding_window_is_read_from_its_rows() -> None:
    def sliding(slide: int) -> Any:
        rows = [[window(slide, 2 * slide, shift), "carrier#0"] for shift in (0, slide)]
        output = ["window#17-T600000ms", "carrier#0"]
        expand = node("Expand", watermarked(), projections=rows, output=output)
        keys = ["carrier#0", "window#17-T600000ms"]
        return node("Aggregate", expand, keys=keys, expressions=[], aggregates=["count(1)"])

    found = compare(shapes(sliding(HOUR)), shapes(sliding(HOUR // 2)))
    assert found == (
        ShapeDifference(
            "window", "window(sched, 2 hours, 1 hour)", "window(sched, 1 hour, 30 minutes)"
        ),
    )


def test_rows_of_grouping_sets_are_told_apart() -> None:
    def sets(first: str) -> Any:
        expand = node(
            "Expand", SOURCE, projections=[[first], ["null"]], output=["k#9", "unused#10"][:1]
        )
        return node("Aggregate", expand, keys=["k#9"], expressions=[], aggregates=[])

    found = compare(shapes(sets("carrier#0")), shapes(sets("origin#1")))
    assert found == (ShapeDifference("grouping key", "carrier; null", "origin; null"),)
    empty = node("Expand", SOURCE, projections=[], output=["k#9"])
    plan = node("Aggregate", empty, keys=["k#9"], expressions=[], aggregates=[])
    assert shapes(plan).operators[0].keys == ("k",)


def test_swapped_places_of_two_aggregates_are_seen_for_state_has_no_names() -> None:
    def two(*aggregates: str) -> Any:
        return node("Aggregate", SOURCE, keys=[], expressions=[], aggregates=list(aggregates))

    found = compare(shapes(two("sum(a#1)", "sum(b#2)")), shapes(two("sum(b#2)", "sum(a#1)")))
    assert [each.sentence() for each in found] == [
        "aggregate: sum(a) → sum(b)",
        "aggregate: sum(b) → sum(a)",
    ]
    found = compare(shapes(two("sum(a#1)")), shapes(two("sum(a#1)", "sum(b#2)")))
    assert [each.sentence() for each in found] == ["aggregate added: sum(b)"]


def test_joins_deduplications_and_operators_without_words_of_their_own() -> None:
    def joined(kind: str, condition: str) -> Any:
        return node("Join", watermarked(), watermarked("1 hours"), join=kind, condition=condition)

    inner, left = joined("Inner", "(a#1 = b#2)"), joined("LeftOuter", "(a#1 = b#2)")
    assert compare(shapes(inner), shapes(left)) == (
        ShapeDifference("join", "Inner on (a = b)", "LeftOuter on (a = b)"),
    )
    assert shapes(joined("Cross", "")).operators[0].joins == ("Cross",)
    first = node("Deduplicate", watermarked(), keys=["carrier#0", "sched#3-T600000ms"])
    other = node("Deduplicate", watermarked(), keys=["carrier#0"])
    assert compare(shapes(first), shapes(other)) == (ShapeDifference("grouping key", "sched", ""),)
    custom = node("FlatMapGroupsWithState", SOURCE, text="FlatMapGroupsWithState f, [k#1], 1 min")
    longer = node("FlatMapGroupsWithState", SOURCE, text="FlatMapGroupsWithState f, [k#1], 2 min")
    assert compare(shapes(custom), shapes(longer))[0].what == "operator"
    mapped = node("Aggregate", node("MapInPandas", SOURCE, text="MapInPandas f(a#1)"), keys=[])
    plain = node("Aggregate", SOURCE, keys=[])
    moved = node("Aggregate", node("Repartition", SOURCE, text="Repartition 4, true"), keys=[])
    assert compare(shapes(plain), shapes(moved)) == ()
    assert compare(shapes(plain), shapes(mapped)) == (
        ShapeDifference("operator", "", "MapInPandas f(a)"),
    )


def test_distinct_hangs_on_what_it_selects() -> None:
    def distinct(*columns: str) -> Any:
        return node("Distinct", node("Project", SOURCE, expressions=list(columns)))

    found = compare(shapes(distinct("carrier#0")), shapes(distinct("origin#1 AS carrier#9")))
    assert found == (ShapeDifference("operator", "carrier", "origin"),)


def test_joins_with_tables_and_batch_parts_keep_no_state() -> None:
    table = node("LogicalRelation", streaming=False)
    static = node("Join", SOURCE, table, join="Inner", condition="(a#1 = b#2)")
    batch = node("Aggregate", table, streaming=False, keys=["a#1"])
    assert shapes(static).operators == ()
    assert shapes(batch).operators == ()
    assert compare(shapes(static), shapes(SOURCE, "append")) == ()


def test_output_mode_and_operators_that_came_or_went() -> None:
    found = compare(shapes(delays(), "update"), shapes(delays(), "complete"))
    assert found == (ShapeDifference("output mode", "update", "complete"),)
    found = compare(shapes(SOURCE), shapes(delays()))
    assert found == (ShapeDifference("stateful operators", "", "aggregation"),)


def test_what_cannot_be_opened_keeps_its_name() -> None:
    endless = node("Project", SOURCE, expressions=["(x#5 + 1) AS x#5", "no alias here", "#7 AS #7"])
    plan = node("Aggregate", endless, keys=["x#5", "x#5", "y#99"], expressions=[], aggregates=[])
    keys = shapes(plan).operators[0].keys
    assert keys[0].startswith("(")
    assert keys[1:] == (keys[0], "y")


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (1, "1 microsecond"),
        (2_000, "2 milliseconds"),
        (90_000_000, "90 seconds"),
        (HOUR, "1 hour"),
        (48 * HOUR, "2 days"),
    ],
)
def test_lengths_of_time_are_written_as_people_do(microseconds: int, text: str) -> None:
    assert human(microseconds) == text


@given(st.lists(st.sampled_from(["(a > 1)", "(b = 'x)')", "c"]), min_size=1, max_size=5))
def test_a_conjunction_is_taken_apart_at_its_top_only(parts: list[str]) -> None:
    plain = [part for part in parts if "'" not in part] or ["c"]
    text = plain[0]
    for part in plain[1:]:
        text = f"({text} AND {part})"
    assert len(conjuncts(text)) == len(plain)


def test_conditions_without_and_stay_whole() -> None:
    assert conjuncts("((a) OR (b))") == ("(a) OR (b)",)
    assert conjuncts("(a) OR (b)") == ("(a) OR (b)",)
    assert conjuncts("(a") == ("(a",)
    assert conjuncts("(a()") == ("(a()",)


# --- configuration and texts ----------------------------------------------------------


def test_pinned_configuration_is_named_where_the_definition_asks_otherwise() -> None:
    held = {"spark.sql.shuffle.partitions": "4", "spark.sql.x": "1"}
    wanted = {"spark.sql.shuffle.partitions": "8", "spark.sql.x": "1", "spark.other": "2"}
    assert pinned(wanted, held) == (ShapeDifference("spark.sql.shuffle.partitions", "4", "8"),)


def sql(text: str, *, mode: str = "update", watermark: str = "10 minutes") -> Shapes:
    spec = SqlQuery.model_validate(
        {
            "kind": "sql",
            "sources": [
                {
                    "name": "flights",
                    "format": "json",
                    "schema": "carrier STRING",
                    **({"watermark": {"column": "sched", "delay": watermark}} if watermark else {}),
                }
            ],
            "sql": text,
            "sink": {"format": "noop", "output_mode": mode},
        }
    )
    found = of_text(spec)
    assert found is not None
    return found


BY_CARRIER = "SELECT carrier, sum(d) AS s FROM flights WHERE d > 0 GROUP BY carrier"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "SELECT origin, sum(d) AS s FROM flights WHERE d > 0 GROUP BY 1",
            ["grouping key: carrier → origin"],
        ),
        (
            "SELECT origin AS o, sum(d) AS s FROM flights WHERE d > 0 GROUP BY o",
            ["grouping key: carrier → origin"],
        ),
        (
            "SELECT carrier, max(d) FROM flights WHERE d > 0 GROUP BY flights.carrier",
            ["grouping key: carrier → flights.carrier", "aggregate: SUM(d) → MAX(d)"],
        ),
        (
            "SELECT carrier, sum(d) FROM flights WHERE d > 0 AND x = 1 GROUP BY carrier",
            ["filter added: x = 1"],
        ),
        ("SELECT carrier, sum(d) FROM flights GROUP BY 1, 9", None),
        (
            "SELECT carrier, sum(d) FROM flights WHERE d > 0 GROUP BY carrier, "
            "window(sched, '1 hour')",
            ["window added: WINDOW(sched, '1 hour')"],
        ),
        ("SELECT carrier FROM flights", ["stateful operators: aggregation → "]),
        (
            "SELECT sum(d) FROM (SELECT max(d) AS d FROM flights GROUP BY carrier) WHERE d > 0",
            None,
        ),
    ],
)
def test_texts_are_compared_in_their_authors_words(text: str, said: list[str] | None) -> None:
    found = [each.sentence() for each in compare(sql(BY_CARRIER), sql(text))]
    if said is None:
        assert found
    elif text == "SELECT carrier FROM flights":
        assert found == ["stateful operators removed: aggregation"]
    else:
        assert found == said


def test_a_text_only_spark_can_read_has_no_shapes() -> None:
    spec = SqlQuery.model_validate({"kind": "sql", "sources": [], "sql": "SELECT FROM WHERE ((("})
    assert of_text(spec) is None
    bare = SqlQuery.model_validate(
        {
            "kind": "sql",
            "sources": [{"name": "f", "format": "rate"}],
            "sql": "SELECT count(*) FROM f",
        }
    )
    assert of_text(bare) == Shapes((OperatorShape("aggregation", aggregates=("COUNT(*)",)),), "")


def test_sparks_findings_stand_in_the_authors_words_where_both_say_the_same() -> None:
    spark = (
        ShapeDifference("window", "window(s, 1 hour)", "window(s, 2 hours)"),
        _filter("a", "b"),
    )
    text = (ShapeDifference("window", "WINDOW(s, '1 hour')", "WINDOW(s, '2 hours')"),)
    assert in_words(spark, text) == (text[0], spark[1])
    assert in_words((), text) == ()


def _filter(old: str, new: str) -> ShapeDifference:
    return ShapeDifference("filter", old, new)
