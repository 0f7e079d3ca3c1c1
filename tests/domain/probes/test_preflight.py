"""What is said of a preflight's findings: verdicts, ways out, and what was not tried."""

from typing import Any

import pytest

from queries.domain.probes.plan_comparison import ShapeDifference
from queries.domain.probes.plan_shapes import OperatorShape, Shapes
from queries.domain.probes.preflight import (
    PreflightRequest,
    PreflightVerdict,
    SparkChange,
    digest,
    judge,
    sentence,
)
from queries.domain.probes.questions import (
    AttemptEnd,
    PlanSeen,
    PreflightAttempt,
    ProbeResult,
    Tried,
)
from queries.domain.sparks import Written

PASSED = (
    Tried(PreflightAttempt.REPLAY, AttemptEnd.PASSED, 7, 20, 400),
    Tried(PreflightAttempt.FRESH, AttemptEnd.PASSED, 8, 5, 300),
)
PROJECT: dict[str, Any] = {"op": "Project", "streaming": True, "children": []}
COLUMNS = (("value", "string"),)


def spec(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "sql",
        "sources": [{"name": "f", "format": "rate"}],
        "sql": "SELECT count(*) AS n FROM f",
        "sink": {"format": "noop", "output_mode": "update"},
        **changes,
    }


def python(**changes: Any) -> dict[str, Any]:
    return {"kind": "python", "function": "m:f", **changes}


def aggregated(function: str) -> dict[str, Any]:
    source = {"op": "StreamingRelation", "streaming": True, "children": []}
    parts = {"keys": [], "expressions": [], "aggregates": [function]}
    return {"op": "Aggregate", "streaming": True, **parts, "children": [source]}


def found(*tried: Tried, sink: str = "noop", **changes: Any) -> ProbeResult:
    plan = PlanSeen(PROJECT, "update", COLUMNS)
    return ProbeResult("done", done=True, tried=tried, sink=sink, **{"plan": plan, **changes})


def failed(
    error_class: str = "", root: str = "", attempt: PreflightAttempt = PreflightAttempt.REPLAY
) -> Tried:
    error = {"error_class": error_class, "type_name": "X", "root_cause": root, "message": root}
    return Tried(attempt, AttemptEnd.FAILED, error=error)


def test_what_spark_took_has_passed() -> None:
    judged = judge(PreflightRequest(spec()), found(*PASSED))
    assert judged["verdict"] is PreflightVerdict.PASSED
    assert [each["end"] for each in judged["tries"]] == ["passed", "passed"]
    assert judged["not_tried"] == []
    assert sentence(judged) == ""


@pytest.mark.parametrize(
    ("tried", "category", "says"),
    [
        (
            failed("STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"),
            "checkpoint incompatible",
            "a different version",
        ),
        (
            failed(root="There are [1] sources in the checkpoint offsets and now there are [2]"),
            "checkpoint incompatible",
            "number of sources",
        ),
        (
            failed(root="UnknownTopicOrPartitionException: gone", attempt=PreflightAttempt.FRESH),
            "connection",
            "does not exist on the broker",
        ),
    ],
)
def test_what_spark_refuses_has_its_meaning_and_a_way_out(
    tried: Tried, category: str, says: str
) -> None:
    judged = judge(PreflightRequest(spec()), found(tried))
    assert judged["verdict"] is PreflightVerdict.FAILED
    told = judged["tries"][0]
    assert told["category"] == category
    assert says in told["meaning"]
    assert told["way_out"]
    assert sentence(judged).startswith(told["label"])


def test_a_definition_that_cannot_be_read_fails_where_it_was() -> None:
    error = {"error_class": "UNRESOLVED_COLUMN", "root_cause": "no column x", "message": ""}
    judged = judge(PreflightRequest(spec()), found(error=error, plan=None))
    assert judged["verdict"] is PreflightVerdict.FAILED
    assert judged["tries"][0]["attempt"] == "build"
    late = judge(
        PreflightRequest(spec()), found(*PASSED, error={"root_cause": "Not finished within 60 s."})
    )
    assert "done" in late["tries"][-1]["label"]


def test_what_is_not_done_in_its_time_is_no_pass() -> None:
    tried = Tried(PreflightAttempt.FRESH, AttemptEnd.LATE, ms=45_000)
    judged = judge(PreflightRequest(spec(), attempt_limit_s=45), found(tried))
    assert judged["verdict"] is PreflightVerdict.FAILED
    assert sentence(judged) == "New data at the source: Not finished within 45 s."


def test_differences_that_spark_accepts_are_named_in_the_authors_words() -> None:
    asked = PreflightRequest(
        spec(sql="SELECT max(d) FROM f"), old_spec=spec(sql="SELECT sum(d) FROM f")
    )
    result = found(
        *PASSED,
        plan=PlanSeen(aggregated("max(d#1)"), "update"),
        old_plan=PlanSeen(aggregated("sum(d#9)"), "update"),
    )
    judged = judge(asked, result)
    assert judged["verdict"] is PreflightVerdict.DIFFERS
    assert judged["differences"] == [{"what": "aggregate", "old": "SUM(d)", "new": "MAX(d)"}]


def test_an_old_plan_that_is_gone_leaves_the_texts() -> None:
    asked = PreflightRequest(
        spec(sql="SELECT max(d) FROM f"), old_spec=spec(sql="SELECT sum(d) FROM f")
    )
    for gone in (PlanSeen(missing="its topic is gone"), None):
        judged = judge(asked, found(*PASSED, old_plan=gone))
        assert judged["differences"] == [{"what": "aggregate", "old": "SUM(d)", "new": "MAX(d)"}]
    unreadable = PreflightRequest(spec(sql="SELECT ((("), old_spec=spec())
    judged = judge(unreadable, found(*PASSED))
    assert judged["not_tried"] == [
        "the comparison with the previous definition: the probe driver did not get that far"
    ]
    both = PreflightRequest(spec(), old_spec=spec(sql="SELECT ((("))
    nodes = PlanSeen(PROJECT, "update")
    assert judge(both, found(*PASSED, old_plan=nodes))["verdict"] is PreflightVerdict.PASSED


def test_python_is_compared_by_its_plans_and_what_they_cannot_show_is_said() -> None:
    asked = PreflightRequest(python(), old_spec=python())
    result = found(
        *PASSED,
        plan=PlanSeen(aggregated("max(d#1)"), "update"),
        old_plan=PlanSeen(aggregated("sum(d#9)"), "update"),
    )
    judged = judge(asked, result)
    assert judged["differences"] == [{"what": "aggregate", "old": "sum(d)", "new": "max(d)"}]
    assert "Python functions" in judged["not_tried"][0]
    asked = PreflightRequest(python(), old_missing="its code: the copy is gone")
    judged = judge(asked, found(*PASSED))
    assert judged["not_tried"][0] == "the comparison with its code: the copy is gone"


def test_pinned_configuration_is_a_difference() -> None:
    asked = PreflightRequest(
        spec(), pinned=(ShapeDifference("spark.sql.shuffle.partitions", "4", "8"),)
    )
    judged = judge(asked, found(*PASSED))
    assert judged["verdict"] is PreflightVerdict.DIFFERS
    assert judged["pinned"] == [{"what": "spark.sql.shuffle.partitions", "old": "4", "new": "8"}]


def test_another_spark_is_reported_with_its_plan_where_the_old_one_is_known() -> None:
    old = Shapes((OperatorShape("aggregation"),), "update")
    change = SparkChange("4.2", "4.3", Written(), Written(), old)
    plan = PlanSeen(aggregated("sum(value)"), "update", COLUMNS)
    told = judge(PreflightRequest(spec(), spark=change), found(*PASSED, plan=plan))["spark"]
    assert (told["from"], told["to"], told["plan"]) == ("4.2", "4.3", ["aggregation"] * 2)
    stateless = judge(PreflightRequest(spec(), spark=change), found(*PASSED))["spark"]
    assert stateless["plan"] == ["aggregation", "none"]
    unknown = SparkChange("4.2", "4.3", Written(), Written())
    assert judge(PreflightRequest(spec(), spark=unknown), found(*PASSED))["spark"]["plan"] is None
    assert judge(PreflightRequest(spec(), spark=change), found(plan=None))["spark"]["plan"] is None


@pytest.mark.parametrize(
    ("sink", "tried", "said"),
    [
        ("foreachBatch", PASSED, "foreachBatch"),
        ("foreach", PASSED, "the code of foreach:"),
        ("kafka", PASSED, "writing to Kafka"),
        ("delta", PASSED, "writing to delta"),
        (
            "console",
            (*PASSED, Tried(PreflightAttempt.TRIGGER, AttemptEnd.PASSED)),
            "running as real-time",
        ),
        ("noop", (Tried(PreflightAttempt.FRESH, AttemptEnd.NOTHING),), "new data"),
    ],
)
def test_what_was_not_tried_is_said(sink: str, tried: tuple[Tried, ...], said: str) -> None:
    asked = PreflightRequest(
        spec(trigger={"kind": "real_time"}, sink={"format": "x", "options": {"topic": "t"}})
    )
    judged = judge(asked, found(*tried, sink=sink))
    assert [text for text in judged["not_tried"] if said in text]
    assert judged["verdict"] is PreflightVerdict.PASSED


def test_a_file_sink_that_was_tried_leaves_nothing_untried() -> None:
    tried = (*PASSED, Tried(PreflightAttempt.SINK, AttemptEnd.PASSED))
    assert judge(PreflightRequest(spec()), found(*tried, sink="parquet"))["not_tried"] == []
    asked = PreflightRequest(
        spec(), copy_missing="the checkpoint: it holds no batch yet", is_new=True
    )
    judged = judge(asked, found(*PASSED))
    assert judged["not_tried"] == ["the checkpoint: it holds no batch yet"]
    assert judged["verdict"] is PreflightVerdict.PASSED


@pytest.mark.parametrize("end", [AttemptEnd.PASSED, AttemptEnd.FAILED])
def test_a_checkpoint_that_was_not_tried_is_no_pass(end: AttemptEnd) -> None:
    asked = PreflightRequest(spec(), copy_missing="the checkpoint: it is not local")
    verdict = judge(asked, found(Tried(PreflightAttempt.FRESH, end)))["verdict"]
    assert verdict is (
        PreflightVerdict.FAILED if end is AttemptEnd.FAILED else PreflightVerdict.INCOMPLETE
    )


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ((("n", "bigint"),), {"topic": "t"}, "there is no value column"),
        ((("value", "bigint"),), {"topic": "t"}, "the value column is bigint"),
        ((("key", "int"), ("value", "binary")), {"topic": "t"}, "the key column is int"),
        ((("value", "string"),), {}, "names the topic"),
        ((("value", "string"), ("topic", "string")), {}, ""),
        ((("key", "binary"), ("value", "string")), {"topic": "t"}, ""),
    ],
)
def test_columns_that_kafka_would_refuse_are_named(
    columns: tuple[tuple[str, str], ...], options: dict[str, str], said: str
) -> None:
    asked = PreflightRequest(spec(sink={"format": "kafka", "options": options}))
    judged = judge(asked, found(*PASSED, sink="kafka", plan=PlanSeen(PROJECT, "update", columns)))
    assert (judged["verdict"] is PreflightVerdict.FAILED) == bool(said)
    assert said in sentence(judged)


def test_partitions_beyond_the_cores_of_a_trigger_that_holds_them_are_named() -> None:
    streaming = spec(trigger={"kind": "continuous", "interval": "1 second"})
    read = found(*PASSED, partitions={"flights": 5})
    judged = judge(PreflightRequest(streaming, cores=2), read)
    assert judged["verdict"] is PreflightVerdict.FAILED
    assert "flights has 5" in sentence(judged)
    assert judge(PreflightRequest(streaming, cores=5), read)["verdict"] is PreflightVerdict.PASSED
    assert judge(PreflightRequest(spec(), cores=2), read)["verdict"] is PreflightVerdict.PASSED


def test_a_definitions_digest_does_not_hang_on_its_description_or_defaults() -> None:
    assert digest(spec()) == digest(spec(description="words", conf={}))
    assert digest(spec()) != digest(spec(sql="SELECT 1"))
    assert digest({"kind": "of old"}) != digest({"kind": "of older"})
