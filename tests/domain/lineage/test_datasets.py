"""What a query reads and writes, from its definition and from Spark's report."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from queries.domain.lineage.datasets import (
    BatchReport,
    Dataset,
    DatasetKind,
    KnownFrom,
    Uses,
    uses_of,
)

AT = datetime(2026, 1, 5, 3, tzinfo=UTC)
BROKERS = "b1:9092"
TOPIC, PATH, TABLE = DatasetKind.TOPIC, DatasetKind.PATH, DatasetKind.TABLE
HADOOP = {
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.warehouse": "/warehouse",
}
REST = {"spark.sql.catalog.lake.type": "rest", "spark.sql.catalog.lake.uri": "http://catalog"}


def kafka(**options: str) -> dict[str, Any]:
    return {"format": "kafka", "options": {"kafka.bootstrap.servers": BROKERS, **options}}


def part(form: str, **options: str) -> dict[str, Any]:
    return {"name": "s", "format": form, "options": options}


def sql(source: Any = None, sink: Any = None, **spec: Any) -> dict[str, Any]:
    sources = [source] if source else []
    return {"kind": "sql", "sources": sources, "sql": "SELECT * FROM s", "sink": sink, **spec}


def used(
    spec: dict[str, Any],
    conf: dict[str, str],
    told: BatchReport | None,
    *relations: str,
    **more: Any,
) -> Uses:
    """Return the uses of a definition whose SQL Spark's parser has read."""
    names = [re.findall(r"`([^`]*)`", one) or one.split(".") for one in relations]
    return uses_of(spec, conf, told, {"relations": names, "unknown": [], **more})


def read(found: Uses) -> list[Dataset]:
    return [use.dataset for use in found.reads]


def written(found: Uses) -> list[Dataset]:
    return [use.dataset for use in found.writes]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (kafka(subscribe="a, b"), [Dataset(TOPIC, BROKERS, "a"), Dataset(TOPIC, BROKERS, "b")]),
        (kafka(subscribePattern="a.*"), [Dataset(TOPIC, BROKERS, "a.*")]),
        (kafka(assign='{"a": [0, 1]}'), [Dataset(TOPIC, BROKERS, "a")]),
        (part("json", path="/data/in/"), [Dataset(PATH, "", "file:///data/in")]),
        (part("json", path="s3://lake/in"), [Dataset(PATH, "", "s3a://lake/in")]),
        (part("json", path="/data/*/in"), [Dataset(PATH, "", "file:///data/*/in")]),
        (part("delta", path="/data/t"), [Dataset(PATH, "", "file:///data/t")]),
        (part("iceberg", path="db.t", branch="main"), [Dataset(TABLE, "", "db.t")]),
        (part("iceberg", path="/data/t", branch="x"), [Dataset(PATH, "", "file:///data/t@x")]),
        (part("other", table="db.t"), [Dataset(TABLE, "", "db.t")]),
        (part("rate"), []),
        ({}, []),
    ],
)
def test_a_definition_names_its_sources(source: dict[str, Any], expected: list[Dataset]) -> None:
    found = used(sql(source), {}, None)
    assert read(found) == expected
    assert found.unknown == ()
    assert {use.known_from for use in found.reads} <= {KnownFrom.DEFINITION}


def test_tables_of_joins_are_read_too() -> None:
    found = used(sql(part("rate"), tables=[part("delta", path="/data/t")]), {}, None)
    assert read(found) == [Dataset(PATH, "", "file:///data/t")]


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        (HADOOP, Dataset(PATH, "", "file:///warehouse/db/t")),
        (REST, Dataset(TABLE, "http://catalog", "db.t")),
        ({}, Dataset(TABLE, "", "lake.db.t")),
    ],
)
def test_a_table_by_name_is_known_by_its_folder_or_by_its_catalogs_address(
    conf: dict[str, str], expected: Dataset
) -> None:
    found = used(sql(sink=part("iceberg", path="lake.db.t")), conf, None)
    assert written(found) == [expected]


DEFAULT = HADOOP | {"spark.sql.defaultCatalog": "lake"}


@pytest.mark.parametrize(
    ("relation", "conf", "expected"),
    [
        ("`delta`.`/data/t`", {}, Dataset(PATH, "", "file:///data/t")),
        ("`delta`.`/data/t@v3`", {}, Dataset(PATH, "", "file:///data/t")),
        ("`json`.`s3://lake/in`", {}, Dataset(PATH, "", "s3a://lake/in")),
        ("lake.db.t", HADOOP, Dataset(PATH, "", "file:///warehouse/db/t")),
        (
            "`lake`.`air-port`.`dim 1`",
            HADOOP,
            Dataset(PATH, "", "file:///warehouse/air-port/dim 1"),
        ),
        ("lake.db.t.branch_main", HADOOP, Dataset(PATH, "", "file:///warehouse/db/t")),
        ("lake.db.t.branch_x", HADOOP, Dataset(PATH, "", "file:///warehouse/db/t@x")),
        ("lake.db.t.tag_x", HADOOP, Dataset(PATH, "", "file:///warehouse/db/t")),
        ("lake.db.branch_x", HADOOP, Dataset(PATH, "", "file:///warehouse/db/branch_x")),
        ("lake.db.t", REST, Dataset(TABLE, "http://catalog", "db.t")),
        ("lake.db.t", {}, Dataset(TABLE, "", "lake.db.t")),
        ("db.t", DEFAULT, Dataset(PATH, "", "file:///warehouse/db/t")),
        ("spark_catalog.db.t", {}, Dataset(TABLE, "", "db.t")),
        ("other.db.t", HADOOP, Dataset(TABLE, "", "other.db.t")),
    ],
)
def test_tables_that_a_text_names_itself_are_read(
    relation: str, conf: dict[str, str], expected: Dataset
) -> None:
    found = used(sql(part("rate")), conf, None, "S", relation)
    assert (read(found), found.unknown) == ([expected], ())


@pytest.mark.parametrize("relation", ["dim", "`delta`.`relative/t`", "delta.t"])
def test_a_relation_that_is_not_known_is_unknown(relation: str) -> None:
    found = used(sql(part("rate")), {}, None, relation)
    assert found.reads == ()
    [said] = found.unread
    assert "is no source, table or location of the query." in said


@pytest.mark.guarantee("G-SQL-1")
def test_a_text_that_was_not_read_is_unknown() -> None:
    [said] = uses_of(sql(part("rate")), {}, None).unread
    assert said == "Reads of the SQL: unknown until Spark's parser has read it."
    [said] = uses_of(sql(part("rate")), {}, None, {"names": ["dim"]}).unread
    assert said == "Reads of the SQL: unknown; another release has stored them."
    assert uses_of(sql(part("rate")) | {"sql": " "}, {}, None).unread == ()


def test_what_the_parser_does_not_know_is_unknown_beside_what_it_knows() -> None:
    why = "the table function f() may read any"
    own = {"spark.sql.extensions": "acme.Sql"}
    found = used(sql(part("rate")), HADOOP | own, None, "lake.db.t", unknown=[why])
    assert read(found) == [Dataset(PATH, "", "file:///warehouse/db/t")]
    assert found.unread == (
        "Reads of the SQL: unknown; the table function f() may read any.",
        "Reads of the SQL: unknown; spark.sql.extensions or parser settings change Spark's "
        "grammar.",
    )


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (kafka(topic="out"), [Dataset(TOPIC, BROKERS, "out")]),
        (part("parquet", path="/out"), [Dataset(PATH, "", "file:///out")]),
        (part("noop"), []),
        (None, []),
    ],
)
def test_a_definition_names_its_sink(sink: Any, expected: list[Dataset]) -> None:
    found = used(sql(sink=sink), {}, None)
    assert (written(found), found.unknown) == (expected, ())


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (sql(sink=kafka()), "Writes: unknown; each row names its Kafka topic."),
        (
            sql(kafka(assign="[")),
            "Reads of a source: unknown; the option assign is not a valid JSON object.",
        ),
        (
            sql(part("json", path="in")),
            "Reads of s: unknown; the path 'in' is not a valid location.",
        ),
        (
            sql(part("jdbc", url="x")),
            "Reads of s: unknown; Headgate does not know which option of jdbc names its data.",
        ),
        (sql(part("delta")), "which option of delta names its data."),
    ],
)
def test_what_a_definition_does_not_say_is_unknown(spec: dict[str, Any], said: str) -> None:
    [only] = used(spec, {}, None).unknown
    assert said in only


def report(source: Any, sink: Any = "MemorySink", **more: Any) -> BatchReport:
    sources = [{"description": source, **more}] if source else []
    return BatchReport(sources, {"description": sink} if sink else None, AT)


CODE = {"kind": "python", "function": "m:f"}


@pytest.mark.parametrize(
    ("source", "offsets", "expected"),
    [
        ("KafkaV2[Subscribe[a, b]]", {}, ["a", "b"]),
        ("KafkaV2[SubscribePattern[a.*]]", {"endOffset": {"a1": {"0": 5}}}, ["a1"]),
        ("KafkaV2[Assign[a-0]]", {"startOffset": {"a": {"0": 5}}}, ["a"]),
        ("FileStreamSource[file:/data/in]", {}, ["file:///data/in"]),
        ("FileStreamSource[file:/data/in/*]", {}, ["file:///data/in/*"]),
        ("DeltaSource[s3://lake/t]", {}, ["s3a://lake/t"]),
        ("lake.db.t", {}, ["file:///warehouse/db/t"]),
        ("RateStreamV2[rowsPerSecond=1, rampUpTimeSeconds=0]", {}, []),
    ],
)
def test_what_code_reads_is_known_from_sparks_report(
    source: str, offsets: dict[str, Any], expected: list[str]
) -> None:
    found = used(CODE, HADOOP, report(source, **offsets))
    assert [use.dataset.name for use in found.reads] == expected
    assert all((use.known_from, use.as_of) == (KnownFrom.SPARK, AT) for use in found.reads)
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ("FileSink[/out]", ["file:///out"]),
        ("DeltaSink[/out]", ["file:///out"]),
        ("lake.db.t", ["file:///warehouse/db/t"]),  # Iceberg's, as seen with Spark 4.1
        ("org.apache.spark.sql.execution.streaming.ConsoleTable$@1f", []),
    ],
)
def test_what_code_writes_is_known_from_sparks_report(sink: str, expected: list[str]) -> None:
    found = used(CODE, HADOOP, report("RatePerMicroBatchStream[rowsPerBatch=1]", sink))
    assert [use.dataset.name for use in found.writes] == expected
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (None, "Reads: unknown until Spark reports a batch."),
        (None, "Writes: unknown until Spark reports a batch."),
        (report("RateStreamV2[]", ""), "Writes: unknown until Spark reports a batch."),
        (report("RateStreamV2[]", "ForeachBatchSink"), "Writes by foreachBatch: unknown."),
        (
            report("RateStreamV2[]", "ForeachWriterTable(x.PythonForeachWriter@7f)"),
            "Writes by foreach: unknown.",
        ),
        (
            report("RateStreamV2[]", "org.apache.spark.KafkaSourceProvider$KafkaTable@7d1ae9f6"),
            "Writes: unknown; Spark does not report the topics of a Kafka sink.",
        ),
        (
            report("org.apache.iceberg.spark.source.SparkMicroBatchStream@7d1ae9f6"),
            "Reads: unknown; Spark reports only "
            "org.apache.iceberg.spark.source.SparkMicroBatchStream.",
        ),
        (report("FileStreamSource[in]"), "Reads: unknown; Spark reports only FileStreamSource[in]"),
        (
            BatchReport([{"description": 7}], {"description": "NoopTable"}, AT),
            "Spark reports no description.",
        ),
    ],
)
def test_what_spark_does_not_report_is_unknown(told: BatchReport | None, said: str) -> None:
    assert any(said in one for one in used(CODE, {}, told).unknown)


def test_the_sink_in_the_definition_of_a_function_is_known_before_it_runs() -> None:
    found = used(CODE | {"sink": part("parquet", path="/out")}, {}, None)
    assert [use.dataset.name for use in found.writes] == ["file:///out"]
    found = used(CODE | {"sink": kafka()}, {}, report("RateStreamV2[]"))
    assert found.unknown == ("Writes: unknown; each row names its Kafka topic.",)


def test_sparks_report_names_the_topics_of_a_pattern() -> None:
    told = report("KafkaV2[SubscribePattern[a.*]]", endOffset={"a1": {"0": 5}, "a.*": {"0": 1}})
    found = used(sql(kafka(subscribePattern="a.*")), {}, told)
    assert read(found) == [Dataset(TOPIC, BROKERS, "a.*"), Dataset(TOPIC, BROKERS, "a1")]
    assert [use.known_from for use in found.reads] == [KnownFrom.DEFINITION, KnownFrom.SPARK]
    assert [use.pattern for use in found.reads] == [True, False]


def test_a_report_of_a_sql_query_without_a_pattern_adds_nothing() -> None:
    told = report("KafkaV2[Subscribe[b]]")
    assert read(used(sql(kafka(subscribe="a")), {}, told)) == [Dataset(TOPIC, BROKERS, "a")]


def test_topics_of_patterns_on_two_clusters_belong_to_none_of_them() -> None:
    two = kafka(subscribePattern="a.*")
    other = {"format": "kafka", "options": {"kafka.bootstrap.servers": "c:1", "subscribe": "x"}}
    told = report("KafkaV2[SubscribePattern[a.*]]", endOffset={"a1": {"0": 5}})
    found = used(sql(None, sources=[two, other]), {}, told)
    assert Dataset(TOPIC, "", "a1") in read(found)


@pytest.mark.parametrize("spec", [{}, {"kind": "sql"}, {"kind": "sql", "sources": 3, "sink": []}])
def test_a_rotten_definition_has_no_lineage(spec: dict[str, Any]) -> None:
    found = used(spec, {}, BatchReport("x", "y", None))
    assert (found.reads, found.writes) == ((), ())


def test_secrets_in_names_are_masked() -> None:
    options = {"kafka.bootstrap.servers": "password=hunter22", "subscribe": "a"}
    [use] = used(sql({"format": "kafka", "options": options}), {}, None).reads
    assert "hunter22" not in use.dataset.store


def test_a_dataset_is_shown_as_users_write_it() -> None:
    assert Dataset(PATH, "", "file:///data/t").title == "/data/t"
    assert Dataset(PATH, "", "s3a://lake/t").title == "s3a://lake/t"
