"""Failures that were once unknown, or told wrong: each names what it is and what leads out."""

from datetime import UTC, datetime, timedelta

import pytest

from queries.domain.failures.categories import Category, FailureSubject
from queries.domain.failures.diagnosis import Classified, classify
from queries.domain.protocol import RunError
from queries.domain.restart import Earlier, RestartPolicy
from queries.domain.states import Policy, RestartBlock
from queries.domain.supervision.outcomes import Rung, climb, fault_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REPARTITION = (
    "None.get\n\tat scala.None$.get(Option.scala:627)\n"
    "\tat org.apache.spark.sql.execution.streaming.state.OfflineStateRepartitionUtils$"
    ".isRepartitionBatch(OfflineStateRepartitionUtils.scala:54)"
)
SCHEMA = (
    "[DELTA_STREAMING_METADATA_EVOLUTION] The schema of your Delta table has changed during "
    "streaming. The tracking log has been updated. Please restart the stream. SQLSTATE: 22000"
)


def _of(type_name: str, text: str, subject: FailureSubject = FailureSubject.SQL) -> Classified:
    message = f"org.apache.spark.sql.streaming.StreamingQueryException: {text}"
    return classify(
        error_class="", type_name=type_name, root_cause=text, message=message, subject=subject
    )


@pytest.mark.parametrize(
    ("type_name", "text", "category", "says"),
    [
        (
            "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
            "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent to the producer contains a "
            "null topic. Use the `topic` option for setting a default topic.",
            Category.DATA,
            "the sink's topic option",
        ),
        (
            "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
            "[KAFKA_MALFORMED_RECORD_TIMESTAMP] Record at topic t partition 0 offset 5 has "
            "timestamp value 1735689600000000000 that overflows. SQLSTATE: 22008",
            Category.DATA,
            "milliseconds",
        ),
        (
            "java.lang.IllegalArgumentException",
            "Required executor memory (6000 MB), offHeap memory (0) MB, overhead (600 MB), and "
            "PySpark memory (0 MB) is above the max threshold (4096 MB) of this cluster! Please "
            "check the values of 'yarn.scheduler.maximum-allocation-mb'.",
            Category.CONFIGURATION,
            "Set spark.executor.memory, or spark.yarn.am.memory",
        ),
        (
            "org.apache.spark.SparkException",
            "[STATE_STORE_COMMIT_VALIDATION_FAILED] State store commit validation failed for "
            "batch 0. Expected 4 commits but got 1. SQLSTATE: XXKST",
            Category.USER_CODE,
            "read all rows of the batch",
        ),
        (
            "org.apache.spark.sql.streaming.StreamingQueryException",
            "[STREAMING_UNFINISHED_REPARTITION_DETECTED] The latest batch 7 is for an unfinished "
            "state repartitioning. SQLSTATE: 55019",
            Category.DAMAGED,
            "same number of partitions",
        ),
        ("java.util.NoSuchElementException", REPARTITION, Category.DAMAGED, "last committed batch"),
        (
            "org.rocksdb.RocksDBException",
            "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. "
            "SQLSTATE: 58030\nCaused by: org.rocksdb.RocksDBException: Mismatch in unique ID on "
            "table file 24220.",
            Category.CORRUPTION,
            "spark.sql.streaming.stateStore.autoSnapshotRepair.enabled is true",
        ),
        (
            "org.apache.spark.SparkException",
            "[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] Checksum verification failed, the "
            "file may be corrupted. File: file:/ck/state/0/3/7.delta. SQLSTATE: 58030",
            Category.CORRUPTION,
            "spark.sql.streaming.checkpoint.fileChecksum.enabled to false",
        ),
        (
            "java.lang.IllegalStateException",
            "Cannot load current offset at snapshot 7712345678901234567, the snapshot was expired "
            "or removed",
            Category.SOURCE_LOST,
            "Reset the query to earliest",
        ),
        (
            "org.apache.spark.sql.AnalysisException",
            "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: update. "
            "This output mode is not supported for session window streaming aggregations on "
            "streaming DataFrames/DataSets. SQLSTATE: 42KDE",
            Category.CONFIGURATION,
            "Use append, with a watermark",
        ),
        (
            "org.apache.spark.sql.AnalysisException",
            "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: "
            "complete. This output mode is not supported for no streaming aggregations on "
            "streaming DataFrames/DataSets. SQLSTATE: 42KDE",
            Category.CONFIGURATION,
            "Use append or update",
        ),
    ],
)
def test_it_is_named(type_name: str, text: str, category: Category, says: str) -> None:
    found = _of(type_name, text)
    assert found.category is category
    assert says in found.way_out
    assert found.policy is category.policy


def test_session_windows_are_not_led_to_the_mode_that_they_lack() -> None:
    text = (
        "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: update. This "
        "output mode is not supported for session window streaming aggregations"
    )
    assert "update and complete do not" not in _of("x.AnalysisException", text).way_out


@pytest.mark.parametrize("words", ["Set(three-0)", "HashSet(three-0, gone-1)"])
def test_starting_offsets_name_the_partitions_that_they_lack(words: str) -> None:
    found = _of(
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
        "[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED] Partitions specified for Kafka start offsets "
        f"don't match what are assigned. Specified: {words} Assigned: Set(three-0, three-1, "
        "three-2)",
    )
    assert (found.category, found.policy) == (Category.CONFIGURATION, Policy.FATAL)
    assert "Missing: three-1, three-2." in found.meaning
    assert ("Not in the topics: gone-1." in found.meaning) == ("gone" in words)


def test_starting_offsets_without_a_list_say_what_is_needed() -> None:
    found = _of("java.lang.AssertionError", "If …, you must specify all TopicPartitions.")
    assert "must list every partition" in found.meaning


# --- a schema that has moved on ---------------------------------------------------------------


def _climb(earlier: int, *, failures: int) -> Rung:
    error = RunError("", "org.apache.spark.sql.delta.DeltaRuntimeException", SCHEMA, SCHEMA)
    fault = fault_of(error, subject=FailureSubject.SQL, batch=7)
    recent = [Earlier(fault.fingerprint, 7)] * earlier
    recent += [Earlier("another", 7)] * (failures - 1 - earlier)
    return climb(
        RestartPolicy(),
        fault,
        failures=failures,
        recent=recent,
        committed=False,
        restart_block=RestartBlock.NONE,
        key="query:1",
        now=NOW,
    )


@pytest.mark.parametrize("earlier", [0, 1, 2])
@pytest.mark.parametrize("others", [0, 4])
def test_a_new_schema_of_the_source_restarts_at_once(earlier: int, others: int) -> None:
    rung = _climb(earlier, failures=earlier + 1 + others)
    assert (rung.restart_block, rung.next_attempt_at) == (RestartBlock.NONE, None)


def test_the_fourth_time_waits_as_any_failure_does_and_is_never_held() -> None:
    rung = _climb(3, failures=4)
    assert rung.restart_block is RestartBlock.NONE
    assert rung.next_attempt_at is not None
    assert rung.next_attempt_at > NOW + timedelta(seconds=10)
    assert _climb(40, failures=41).restart_block is RestartBlock.NONE


# --- a function that reads a part of each batch -------------------------------------------------

PART = (
    "[STATE_STORE_COMMIT_VALIDATION_FAILED] State store commit validation failed for batch {}. "
    "Expected 4 commits but got 1. SQLSTATE: XXKST"
)


@pytest.mark.parametrize(("times", "expected"), [(2, RestartBlock.NONE), (3, RestartBlock.ON_HOLD)])
def test_what_fails_each_batch_and_commits_it_is_held_after_the_poison_limit(
    times: int, expected: RestartBlock
) -> None:
    faults = [
        fault_of(
            RunError("", "org.apache.spark.SparkException", PART.format(batch), ""),
            subject=FailureSubject.FUNCTION,
            batch=None,  # it has committed: none is in flight
        )
        for batch in range(times)
    ]
    newest = faults[-1]
    rung = climb(
        RestartPolicy(),
        newest,
        failures=times,
        recent=[Earlier(one.fingerprint, None) for one in reversed(faults[:-1])],
        committed=False,
        restart_block=RestartBlock.NONE,
        key="query:1",
        now=NOW,
    )
    assert rung.restart_block is expected
    assert ("consecutive batches" in rung.detail.text) == (expected is RestartBlock.ON_HOLD)
    assert "rewind to a batch before the first one" in newest.classified.way_out
