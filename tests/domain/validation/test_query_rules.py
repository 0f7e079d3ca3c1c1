"""A definition that cannot work is refused with field, value and way out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions import parsing
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import Invalid, Problem
from queries.domain.validation import application_rules, query_rules
from queries.domain.validation.application_rules import Root, ValidationContext

FILES: dict[str, Any] = {
    "name": "flights",
    "format": "json",
    "schema": "id INT, at TIMESTAMP, day STRING, delay INT",
    "options": {"path": "/data/in"},
}
RATE: dict[str, Any] = {"name": "ticks", "format": "rate"}
KAFKA: dict[str, Any] = {
    "name": "ticks",
    "format": "kafka",
    "options": {"kafka.bootstrap.servers": "h:9092", "subscribe": "in"},
}
TO_KAFKA: dict[str, Any] = {
    "format": "kafka",
    "output_mode": "update",
    "options": {"kafka.bootstrap.servers": "h:9092", "topic": "out"},
}
TO_FILES: dict[str, Any] = {"format": "parquet", "options": {"path": "/data/out"}}


def sql(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "sql",
        "sources": [RATE],
        "sql": "SELECT value FROM ticks",
        "sink": {"format": "noop"},
        **changes,
    }


def python(**changes: Any) -> dict[str, Any]:
    return {"kind": "python", "function": "job:build", **changes}


def files(**changes: Any) -> dict[str, Any]:
    return sql(sources=[{**FILES, **changes}], sql="SELECT id FROM flights")


def found(
    raw: dict[str, Any],
    *,
    application: dict[str, Any] | None = None,
    pools: tuple[str, ...] = (),
    surroundings: ValidationContext | None = None,
) -> list[Problem]:
    """Return the problems of a query's JSON form, those of its shape included."""
    default = {"connectors": ["kafka"], "python_path": ["/code"]}
    try:
        return query_rules.query_problems(
            parsing.parse_query(raw),
            application=ApplicationSpec.model_validate(application or default),
            pools=pools,
            surroundings=surroundings or ValidationContext(secret_env=("DB_PASSWORD",)),
        )
    except Invalid as error:
        return list(error.problems)


def said(problems: list[Problem]) -> dict[str, str]:
    return {problem.field: f"{problem.message} {problem.way_out}" for problem in problems}


@pytest.mark.parametrize(
    "raw",
    [
        sql(),
        files(),
        sql(sink=TO_FILES),
        sql(sink={**TO_FILES, "partition_by": ["value"]}),
        sql(sources=[KAFKA], sink=TO_KAFKA),
        sql(sink={"format": "memory"}),
        sql(sources=[{"name": "t", "format": "socket", "options": {"host": "h", "port": 9999}}],
            sql="SELECT value FROM t"),
        sql(sources=[{**FILES, "format": "text", "schema": ""}], sql="SELECT * FROM flights"),
        sql(
            tables=[{"name": "names", "format": "csv", "options": {"path": "/data/names"}}],
            sql="SELECT t.value FROM ticks t JOIN names n ON t.value = n.id",
        ),
        files(watermark={"column": "at", "delay": "10 minutes"}),
        files(watermark={"column": "AT", "delay": "10 minutes"}),
        files(schema="id INT, `a, b` STRING, m MAP<STRING, ARRAY<INT>>, d DECIMAL(10, 2), c: INT"),
        files(schema="id INT COMMENT 'a, (b', x STRUCT<y: INT NOT NULL> NOT NULL"),
        python(),
        python(sink=TO_FILES, params={"table": "t", "limit": 3, "token_column": "t"}),
        python(params={"password": "env:DB_PASSWORD"}),
        sql(sources=[{**KAFKA, "options": {**KAFKA["options"],
            "kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": "file:jaas"}}]),
        sql(sources=[{**FILES, "options": {"path": "s3a://bucket/in/*.json",
            "maxFilesPerTrigger": 20, "multiLine": True}}], sql="SELECT * FROM flights"),
    ],
)  # fmt: skip
def test_what_works_is_taken(raw: dict[str, Any]) -> None:
    assert found(raw) == []


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        ({}, "kind", "does not specify the kind"),
        ({"kind": "scala"}, "kind", "'sql', 'python'"),
        (sql(sqll="x"), "sqll", "is not a field"),
        ({"kind": "sql", "sources": []}, "sql", "is missing"),
        (sql(sources=[{"format": "rate"}]), "sources.0.name", "is missing"),
        (sql(trigger={"kind": "sometimes"}), "trigger.kind", "processing_time"),
        (sql(trigger={"kind": "continuous"}), "trigger.interval", "is missing"),
        (sql(sink={"format": "noop", "output_mode": "upsert"}), "sink.output_mode", "'append'"),
        (sql(sql=7), "sql", "should be a valid string"),
        (sql(description="x" * 2001), "description", "at most 2000"),
        (sql(sources=[]), "sources", "at least one streaming source"),
        (sql(sources=[{"name": "my table", "format": "rate"}]), "sources.0.name", "letters"),
        (sql(sources=[RATE, {**RATE, "name": "TICKS"}]), "sources.1.name", "sources.0"),
        (sql(sources=[{**RATE, "format": "jdbc"}]), "sources.0.format", "rate-micro-batch"),
        (sql(sources=[{**RATE, "schema": "a INT"}]), "sources.0.schema", "a fixed schema"),
        (files(schema=""), "sources.0.schema", "DDL"),
        (files(schema="id NUMBER"), "sources.0.schema", "the type NUMBER"),
        (files(schema="id INT, ID INT"), "sources.0.schema", "twice"),
        (files(schema="id INT, a STRUCT<b: INT"), "sources.0.schema", "are not closed"),
        (files(schema="id INT)"), "sources.0.schema", "are not closed"),
        (files(schema="id"), "sources.0.schema", "does not give a name and a type"),
        (files(options={}), "sources.0.options.path", "is missing"),
        (files(options={"path": "in"}), "sources.0.options.path", "is not absolute"),
        (files(options={"path": "file:in"}), "sources.0.options.path", "is not absolute"),
        (files(options={"path": "/data/../in"}), "sources.0.options.path", '".."'),
        (
            files(options={"path": "/in", "maxFilesPerTrigger": "many"}),
            "sources.0.options.maxFilesPerTrigger",
            "whole number",
        ),
        (
            files(options={"path": "/in", "checkpointLocation": "/c"}),
            "sources.0.options.checkpointLocation",
            "is set by Headgate",
        ),
        (files(watermark={"column": "when", "delay": "1 hour"}), "sources.0.watermark.column",
         "Choose id, at, day, delay"),
        (files(watermark={"column": "day", "delay": "1 hour"}), "sources.0.watermark.column",
         "must be a timestamp"),
        (files(watermark={"column": "at", "delay": "1 month"}), "sources.0.watermark.delay",
         "is not a valid interval"),
        (files(schema="x", watermark={"column": "at", "delay": "1"}), "sources.0.watermark.delay",
         "is not a valid interval"),
        (sql(sources=[{**KAFKA, "options": {"subscribe": "t"}}]),
         "sources.0.options.kafka.bootstrap.servers", "is missing"),
        (sql(sources=[{**KAFKA, "options": {"kafka.bootstrap.servers": "h:1"}}]),
         "sources.0.options.subscribe", "exactly one of"),
        (sql(sources=[{**KAFKA, "options": {**KAFKA["options"], "assign": "{}"}}]),
         "sources.0.options.subscribe", "in several ways"),
        (sql(sources=[{"name": "ticks", "format": "socket"}]), "sources.0.options.port", "9999"),
        (sql(tables=[{"name": "t", "format": "rate"}]), "tables.0.format", "a supported format"),
        (sql(tables=[{**FILES, "name": "ticks"}]), "tables.0.name", "sources.0"),
        (sql(sink=None), "sink", "is missing"),
        (sql(sink={"format": "parquet"}), "sink.options.path", "is missing"),
        (sql(sink={"format": "lake"}), "sink.format", "not a supported format"),
        (sql(sink={**TO_FILES, "output_mode": "update"}), "sink.output_mode", "only append"),
        (sql(sink={"format": "noop", "partition_by": ["a"]}), "sink.partition_by", "only files"),
        (sql(sink={"format": "noop", "options": {"queryName": "x"}}), "sink.options.queryName",
         "query's name"),
        (sql(sink={"format": "kafka"}), "sink.options.kafka.bootstrap.servers", "is missing"),
        (
            {**files(), "sink": {"format": "json", "options": {"path": "/data/in/out"}}},
            "sink.options.path",
            "read its own output",
        ),
        (sql(sink={"format": "avro", "options": {"path": "/o"}}), "sink.format", "avro connector"),
        (sql(pool="fast"), "pool", "Create the pool first"),
        (python(function="job.build"), "function", "module:function"),
        (python(function="../job:build"), "function", "module:function"),
        (python(params={"api": {"password": "hunter2"}}), "params.api.password", "env:NAME"),
        (python(params={"url": "postgres://u:pw@h/db"}), "params.url", "in plain text"),
        (python(params={"password": "env:OTHER"}), "params.password", "HEADGATE_SECRET_ENV"),
        (sql(sink={"format": "noop", "options": {"apiKey": "k"}}), "sink.options.apiKey",
         "in plain text"),
        (
            sql(sources=[{**KAFKA, "options": {**KAFKA["options"],
                "kafka.sasl.jaas.config": 'Module required password="p";'}}]),
            "sources.0.options.kafka.sasl.jaas.config",
            "in plain text",
        ),
        (sql(sink={"format": "noop", "options": {"x": "••••••"}}), "sink.options.x", "the dots"),
        (sql(conf={"spark.executor.memory": "2g"}), "conf.spark.executor.memory", "application"),
        (sql(conf={"spark.sql.warehouse.dir": "/w"}), "conf.spark.sql.warehouse.dir",
         "fixed when the driver starts"),
        (sql(conf={"spark.sql.extensions": "x"}), "conf.spark.sql.extensions", "cannot be set"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_by_field(raw: dict[str, Any], field: str, says: str) -> None:
    problems = found(raw)
    assert field in said(problems), said(problems)
    assert says in said(problems)[field]


def test_kafka_without_its_connector_is_refused_with_the_way_out() -> None:
    problems = found(sql(sources=[KAFKA], sink=TO_KAFKA), application={"memory": "1g"})
    assert said(problems)["sources.0.format"] == (
        "needs the kafka connector, which the application does not have. "
        'Add "kafka" to the application\'s connectors.'
    )
    assert "sink.format" in said(problems)


def test_a_function_needs_a_python_path() -> None:
    problems = found(python(), application={"memory": "1g"})
    assert "has no code" in said(problems)["function"]


def test_a_secret_is_not_repeated_in_the_problem_it_makes() -> None:
    problems = found(python(params={"password": "hunter2", "url": "db://u:hunter2@h"}))
    assert len(problems) == 2
    assert all("hunter2" not in str(problem) for problem in problems)
    shape = found(sql(sink={"format": "noop", "options": {"password": ["hunter2"]}}))
    assert shape
    assert all("hunter2" not in str(problem) for problem in shape)


def test_a_pool_is_one_of_the_applications() -> None:
    assert found(sql(pool="fast"), pools=("fast",)) == []
    assert found(sql(pool="default")) == []
    problems = found(sql(pool="quick"), pools=("slow", "fast"))
    assert "It has" not in said(problems)["pool"]
    assert "Choose fast, slow." in said(problems)["pool"]
    problems = found(sql(pool="fast"), pools=("fast",), application={"scheduler_mode": "FIFO"})
    assert "FIFO" in said(problems)["pool"]


@pytest.mark.parametrize(
    ("kind", "older", "newer"), [("VARIANT", "3.5", "4.0"), ("TIME(3)", "4.0", "4.1")]
)
def test_a_type_that_the_applications_spark_does_not_have_is_refused(
    kind: str, older: str, newer: str
) -> None:
    raw = files(schema=f"id INT, x {kind}")
    refused = said(found(raw, application={"spark": older})).get("sources.0.schema", "")
    assert f"contains the type {kind[:4]}" in refused
    assert f"which Spark {older} does not have. Use Spark {newer} or newer" in refused
    assert "sources.0.schema" not in said(found(raw, application={"spark": newer}))


@pytest.mark.guarantee("G-SPARK-1")
def test_a_trigger_that_the_applications_spark_does_not_have_is_refused() -> None:
    raw = sql(trigger={"kind": "real_time"}, sink={"format": "console", "output_mode": "update"})
    older, newer = ({"spark": spark, "connectors": ["kafka"]} for spark in ("4.1", "4.2"))
    refused = said(found(raw, application=older)).get("trigger.kind", "")
    assert "does not exist in the application's Spark 4.1." in refused
    assert "Use Spark 4.2 or newer" in refused
    assert "trigger.kind" not in said(found(raw, application=newer))


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        (
            {"sql": "SELECT count(*) AS n FROM ticks"},
            "trigger.kind",
            "is not supported by Spark 4.2 for stateful queries, and this query aggregates.",
        ),
        (
            {
                "sql": "SELECT value FROM ticks",
                "sink": {
                    "format": "console",
                    "output_mode": "update",
                    "options": {"asyncProgressTrackingEnabled": "true"},
                },
            },
            "sink.options.asyncProgressTrackingEnabled",
            "is not supported in real-time mode by Spark 4.2.",
        ),
    ],
)
def test_what_real_time_mode_learned_in_4_3_is_refused_before(
    changes: dict[str, Any], field: str, says: str
) -> None:
    sink = {"format": "console", "output_mode": "update"}
    raw = sql(**{"sources": [KAFKA], "trigger": {"kind": "real_time"}, "sink": sink} | changes)
    around = {"connectors": ["kafka"], "conf": {"spark.sql.shuffle.partitions": "1"}}
    older, newer = ({"spark": spark, **around} for spark in ("4.2", "4.3"))
    assert says in said(found(raw, application=older)).get(field, "")
    assert "Use Spark 4.3 or newer" in said(found(raw, application=older))[field]
    assert says not in said(found(raw, application=newer)).get(field, "")


def test_configuration_that_the_applications_spark_would_ignore_is_refused() -> None:
    key = "spark.sql.streaming.stateStore.rowChecksum.enabled"
    raw = sql(conf={key: "true"})
    assert "which would ignore it" in said(found(raw, application={"spark": "4.1"}))[f"conf.{key}"]
    assert found(raw, application={"spark": "4.2"}) == []
    (problem,) = (
        one
        for one in application_problems({"spark": "4.1", "conf": {key: "true"}})
        if one.field != "spark"
    )
    assert problem.sentence().endswith("Use Spark 4.2 or newer, or remove it.")


@pytest.mark.parametrize("name", ["a", "flights-2.by_hour", "0", "x" * 63])
def test_a_name_that_can_be_used(name: str) -> None:
    assert query_rules.name_problems(name) == []


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a b", "a/b", "x" * 64, "ä", "a\n"])
def test_a_name_that_cannot_be_used(name: str) -> None:
    (problem,) = query_rules.name_problems(name)
    assert "1 to 63" in problem.way_out


def test_a_name_that_is_taken() -> None:
    (problem,) = query_rules.name_problems("a", in_use=True, what="application")
    assert problem.message == "is the name of another application."


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        ({"master": "mesos://here:5050"}, "master", "local[N]"),
        ({"master": "local[two]"}, "master", "local[N]"),
        ({"memory": "lots"}, "memory", "1536m"),
        ({"memory": "300m"}, "memory", "512m or more"),
        ({"listeners": ["mod"], "python_path": ["/code/a"]}, "listeners.0", "module:Class"),
        ({"listeners": ["mod:Class"]}, "listeners.0", "has no code"),
        ({"connectors": ["pulsar"]}, "connectors.0", "Choose kafka."),
        (
            {"connectors": ["pulsar"]},
            "connectors.0",
            "a folder named pulsar in HEADGATE_CONNECTORS",
        ),
        ({"policy": {"base_delay_s": 10, "max_delay_s": 5}}, "policy.max_delay_s", "less than"),
        ({"policy": {"poison_limit": 0}}, "policy.poison_limit", "greater than or equal"),
        ({"scheduler_mode": "ROUND_ROBIN"}, "scheduler_mode", "'FIFO' or 'FAIR'"),
        ({"spark": "4.2"}, "spark", "Run `make spark ARGS=4.2` there, or choose 4.3."),
        ({"spark": "3.4"}, "spark", "'3.5', '4.0', '4.1', '4.2' or '4.3'"),
        ({"spark": "4.2", "connectors": ["s4"]}, "connectors.0", "for Spark 4.2"),
        ({"spark": "4.2", "connectors": ["s4"]}, "connectors.0", "a folder named 4.2/s4"),
        ({"colour": "red"}, "colour", "is not a field"),
        ({"python_path": ["code"]}, "python_path.0", "is not absolute"),
        ({"python_path": ["/etc"]}, "python_path.0", "Put it under /code"),
        ({"python_path": ["/code/gone"]}, "python_path.0", "is not a folder"),
        ({"python_path": ["/code/ours"]}, "python_path.0", "named queries"),
        ({"env": {"TOKEN": "••••••"}}, "env.TOKEN", "still contains the dots"),
        ({"env": {"TOKEN": "abc"}}, "env.TOKEN", "in plain text"),
        ({"memory": None}, "memory", "should be a valid string"),
    ],
)
def test_an_application_that_cannot_work_is_refused_by_field(
    raw: dict[str, Any], field: str, says: str
) -> None:
    problems = said(application_problems(raw))
    assert field in problems, problems
    assert says in problems[field]


def application_problems(raw: dict[str, Any]) -> list[Problem]:
    try:
        spec = parsing.parse_application(raw)
    except Invalid as error:
        return list(error.problems)
    known = {
        "code": Root("code", exists=False, allowed=False, modules=frozenset()),
        "/etc": Root("/etc", exists=True, allowed=False, modules=frozenset()),
        "/code/a": Root("/code/a", exists=True, allowed=True, modules=frozenset({"job"})),
        "/code/gone": Root("/code/gone", exists=False, allowed=True, modules=frozenset()),
        "/code/ours": Root("/code/ours", exists=True, allowed=True, modules=frozenset({"queries"})),
    }
    return application_rules.application_problems(
        spec,
        surroundings=ValidationContext(
            code_roots=("/code",),
            roots=tuple(known[path] for path in spec.python_path),
            connectors=frozenset({"kafka"}),
            secret_env=("DB_PASSWORD",),
        ),
    )


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"master": "local[*]", "memory": "2g"},
        {"master": "local", "memory": "512m"},
        {"master": "local[4, 2]"},
        {"master": "spark://10.0.0.1:7077,10.0.0.2:7077"},
        {"connectors": ["kafka"]},
        {"listeners": ["mod:Class"], "python_path": ["/code/a"]},
        {"env": {"DB_PASSWORD": "env:DB_PASSWORD", "MODE": "trial"}},
    ],
)
def test_an_application_that_works_is_taken(raw: dict[str, Any]) -> None:
    assert application_problems(raw) == []


def test_without_connectors_the_way_out_is_the_command_that_gets_it() -> None:
    problems = application_rules.application_problems(
        ApplicationSpec(connectors=("kafka", "avro")),
        surroundings=ValidationContext(recipes=frozenset({"avro", "kafka"})),
    )
    assert [one.way_out for one in problems] == [
        "Install it with `make kafka`.",
        "Install it with `make connector ARGS=avro`.",
    ]
    problems = application_rules.application_problems(
        ApplicationSpec(spark="4.1", connectors=("kafka",)),
        surroundings=ValidationContext(
            sparks=frozenset({"4.1", "4.3"}), recipes=frozenset({"avro", "kafka"})
        ),
    )
    (way_out,) = [one.way_out for one in problems]
    assert way_out == 'Install it with `make connector ARGS="kafka --spark 4.1"`.'


def test_without_allowed_roots_the_way_out_names_the_setting() -> None:
    problems = application_rules.application_problems(
        ApplicationSpec(python_path=("/x",)),
        surroundings=ValidationContext(
            roots=(Root("/x", exists=True, allowed=False, modules=frozenset()),)
        ),
    )
    assert "HEADGATE_CODE_ROOTS" in problems[0].way_out


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a<b"}, "name"),
        ({"name": "default"}, "name"),
        ({"name": "a", "weight": 0}, "weight"),
        ({"name": "a", "mode": "LIFO"}, "mode"),
        ({}, "name"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(raw: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as error:
        parsing.parse_pool(raw)
    assert [problem.field for problem in error.value.problems] == [field]


def test_a_pool_that_can_be_is_taken() -> None:
    pool = parsing.parse_pool({"name": "light one", "min_share": 1})
    assert (pool.name, pool.weight, pool.min_share, pool.mode) == ("light one", 1, 1, "FAIR")


@pytest.mark.parametrize("raw", [sql(), files(), python(), sql(sink=TO_FILES)])
def test_the_json_form_is_read_back_as_it_was_written(raw: dict[str, Any]) -> None:
    form = parsing.parse_query(raw)
    assert parsing.parse_query(parsing.as_json(form)) == form


def test_numbers_and_truth_values_of_options_become_text() -> None:
    form = parsing.parse_query(
        sql(sink={"format": "console", "options": {"numRows": 5, "truncate": False}})
    )
    assert parsing.as_json(form)["sink"]["options"] == {"numRows": "5", "truncate": "false"}


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
fields = st.sampled_from(["kind", "sources", "tables", "sql", "sink", "trigger", "pool", "conf"])


@given(st.dictionaries(fields, json), st.sampled_from([sql(), files(), python()]))
def test_no_input_breaks_the_validation(changes: dict[str, Any], base: dict[str, Any]) -> None:
    for problem in found({**base, **changes}):
        assert problem.field
        assert problem.message
        assert len(problem.value) <= 200


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"params": {"day": "{date}"}}, None),
        ({"params": {"month": "{date}"}}, "schedule.params.month"),
        ({"params": {"day": 3}}, "schedule.params.day"),
        ({"cron": "daily"}, "schedule.cron"),
    ],
)
def test_a_schedule_gives_values_that_the_query_accepts(
    changes: dict[str, Any], field: str | None
) -> None:
    schedule = {"cron": "30 2 * * *", **changes}
    raw = python(trigger={"kind": "available_now"}, params={"day": ""}, schedule=schedule)
    assert list(said(found(raw))) == ([field] if field else [])
