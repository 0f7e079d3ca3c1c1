"""Failures of stores, HDFS, Kerberos, YARN and Kubernetes: each has a cause and a way out.

The texts are ours; classes and codes are real (hadoop-aws and hadoop-azure 3.4, Google's connector,
the AWS SDK 2, Hadoop's RPC client, Java's GSS).
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from queries.domain.failures.categories import Category, FailureSubject
from queries.domain.failures.diagnosis import Classified, classify
from queries.domain.failures.error_text import fingerprint
from queries.domain.protocol import RunError
from queries.domain.reasons import Detail
from queries.domain.restart import Earlier, RestartPolicy, repeated
from queries.domain.states import Policy, Reason, RestartBlock
from queries.domain.supervision.outcomes import Rung, climb, fault_of

NOW = datetime(2026, 11, 29, 3, 0, tzinfo=UTC)
ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("store_failures.jsonl").read_text().splitlines()
]
CASES = {row["case"]: row for row in ROWS}
#: Conditions that Spark 4.1 to 4.3 put around a store's error, and the stack with its causes.
WRAPPED = {
    "read": ("FAILED_READ_FILE.NO_HINT", "Encountered error while reading file s3a://b/in/1."),
    "write": ("TASK_WRITE_FAILED", "Task failed while writing rows to s3a://b/out."),
    "log": (
        "STREAMING_CHECKPOINT_LOG_WRITE_FAILURE.UNCATEGORIZED",
        "Could not write the batch 3 to the log.",
    ),
    "state": ("CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT", "Error writing state store files."),
    "state read": ("CANNOT_LOAD_STATE_STORE.UNCATEGORIZED", "An error occurred during loading."),
    "stream": ("STREAM_FAILED", "Query [id = 1, runId = 2] terminated with exception"),
    "function": ("FOREACH_BATCH_USER_FUNCTION_ERROR", "An error occurred in the function."),
    "no condition": ("", "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times"),
}


def _of(row: dict[str, str], **fields: object) -> Classified:
    given = {"error_class": "", "type_name": row["type"], "root_cause": row["text"], "message": ""}
    return classify(**(given | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES)
def test_a_store_s_failure_has_its_cause_its_policy_and_its_way_out(case: str) -> None:
    row = CASES[case]
    found = _of(row)
    assert (found.category.value, found.policy.value) == (row["category"], row["policy"])
    assert row["says"] in f"{found.meaning} {found.way_out}"


@pytest.mark.parametrize("around", WRAPPED)
@pytest.mark.parametrize("case", [name for name in CASES if not name.startswith("DELTA_")])
def test_spark_s_condition_does_not_hide_what_the_store_answered(case: str, around: str) -> None:
    row = CASES[case]
    condition, words = WRAPPED[around]
    head = f"[{condition}] {words} SQLSTATE: KD001" if condition else words
    stack = (
        f"org.apache.spark.SparkException: {head}\n\tat org.apache.spark.scheduler.X.run(X:1)\n"
        f"Caused by: {row['type']}: {row['text']}\n\tat org.apache.hadoop.fs.Y.open(Y.java:1)\n"
    )
    outermost = _of(row, message=stack, error_class=condition)
    assert (outermost.category.value, outermost.policy.value) == (row["category"], row["policy"])
    # A task's error stands in the message of a job's, which has no cause of its own.
    flat = _of(row, type_name="org.apache.spark.SparkException", root_cause=head, message=stack)
    assert (flat.category, flat.policy) == (outermost.category, outermost.policy)


@pytest.mark.parametrize("case", [name for name in CASES if "Kerberos" in name or "KMS" in name])
def test_no_keys_of_s3_are_asked_for_where_they_are_not_the_cause(case: str) -> None:
    assert "fs.s3a.access.key" not in _of(CASES[case]).way_out


def test_an_entry_that_another_driver_wrote_stays_fenced() -> None:
    row = CASES["S3 lost race"]
    text = f"[CONCURRENT_STREAM_LOG_UPDATE] has been written by another driver\n{row['text']}"
    found = _of(row, error_class="CONCURRENT_STREAM_LOG_UPDATE", message=text)
    assert found.category is Category.FENCED


def test_the_ids_of_requests_do_not_make_another_failure() -> None:
    def made(request: str, extended: str) -> str:
        text = CASES["S3 wrong secret key"]["text"]
        text = text.replace("4Q1T", request).replace("Zm9v=", extended)
        return fingerprint(error_class="", type_name="x.S3Exception", root_cause=text, message="")

    assert made("TX6PHJ9NXB8C7F1D", "aGVsbG8/d29ybGQ+x/y=") == made("PQ", "Zm9v=")


# --- a mistake in a configuration is held after the limit ---------------------------------------


def _climb(
    case: str,
    recent: list[Earlier],
    *,
    restart_block: RestartBlock = RestartBlock.NONE,
    ran: bool = False,
) -> Rung:
    row = CASES[case]
    error = RunError("", row["type"], row["text"], row["text"])
    fault = fault_of(error, subject=FailureSubject.SQL)
    same = [one._replace(fingerprint=fault.fingerprint) for one in recent if not one.fingerprint]
    return climb(
        RestartPolicy(),
        fault,
        failures=len(recent) + 1,
        recent=same + recent[len(same) :],
        committed=ran,
        restart_block=restart_block,
        key="query:1",
        now=NOW,
    )


@pytest.mark.parametrize("case", [row["case"] for row in ROWS if row["policy"] == "LIMITED"])
def test_it_is_held_at_the_limit_with_its_way_out(case: str) -> None:
    assert _climb(case, [Earlier("", None)]).restart_block is RestartBlock.NONE
    rung = _climb(case, [Earlier("", 7), Earlier("", None)])
    assert (rung.restart_block, rung.restart_block_cause) == (
        RestartBlock.ON_HOLD,
        Reason.FAILED_REPEATED,
    )
    assert rung.next_attempt_at == NOW + timedelta(minutes=30)
    assert rung.detail.code is Detail.REPEATED
    assert _of(CASES[case]).way_out in rung.detail.text
    assert "3 times in a row" in rung.detail.text


@pytest.mark.parametrize("case", [row["case"] for row in ROWS if row["policy"] == "RETRY"])
def test_what_passes_by_itself_is_retried_for_ever(case: str) -> None:
    assert _climb(case, [Earlier("", None)] * 40).restart_block is RestartBlock.NONE


def test_a_batch_in_between_ends_the_row() -> None:
    assert _climb("wrong region", [Earlier("", 7)] * 9, ran=True).restart_block is RestartBlock.NONE
    mended = [Earlier("", 7), Earlier("", 7, committed=True), Earlier("", 6)]
    policy = RestartPolicy(poison_limit=4)
    assert not repeated(policy, fingerprint="", committed=False, recent=mended)
    assert repeated(policy, fingerprint="", committed=False, recent=[Earlier("", 7)] * 3)
    assert (
        _climb("wrong region", [Earlier("", 7), Earlier("other", 7)]).restart_block
        is RestartBlock.NONE
    )


def test_a_retry_probe_that_fails_keeps_the_hold() -> None:
    rung = _climb("S3 bucket gone", [], restart_block=RestartBlock.ON_HOLD)
    assert (rung.restart_block, rung.restart_block_cause) == (
        RestartBlock.ON_HOLD,
        Reason.PROBE_FAILED,
    )
    assert (
        _climb("SlowDown", [], restart_block=RestartBlock.ON_HOLD).restart_block
        is RestartBlock.NONE
    )


def test_each_policy_of_a_store_s_failure_is_among_the_rows() -> None:
    assert {row["policy"] for row in ROWS} == {Policy.RETRY, Policy.LIMITED, Policy.FATAL}
