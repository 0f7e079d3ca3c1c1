"""Spark's own parser judges a text before it is saved; where it cannot, nobody waits for it."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
import redis

from controlplane import signs_of_life
from queries.domain.definitions import parsing
from queries.domain.definitions.spec import Source, SqlQuery
from queries.domain.definitions.sql_verdict import (
    SqlQuestion,
    SqlReads,
    SqlVerdict,
    View,
    columns_of,
)
from queries.domain.errors import Invalid
from queries.domain.lineage.datasets import uses_of
from queries.domain.sparks import OURS, PINS, Spark, pinned_by
from queries.services.definitions import catalog, sql_check
from queries.services.definitions.sql_check import (
    Answering,
    ask_spark_of_many,
    question_of,
    sql_skips,
    start_parser,
)
from queries.services.system import parts
from queries.spark_parser.parser import TOO_DEEP, NoParser, SparkParser
from tests import pieces
from tests.scenarios.stage import Stage

CASES = Path(__file__).parents[2] / "cases"


def ask_spark(raw: dict[str, Any]) -> SqlVerdict | None:
    """Return the verdict on one definition."""
    return ask_spark_of_many([(raw, {}, OURS)], limit_s=10)[0]


class Parser:
    """A parser that refuses what its story says."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.closed = False

    def judge(self, question: SqlQuestion) -> SqlVerdict:
        if self.fails:
            raise NoParser("it has failed")
        return SqlVerdict(
            ok="FORM" not in question.text, message="[X] no such word", line=1, column=10
        )

    def close(self) -> None:
        self.closed = True


def spec(sql: str, **more: Any) -> dict[str, Any]:
    source = {"name": "ticks", "format": "rate"}
    return {"kind": "sql", "sources": [source], "sql": sql, "sink": {"format": "noop"}, **more}


@pytest.fixture
def client(redis_server: str, settings: Any) -> Iterator["redis.Redis"]:
    settings.REDIS_URL = redis_server
    with redis.Redis.from_url(redis_server) as found:
        found.flushall()
        yield found


@pytest.fixture
def worker(client: "redis.Redis") -> Iterator[list[Parser]]:
    """A worker that gives signs of life and answers; the parsers that it has started."""
    started: list[Parser] = []

    def start(spark: Spark) -> Any:
        started.append(Parser())
        return started[-1]

    signs_of_life.record_heartbeat(client, signs_of_life.WORKER, now=datetime.now(UTC))
    leaving = threading.Event()
    answering = Answering(leaving, start=start)
    thread = threading.Thread(target=answering.run)
    thread.start()
    yield started
    leaving.set()
    thread.join(30)
    assert not thread.is_alive()
    assert all(parser.closed for parser in started)


@pytest.mark.redis
def test_a_worker_answers_with_one_parser_for_all(worker: list[Parser]) -> None:
    told = ask_spark(spec("SELECT a FROM b"))
    assert told is not None
    assert told.ok
    refusal = ask_spark(spec("SELECT a FORM b"))
    assert refusal is not None
    assert (refusal.ok, refusal.line, refusal.column) == (False, 1, 10)
    assert len(worker) == 1


@pytest.mark.redis
@pytest.mark.parametrize("rotten", ["no JSON", "7", "{}", '{"to": "mine", "at": "noon"}'])
def test_a_question_that_cannot_be_read_stops_no_other(
    worker: list[Parser], client: "redis.Redis", rotten: str
) -> None:
    client.rpush(parts.questions(), rotten)
    told = ask_spark(spec("SELECT a FROM b"))
    assert told is not None
    assert told.ok


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_what_spark_refuses_is_not_saved_and_the_line_is_shown(
    worker: list[Parser], stage: Stage
) -> None:
    known = stage.query("delays").revisions.get().spec
    with pytest.raises(Invalid) as raised:
        catalog.create_query(
            name="typo", spec={**known, "sql": "SELECT a FORM flights"}, actor="ada", now=stage.now
        )
    (problem,) = raised.value.problems
    assert problem.field == "sql"
    assert "no such word (line 1, column 10)" in problem.message
    assert problem.way_out == "\nSELECT a FORM flights\n         ^"


@pytest.mark.redis
def test_where_no_worker_lives_nobody_is_asked(client: "redis.Redis") -> None:
    assert ask_spark(spec("SELECT a FORM b")) is None
    assert client.llen(parts.questions()) == 0


def test_where_there_is_no_redis_nothing_is_known() -> None:
    assert ask_spark(spec("SELECT a FORM b")) is None


@pytest.mark.redis
def test_a_worker_that_does_not_answer_is_not_waited_for(
    client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    signs_of_life.record_heartbeat(client, signs_of_life.WORKER, now=datetime.now(UTC))
    monkeypatch.setattr(sql_check, "ASK_LIMIT_S", 0.2)
    assert ask_spark(spec("SELECT a FORM b")) is None


@pytest.mark.parametrize(
    "raw",
    [
        {},
        spec("  "),
        spec("SELECT 1") | {"sql": 7},
        spec("SELECT 1", conf={"spark.sql.extensions": "acme.Sql"}),
        spec("x" * 300_000),
        spec("SELECT 1", conf="none"),
    ],
)
def test_what_spark_cannot_judge_is_not_asked(raw: dict[str, Any]) -> None:
    assert question_of(raw, {}) is None
    assert ask_spark(raw) is None


@pytest.mark.redis
def test_a_parser_that_failed_is_replaced_and_one_that_nobody_asks_leaves(
    client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Parser] = []

    def start(spark: Spark) -> Any:
        started.append(Parser(fails=not started))
        return started[-1]

    answering = Answering(threading.Event(), start=start)

    def ask(text: str) -> Any:
        question = {"to": "mine", "asked": asdict(SqlQuestion(text)), "at": time.time()}
        client.rpush(parts.questions(), json.dumps(question))
        answering.turn(client)
        answer: Any = client.lpop("mine")
        return json.loads(answer)

    assert ask("SELECT 1") is None
    assert started[0].closed
    assert ask("SELECT 1")["ok"] is True
    assert len(started) == 2
    answering.turn(client, wait_s=0.1)
    assert not started[1].closed
    monkeypatch.setattr(sql_check, "IDLE_S", -1)
    answering.turn(client, wait_s=0.1)
    assert started[1].closed


@pytest.mark.guarantee("G-SQL-1")
@pytest.mark.redis
def test_each_spark_has_its_own_parser_and_two_run_at_once(
    client: "redis.Redis", settings: Any, tmp_path: Path
) -> None:
    started: list[tuple[Spark, Parser]] = []

    def start(spark: Spark) -> Any:
        started.append((spark, Parser()))
        return started[-1][1]

    answering = Answering(threading.Event(), start=start)
    for spark in ("4.2", "4.3", "4.2", "4.1", "4.2"):
        question = {"to": "mine", "asked": asdict(SqlQuestion("SELECT 1", spark=spark))}
        client.rpush(parts.questions(), json.dumps(question | {"at": time.time()}))
        answering.turn(client)
    assert client.llen("mine") == 5
    # 4.3 was asked longest ago when 4.1 needed a place.
    assert [(spark, parser.closed) for spark, parser in started] == [
        ("4.2", False),
        ("4.3", True),
        ("4.1", False),
    ]
    settings.SPARKS_DIR = tmp_path
    with pytest.raises(NoParser, match="make spark ARGS=4"):
        start_parser("4.2")


def test_sql_for_a_spark_that_did_not_answer_names_the_command() -> None:
    form = parsing.parse_query(spec("SELECT 1"))
    assert isinstance(form, SqlQuery)
    (skip,) = sql_skips(form, None, {}, "4.2")
    assert skip.again
    assert "run `make spark ARGS=4.2` there" in skip.why


@pytest.mark.redis
def test_a_question_that_nobody_waits_for_any_more_is_left(client: "redis.Redis") -> None:
    answering = Answering(threading.Event(), start=lambda spark: pytest.fail("it was asked"))
    old = {"to": "mine", "asked": asdict(SqlQuestion("SELECT 1")), "at": time.time() - 60}
    client.rpush(parts.questions(), json.dumps(old))
    answering.turn(client)
    assert client.llen("mine") == 0


@pytest.mark.spark
def test_sparks_own_parser_tells_line_and_column_and_ends_with_its_block() -> None:
    with SparkParser() as parser:
        assert parser.judge(
            SqlQuestion("SELECT window(ts, '1 hour').start FROM t GROUP BY 1", unknown="t")
        ).ok
        refusal = parser.judge(SqlQuestion("SELECT a,\n  b FROM t WHERE x = = 3"))
        assert (refusal.ok, refusal.line, refusal.column) == (False, 2, 22)
        assert "PARSE_SYNTAX_ERROR" in refusal.message
        assert parser.judge(SqlQuestion("SELECT 1")).ok  # it goes on after a refusal
    assert parser.process.poll() is not None
    assert not psutil.pid_exists(parser.process.pid)


@pytest.mark.spark
def test_a_parser_that_dies_says_nothing_of_the_text() -> None:
    with SparkParser() as parser:
        parser.process.kill()
        parser.process.wait(30)
        with pytest.raises(
            NoParser, match=r"^Spark's parser has failed: its JVM ended by signal 9\.$"
        ):
            parser.judge(SqlQuestion("SELECT 1"))


@pytest.mark.spark
def test_without_a_java_there_is_no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoParser, match="no Java"):
        SparkParser()


VIEWS = (
    View("ticks", "timestamp TIMESTAMP, value BIGINT", streaming=True),
    View("codes", "code BIGINT, label STRING", streaming=False),
)


@pytest.mark.spark
def test_the_analyzer_finds_names_that_no_source_has_and_knows_the_state() -> None:
    """One JVM for all of it: `make check` has two cores."""
    with SparkParser() as parser:

        def judge(text: str, **more: Any) -> SqlVerdict:
            return parser.judge(SqlQuestion(text, **{"views": VIEWS, **more}))

        wrong = judge("SELECT value,\n  valeu FROM ticks")
        assert (wrong.ok, wrong.line, wrong.column) == (False, 2, 3)
        assert "UNRESOLVED_COLUMN" in wrong.message
        assert "`value`" in wrong.message  # what it may have meant
        assert not judge("SELECT codes.lable FROM ticks JOIN codes ON code = value").ok
        right = judge("SELECT label, value FROM ticks JOIN codes ON code = value")
        state = {"operators": (), "output_mode": "append"}
        reads = {"relations": (("codes",), ("ticks",)), "unknown": ()}
        assert right == SqlVerdict(ok=True, state=state, spark=pyspark.__version__, reads=reads)
        counted = judge("SELECT value % 3 AS k, count(*) FROM ticks GROUP BY value % 3")
        assert counted.state is not None
        (one,) = counted.state["operators"]
        assert one["keys"] == ("(value % cast(3 as bigint))",)

        # What only a driver can tell is no refusal, and says so.
        for text in ("SELECT acme(value) FROM ticks", "SELECT * FROM elsewhere"):
            found = judge(text)
            assert found.ok
            assert found.unjudged
        # Parameters have their defaults' types, as in a driver.
        low = "SELECT value FROM ticks WHERE value > :low"
        assert not judge(low).ok
        assert judge(low, params={"low": 3}).ok
        assert "BOOLEAN" in judge(low, params={"low": True}).unjudged
        option = judge("SELECT value FROM ticks WITH ('header' = :low)", params={"low": "x"})
        assert (option.ok, "in an expression" in option.message) == (False, True)
        # The settings of the definition hold, and no longer than for its question.
        strict = {"spark.sql.caseSensitive": "true"}
        assert not judge("SELECT VALUE FROM ticks", conf=strict).ok
        assert judge("SELECT VALUE FROM ticks").ok

        kafka = columns_of(Source(name="in", format="kafka"))
        assert kafka is not None
        view = View("in", kafka, streaming=True, watermark=("event_time", "10 minutes"))
        lacking = judge("SELECT topic FROM `in`", views=(view,))
        assert not lacking.ok
        assert "event_time" in lacking.message


@pytest.mark.spark
@pytest.mark.parametrize("spark", pieces.jars_of_sparks())
def test_the_parser_of_each_installed_spark_judges(spark: Spark) -> None:
    with SparkParser(pieces.jars_of_sparks()[spark]) as parser:
        assert parser.version.startswith(f"{spark}.")
        found = parser.judge(SqlQuestion("SELECT label FROM codes", views=VIEWS))
        assert (found.ok, found.spark) == (True, parser.version)
        assert not parser.judge(SqlQuestion("SELECT lable FROM codes", views=VIEWS)).ok
        assert not parser.judge(SqlQuestion("SELECT a FORM b")).ok
        # A command whose target is in IDENTIFIER() is one: older versions resolve it only later.
        insert = parser.judge(SqlQuestion("INSERT INTO IDENTIFIER('lake.a.b') SELECT 1"))
        assert (insert.ok, "is a command (InsertIntoStatement)" in insert.message) == (False, True)
        named = parser.judge(SqlQuestion("SELECT * FROM IDENTIFIER('lake.a.b')", unknown="t"))
        assert named.reads == {"relations": (("lake", "a", "b"),), "unknown": ()}
        # In the same JVM: what this version pins, and at which value in a new checkpoint.
        package = "checkpointing." if spark not in ("3.5", "4.0") else ""  # since 4.1
        logs = f"org.apache.spark.sql.execution.streaming.{package}OffsetSeqMetadata$"
        found = getattr(getattr(parser._gateway.jvm, logs), "MODULE$").relevantSQLConfs()
        entries = [found.apply(place) for place in range(found.size())]
        pins = {one.key(): one.defaultValueString() for one in entries}
        pins = {key: new for key, new in pins.items() if "internal" not in key.lower()}
        assert pins.keys() | {"spark.sql.shuffle.partitions"} == pinned_by(spark)
        assert {key: PINS[key].new for key in pins} == pins


#: Texts, what they read, and what of it is unknown.
READS = [
    ("SELECT * FROM ticks JOIN Ticks t2 USING (value)", ["Ticks", "ticks"], ""),
    ("SELECT * FROM lake.air.dim VERSION AS OF 3", ["lake.air.dim"], ""),
    ("SELECT * FROM lake.air.dim CHANGES FROM VERSION 1 TO VERSION 2", ["lake.air.dim"], ""),
    ("FROM a.b.c |> JOIN a.b.d USING (x) |> AGGREGATE count(*) GROUP BY y", ["a.b.c", "a.b.d"], ""),
    ("SELECT * FROM STREAM a.b.c, range(3)", ["a.b.c"], ""),
    ("SELECT * FROM f(TABLE(a.b.c)), range(3)", ["a.b.c"], "the table function f() may read any"),
    ("SELECT (SELECT max(x) FROM a.b.c) FROM t WHERE EXISTS (TABLE d)", ["a.b.c", "d", "t"], ""),
    ("SELECT * FROM t, LATERAL (SELECT * FROM delta.`/data/x`)", ["delta./data/x", "t"], ""),
    (
        "WITH c AS (SELECT * FROM x), d AS (TABLE C) SELECT * FROM D, lake.a.d",
        ["lake.a.d", "x"],
        "",
    ),
    ("WITH x AS (SELECT * FROM x) SELECT * FROM x", ["x"], ""),
    ("WITH RECURSIVE r AS (SELECT 1 UNION ALL TABLE r) TABLE r", [], ""),
    ("SELECT * FROM (WITH i AS (TABLE o) TABLE i), i", ["i", "o"], ""),
    ("WITH i AS (SELECT 1) SELECT * FROM IDENTIFIER('i'), IDENTIFIER('a.b.i')", ["a.b.i"], ""),
]
#: Texts that every driver would refuse, and the way out.
REFUSED = [
    ("SELECT * FROM ticks JOIN IDENTIFIER(:t)", "Write the table's name, or IDENTIFIER('name')."),
    ("SELECT * FROM IDENTIFIER('a.' || 'b')", "Write the table's name, or IDENTIFIER('name')."),
    ("SELECT IDENTIFIER('upper')(x) FROM t", "Use the function's name."),
    ("SELECT * FROM table_changes('a.b.c', 0)", "with the option readChangeFeed."),
    ("BEGIN SELECT 1; END", "It is a command (CompoundBody); only queries"),
    ("WITH c AS (TABLE t) INSERT INTO x TABLE c", "It is a command (InsertIntoStatement);"),
]


@pytest.mark.spark
def test_the_parser_reads_what_a_text_names_and_refuses_what_every_driver_refuses() -> None:
    with SparkParser() as parser:
        for text, names, unknown in READS:
            found = parser.judge(SqlQuestion(text, unknown="t"))
            assert (found.ok, found.reads is not None) == (True, True), text
            read = SqlReads.from_json(found.reads)
            assert [".".join(one) for one in read.relations] == names, text
            assert read.unknown == ((unknown,) if unknown else ()), text
        for text, way_out in REFUSED:
            found = parser.judge(SqlQuestion(text, unknown="t"))
            assert (found.ok, way_out in found.message) == (False, True), (text, found.message)
        for line in (CASES / "20-lineage-unread-sql/cases.jsonl").read_text().splitlines():
            case = json.loads(line)
            found = parser.judge(SqlQuestion(case["sql"], unknown="t"))
            raw = {**spec(case["sql"]), "sources": [{"name": "ticks", "format": "rate"}]}
            uses = uses_of(raw, case["conf"], None, found.reads)
            assert [use.dataset.name.rpartition("/")[2] for use in uses.reads] == [
                "dim 1" if case["case"] == "quoted" else "dim"
            ]
            assert uses.unknown == ()


@pytest.mark.spark
def test_a_text_that_is_too_long_for_the_parser_is_left_to_the_driver() -> None:
    """Asked again and again, such a text would keep the parser from everybody else's."""
    with SparkParser() as parser:
        for many, named in ((500, (("ticks",),)), (1500, ())):
            text = " UNION ALL ".join(["SELECT value FROM ticks"] * many)
            found = parser.judge(SqlQuestion(text, views=VIEWS))
            assert (found.ok, found.unjudged) == (True, TOO_DEEP)
            read = SqlReads.from_json(found.reads)
            assert (read.relations, read.unknown) == (named, () if named else (TOO_DEEP,))
        assert parser.judge(SqlQuestion("SELECT value FROM ticks", views=VIEWS)).unjudged == ""
