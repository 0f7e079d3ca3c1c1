"""What Spark itself says to changed definitions, tried in copies: caught, or taken in silence.

All cases share one Spark process; what a probe's own process adds is tested beside.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queries.domain.definitions import spec
from queries.domain.probes.plan_comparison import ShapeDifference
from queries.domain.probes.preflight import PreflightRequest, judge
from queries.domain.probes.questions import ProbeResult
from queries.domain.sparks import SINK_NAMES
from queries.domain.triggers import async_progress, cores

pytestmark = pytest.mark.spark

SCHEMA = "carrier STRING, origin STRING, delay DOUBLE, sched TIMESTAMP"
SUMS = (
    "SELECT carrier, window(sched, '1 hour') AS hour, sum(delay) AS total FROM flights "
    "GROUP BY carrier, window(sched, '1 hour')"
)
#: Spark's configuration -> the default that this code or a page of docs/ relies on.
DEFAULTS = {
    async_progress.REAL_TIME_DEFAULT: "true",  # exposure, replay, the safe way off
    SINK_NAMES: "false",  # validation
    "spark.sql.ansi.enabled": "true",  # docs: a bad cast is an error, held as poison
    "spark.sql.shuffle.partitions": str(cores.SHUFFLE_PARTITIONS),  # advice, cores
    "spark.sql.streaming.commitProtocolClass": (
        "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol"
    ),  # `_spark_metadata`: resets, clones
    "spark.sql.streaming.minBatchesToRetain": "100",  # repair from checkpoints, batches
    "spark.sql.streaming.multipleWatermarkPolicy": "min",  # the watermark of a join
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",  # batches that read nothing
    "spark.sql.streaming.noDataProgressEventInterval": "10000ms",  # health: IDLE
    "spark.sql.streaming.offsetLog.formatVersion": "1",  # the parser of logs
    "spark.sql.streaming.stateStore.commitValidation.enabled": "true",  # failures
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),  # state inspection, advice on large state
    "spark.sql.streaming.statefulOperator.checkCorrectness.enabled": "true",  # validation
}
LATE = "SELECT carrier, delay FROM flights WHERE delay > 30"


def _spec(home: Path, sql: str, **changes: Any) -> dict[str, Any]:
    sources = [
        {
            "name": name,
            "format": "json",
            "schema": SCHEMA,
            "options": {
                "path": str(home / "in"),
                "maxFilesPerTrigger": "1",
                "cleanSource": "delete",
            },
            "watermark": {"column": "sched", "delay": changes.get("delay", "10 minutes")},
        }
        for name in changes.get("sources", ("flights",))
    ]
    sink = changes.get("sink", {"format": "noop", "output_mode": changes.get("mode", "update")})
    return {"kind": "sql", "sources": sources, "sql": sql, "sink": sink}


def _cases(home: Path) -> dict[str, Any]:
    def parquet(kind: str = "parquet") -> dict[str, Any]:
        return {"format": kind, "options": {"path": str(home / "out")}}

    def sums(sql: str, **changes: Any) -> dict[str, Any]:
        return {"base": "sums", "spec": _spec(home, sql, **changes)}

    plain = SUMS.replace("carrier,", "carrier, origin,")
    base = _spec(home, SUMS)
    base["sources"][0]["options"]["cleanSource"] = "off"
    above = SUMS.replace("FROM flights", "FROM flights WHERE delay > :low")
    low = {**base, "sql": above, "params": {"low": 5}}
    late = _spec(home, LATE, sink=parquet())
    late["sources"][0]["options"]["cleanSource"] = "off"
    quiet = _spec(home, LATE)
    quiet["sources"][0]["options"]["path"] = str(home / "quiet")
    quiet["sources"][0]["options"]["cleanSource"] = "off"
    python = {
        "kind": "python",
        "function": "users_sums:build",
        "params": {"schema": SCHEMA, "in": str(home / "in")},
    }
    tracked: dict[str, Any] = {
        "format": "noop",
        "output_mode": "update",
        "options": {"asyncProgressTrackingEnabled": "true"},
    }
    rocks = {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}
    return {
        "bases": {
            "sums": base,
            "late": late,
            "rocks": {**base, "conf": rocks},
            "low": low,
            "python": python,
            "quiet": quiet,
        },
        "cases": {
            "the same": sums(SUMS),
            "a further key": sums(plain),
            "a further aggregate": sums(SUMS.replace("AS total", "AS total, count(*) AS n")),
            "a second source": sums(
                SUMS.replace("FROM flights", "FROM (TABLE flights UNION ALL TABLE more)"),
                sources=("flights", "more"),
            ),
            "a swapped key": sums(SUMS.replace("carrier", "origin")),
            "another aggregate": sums(SUMS.replace("sum(", "max(")),
            "another window": sums(SUMS.replace("1 hour", "2 hours")),
            "another watermark": sums(SUMS, delay="3 hours"),
            "a filter": sums(SUMS.replace("FROM flights", "FROM flights WHERE delay > 5")),
            "another output mode": sums(SUMS, mode="complete"),
            "no such column": sums(SUMS.replace("delay", "dely")),
            "another default": {
                "base": "low",
                "spec": {**_spec(home, above), "params": {"low": 9}},
            },
            "on rocksdb": {
                "base": "rocks",
                "spec": {**_spec(home, SUMS), "conf": rocks},
            },
            "a changed sink column": {
                "base": "late",
                "spec": _spec(home, LATE.replace("delay F", "origin, delay F"), sink=parquet()),
            },
            "what csv cannot write": {
                "base": "late",
                "spec": _spec(
                    home, LATE.replace("delay F", "struct(delay) AS d F"), sink=parquet("csv")
                ),
            },
            "nothing new": {"base": "quiet", "spec": quiet},
            "another key in python": {"base": "python", "spec": python, "code": "b"},
            "async progress with state": sums(SUMS, sink=tracked),
            "async progress into files": {
                "spec": _spec(home, LATE, sink={**parquet(), "options": {**tracked["options"]}})
            },
            "a new query": {"spec": _spec(home, SUMS)},
            "a new query into files": {"spec": _spec(home, LATE, sink=parquet())},
        },
        "x_rays": {
            "rows": {"base": "sums"},
            "one carrier": {"base": "sums", "contains": '"carrier":"a"'},
            "rocks": {"base": "rocks"},
            "low": {"base": "low"},
            "no such operator": {"base": "sums", "operator": 7},
        },
    }


ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


USERS_CODE = """
def build(spark, params):
    frame = (
        spark.readStream.schema(params["schema"])
        .option("maxFilesPerTrigger", 1)
        .json(params["in"])
    )
    counted = frame.groupBy("{key}").count()
    return counted.writeStream.outputMode("update").foreachBatch(lambda batch, n: batch.count())
"""


class Table:
    """What came of all cases."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.asked = _cases(home)
        (home / "cases.json").write_text(json.dumps({**self.asked, "defaults": [*DEFAULTS]}))
        for folder in ("in", "out", "checkpoints"):
            (home / folder).mkdir()
        for name, key in (("a", "carrier"), ("b", "origin")):
            (home / "users-code" / name).mkdir(parents=True)
            (home / "users-code" / name / "users_sums.py").write_text(USERS_CODE.format(key=key))
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.probe_table", str(home)],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        self.whole = json.loads((home / "results.json").read_text())

    def judged(self, name: str) -> dict[str, Any]:
        raw = self.raw(name)
        case = self.asked["cases"][name]
        old = self.asked["bases"].get(case.get("base", ""))
        asked = PreflightRequest(case["spec"], old_spec=old, attempt_limit_s=60)
        return judge(asked, ProbeResult.loads(json.dumps(raw)))

    def raw(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.whole["results"][name]
        assert "raised" not in found, found["raised"]
        return found


@pytest.fixture(scope="module")
def table(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(tmp_path_factory.mktemp("table"))


def _ends(judged: dict[str, Any]) -> dict[str, str]:
    return {each["attempt"]: each["end"] for each in judged["tries"]}


def test_the_definition_as_it_was_passes_and_reads_what_is_new(table: Table) -> None:
    judged = table.judged("the same")
    assert judged["verdict"] == "passed", judged
    assert _ends(judged) == {"replay": "passed", "fresh": "passed"}
    replay, fresh = judged["tries"]
    assert (replay["batch"], replay["rows"]) == (3, 40)
    assert fresh["batch"] > 3
    assert fresh["rows"] == 40
    assert judged["not_tried"] == []


@pytest.mark.parametrize(
    ("case", "category"),
    [
        ("a further key", "checkpoint incompatible"),
        ("a further aggregate", "checkpoint incompatible"),
        ("a second source", "checkpoint incompatible"),
    ],
)
def test_what_the_state_cannot_take_is_caught(table: Table, case: str, category: str) -> None:
    judged = table.judged(case)
    assert judged["verdict"] == "failed", judged
    caught = judged["tries"][0]
    assert (caught["attempt"], caught["category"]) == ("replay", category), caught
    assert caught["meaning"]
    assert caught["way_out"]
    assert _ends(judged)["fresh"] == "skipped"


@pytest.mark.parametrize(
    ("case", "difference"),
    [
        ("a swapped key", ShapeDifference("grouping key", "carrier", "origin")),
        ("another aggregate", ShapeDifference("aggregate", "SUM(delay)", "MAX(delay)")),
        (
            "another window",
            ShapeDifference("window", "WINDOW(sched, '1 hour')", "WINDOW(sched, '2 hours')"),
        ),
        ("another watermark", ShapeDifference("watermark", "sched, 10 minutes", "sched, 3 hours")),
        ("a filter", ShapeDifference("filter", "", "delay > 5")),
        (
            "another default",
            ShapeDifference("filter", "delay > cast(5 as double)", "delay > cast(9 as double)"),
        ),
        ("another output mode", ShapeDifference("output mode", "update", "complete")),
    ],
)
def test_what_spark_takes_in_silence_is_named(
    table: Table, case: str, difference: ShapeDifference
) -> None:
    judged = table.judged(case)
    assert judged["verdict"] == "differs", judged
    assert _ends(judged) == {"replay": "passed", "fresh": "passed"}
    assert [ShapeDifference(**each) for each in judged["differences"]] == [difference]


def test_a_definition_that_spark_cannot_read_is_no_pass(table: Table) -> None:
    raised = table.whole["results"]["no such column"]["raised"]
    assert "UNRESOLVED_COLUMN" in raised  # which a probe's own process writes down


def test_a_state_in_rocksdb_is_tried_as_well(table: Table) -> None:
    assert table.judged("on rocksdb")["verdict"] == "passed"


def test_a_changed_sink_column_passes_into_a_folder_that_is_thrown_away(table: Table) -> None:
    judged = table.judged("a changed sink column")
    assert judged["verdict"] == "passed", judged
    assert _ends(judged) == {"replay": "passed", "fresh": "passed", "sink": "passed"}
    written = table.home / "scratch/a changed sink column/scratch/output"
    assert list(written.glob("*.parquet"))


def test_a_type_that_the_file_sink_cannot_write_is_caught_there_only(table: Table) -> None:
    judged = table.judged("what csv cannot write")
    assert judged["verdict"] == "failed", judged
    assert _ends(judged) == {"replay": "passed", "fresh": "passed", "sink": "failed"}


def test_a_source_with_nothing_new_is_said_and_no_failure(table: Table) -> None:
    judged = table.judged("nothing new")
    assert judged["verdict"] == "passed", judged
    assert _ends(judged) == {"replay": "passed", "fresh": "nothing"}
    assert judged["not_tried"] == ["new data: the source had none during the preflight"]


def test_a_key_swapped_in_python_code_is_seen_by_the_code_that_ran_before(table: Table) -> None:
    judged = table.judged("another key in python")
    assert judged["verdict"] == "differs", judged
    assert judged["differences"] == [{"what": "grouping key", "old": "carrier", "new": "origin"}]
    assert "the code of foreachBatch" in judged["not_tried"][0]
    assert "Python functions" in judged["not_tried"][1]


@pytest.mark.parametrize("case", ["async progress with state", "async progress into files"])
def test_async_progress_where_it_cannot_be_is_caught_by_the_fresh_batch(
    table: Table, case: str
) -> None:
    judged = table.judged(case)
    told = next(each for each in judged["tries"] if each["end"] == "failed")
    assert (told["attempt"], told["category"]) == ("fresh", "configuration"), told
    assert "async" in told["title"].lower()


def test_a_query_without_a_checkpoint_reads_a_little(table: Table) -> None:
    judged = table.judged("a new query")
    assert _ends(judged) == {"fresh": "passed"}
    assert judged["tries"][0]["rows"] == 80  # two files of the five
    judged = table.judged("a new query into files")
    assert _ends(judged) == {"fresh": "passed", "sink": "passed"}


def test_neither_checkpoints_nor_sources_nor_sinks_were_touched(table: Table) -> None:
    # Each case asked its source to delete the files that were read.
    assert table.whole["before"] == table.whole["after"]
    assert len(table.whole["before"]["in"]) == 5


# --- Spark's defaults -----------------------------------------------------------------


def test_the_defaults_that_we_rely_on_are_those_of_this_spark(table: Table) -> None:
    found = table.whole["defaults"]
    wrong = {key: found[key] for key, value in DEFAULTS.items() if value != found[key]}
    assert wrong == {}


def test_what_a_checkpoint_pins_is_what_this_spark_writes_into_its_log(table: Table) -> None:
    found = set(table.whole["pinned"])
    # Of stateful operators alone the log keeps an internal key that a driver takes from this one.
    found = found - {one for one in found if "internal" in one.lower()}
    assert found == spec.PINNED - {"spark.sql.shuffle.partitions"}


# --- state inspection ------------------------------------------------------------------


@pytest.mark.parametrize("case", ["rows", "rocks", "low"])
def test_an_x_ray_counts_all_groups_and_shows_some(table: Table, case: str) -> None:
    seen = table.raw(case)
    assert seen["rows"] == sum(each["rows"] for each in seen["partitions"]) > 0
    assert seen["operators"][0]["name"] == "stateStoreSave"
    assert seen["operators"][0]["partitions"] == 4
    assert len(seen["sample"]) == min(10, seen["rows"])
    carriers = next(each for each in seen["frequent"] if each["column"] == "carrier")
    assert carriers["values"] == 5
    assert {each["value"] for each in carriers["top"]} == set("ABCDE")
    assert json.loads(seen["sample"][0]["key"]).keys() == {"carrier", "window"}
    assert json.loads(seen["sample"][0]["value"]).keys() == {"sum"}


def test_an_x_ray_filters_by_what_the_key_holds(table: Table) -> None:
    whole, one = table.raw("rows"), table.raw("one carrier")
    assert 0 < one["rows"] < whole["rows"]
    assert all('"carrier":"A"' in each["key"] for each in one["sample"])


def test_an_operator_that_is_not_there_is_named_with_those_that_are(table: Table) -> None:
    raised = table.whole["results"]["no such operator"]["raised"]
    assert "no state operator 7; choose 0 (stateStoreSave)" in raised
