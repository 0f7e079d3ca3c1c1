"""Each failure is given a kind, a policy, a meaning and a way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.failures.categories import GENERAL, Category
from queries.domain.failures.diagnosis import classify, classify_exit
from queries.domain.failures.error_text import top_frame
from queries.domain.protocol import CUT_OFF, Killer
from queries.domain.states import Policy

RETRY, POISON, FATAL = Policy.RETRY, Policy.POISON, Policy.FATAL

PLAN = """
=== Streaming Query ===
Identifier: [id = 48ab0886-b80c-43b7-8b2c-a96d38573e3d, runId = 0f7f3c40-ca81-4b0c-bca9]
Current Committed Offsets: {}

Logical Plan:
Project [connection timed out#1, [CONCURRENT_STREAM_LOG_UPDATE] #2]
"""
DIVIDE_BY_ZERO = (
    "org.apache.spark.sql.streaming.StreamingQueryException: [DIVIDE_BY_ZERO] Division by zero. "
    "Use `try_divide` to tolerate divisor being 0 and return NULL instead. SQLSTATE: 22012\n"
    "== SQL (line 1, position 19) ==\n"
    "select carrier,   arr_delay / dep_delay as recovered from flights\n"
    "                  ^^^^^^^^^^^^^^^^^^^^^\n" + PLAN
)
PROXY = """An exception was raised by the Python Proxy. Return Message: \
Traceback (most recent call last):
  File "/srv/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "/srv/venv/lib/python3.11/site-packages/pyspark/sql/utils.py", line 163, in call
    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)
  File "/srv/headgate/code/{sha}/flights_by_hour.py", line {line}, in upsert
    rows = frame.collect()
{raised}
"""


def proxy(raised: str, *, line: int = 40, sha: str = "ab" * 32) -> str:
    """Return the message of a foreachBatch whose function raised, as Spark 4.3 prints it."""
    return PROXY.format(raised=raised, line=line, sha=sha) + PLAN


@pytest.mark.parametrize(
    ("error_class", "category", "policy"),
    [
        ("DIVIDE_BY_ZERO", Category.DATA, POISON),
        ("CAST_INVALID_INPUT", Category.DATA, POISON),
        ("CAST_OVERFLOW", Category.DATA, POISON),
        ("ARITHMETIC_OVERFLOW", Category.DATA, POISON),
        ("BINARY_ARITHMETIC_OVERFLOW", Category.DATA, POISON),
        ("FAILED_READ_FILE.NO_HINT", Category.DATA, POISON),
        ("FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH", Category.DATA, POISON),
        ("USER_RAISED_EXCEPTION", Category.DATA, POISON),
        ("FOREACH_BATCH_USER_FUNCTION_ERROR", Category.USER_CODE, POISON),
        ("FOREACH_USER_FUNCTION_ERROR", Category.USER_CODE, POISON),
        ("PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR", Category.USER_CODE, POISON),
        ("PYTHON_EXCEPTION", Category.USER_CODE, POISON),
        ("TRANSFORM_WITH_STATE_USER_FUNCTION_ERROR", Category.USER_CODE, POISON),
        ("FAILED_EXECUTE_UDF", Category.USER_CODE, POISON),
        ("KAFKA_DATA_SOURCE_NOT_ENABLED", Category.CONFIGURATION, FATAL),
        ("DATA_SOURCE_NOT_FOUND", Category.CONFIGURATION, FATAL),
        ("STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION", Category.CONFIGURATION, FATAL),
        ("UNSUPPORTED_STREAMING_OPERATOR_WITHOUT_WATERMARK", Category.CONFIGURATION, FATAL),
        ("STREAMING_REAL_TIME_MODE.OUTPUT_MODE_NOT_SUPPORTED", Category.CONFIGURATION, FATAL),
        (
            "STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST",
            Category.CONFIGURATION,
            FATAL,
        ),
        ("INVALID_STREAMING_REAL_TIME_MODE_TRIGGER_INTERVAL", Category.CONFIGURATION, FATAL),
        ("STREAMING_QUERY_EVOLUTION_ERROR.DUPLICATE_SOURCE_NAMES", Category.CONFIGURATION, FATAL),
        ("STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", Category.INCOMPATIBLE, FATAL),
        ("STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", Category.INCOMPATIBLE, FATAL),
        ("STATE_STORE_INVALID_CONFIG_AFTER_RESTART", Category.INCOMPATIBLE, FATAL),
        ("STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE", Category.INCOMPATIBLE, FATAL),
        ("STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA", Category.INCOMPATIBLE, FATAL),
        ("STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY", Category.DAMAGED, FATAL),
        ("STREAMING_CHECKPOINT_MISSING_METADATA_FILE", Category.DAMAGED, FATAL),
        ("STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY", Category.DAMAGED, FATAL),
        ("CANNOT_LOAD_STATE_STORE.CANNOT_READ_MISSING_SNAPSHOT_FILE", Category.DAMAGED, FATAL),
        ("CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS", Category.DAMAGED, FATAL),
        ("CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE", Category.DAMAGED, FATAL),
        ("MALFORMED_LOG_FILE", Category.DAMAGED, FATAL),
        ("BATCH_METADATA_NOT_FOUND", Category.DAMAGED, FATAL),
        ("CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED", Category.CORRUPTION, POISON),
        ("STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED", Category.CORRUPTION, POISON),
        ("CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY", Category.CAPACITY, RETRY),
        ("CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT", Category.CAPACITY, RETRY),
        ("CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT", Category.STORAGE, RETRY),
        ("STREAMING_CHECKPOINT_LOG_WRITE_FAILURE.OFFSET_LOG", Category.STORAGE, RETRY),
        ("STREAMING_ASYNC_OPERATION_FAILED", Category.STORAGE, RETRY),
        ("FAILED_RENAME_TEMP_FILE", Category.STORAGE, RETRY),
        ("CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR", Category.STORAGE, RETRY),
        ("CANNOT_LOAD_STATE_STORE.UNCATEGORIZED", Category.STORAGE, RETRY),
        ("CONCURRENT_STREAM_LOG_UPDATE", Category.OWNERSHIP, FATAL),
        ("CONCURRENT_QUERY", Category.OWNERSHIP, FATAL),
        ("_LEGACY_ERROR_TEMP_2207", Category.OWNERSHIP, FATAL),
        ("SOMETHING_NEW_IN_SPARK", Category.UNKNOWN, RETRY),
        ("", Category.UNKNOWN, RETRY),
    ],
)
def test_a_condition_has_a_category_and_a_policy(
    error_class: str, category: Category, policy: Policy
) -> None:
    found = classify(
        error_class=error_class,
        type_name="org.apache.spark.SparkException",
        root_cause="It went wrong.",
        message="org.apache.spark.SparkException: It went wrong." + PLAN,
    )
    assert (found.category, found.policy) == (category, policy)
    assert found.meaning
    assert found.way_out


@pytest.mark.parametrize(
    ("type_name", "text", "category", "policy"),
    [
        (
            "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
            "Some data may have been lost because they are not available in Kafka any more",
            Category.SOURCE_LOST,
            FATAL,
        ),
        (
            "org.apache.kafka.clients.consumer.OffsetOutOfRangeException",
            "Fetch position is out of range",
            Category.SOURCE_LOST,
            FATAL,
        ),
        (
            "java.lang.IllegalStateException",
            "batch 111 doesn't exist",
            Category.INCOMPATIBLE,
            FATAL,
        ),
        (
            "java.lang.IllegalArgumentException",
            "requirement failed: Previous batch 3 not found in offset log",
            Category.INCOMPATIBLE,
            FATAL,
        ),
        (
            "java.lang.AssertionError",
            "assertion failed: There are [1] sources in the checkpoint offsets and now there are "
            "[2] sources requested by the query. Cannot continue.",
            Category.INCOMPATIBLE,
            FATAL,
        ),
        ("java.lang.IllegalStateException", "Incomplete log file", Category.DAMAGED, FATAL),
        (
            "java.lang.IllegalArgumentException",
            "Sink FileSink[file:/data/out] does not support async progress tracking",
            Category.CONFIGURATION,
            FATAL,
        ),
        (
            "java.lang.IllegalArgumentException",
            "Async progress tracking cannot be used with AvailableNow trigger",
            Category.CONFIGURATION,
            FATAL,
        ),
        (
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException",
            "This server does not host this topic-partition.",
            Category.CONNECTION,
            RETRY,
        ),
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException",
            "Authentication failed: Invalid username or password",
            Category.CONFIGURATION,
            FATAL,
        ),
        (
            "org.apache.kafka.common.errors.TopicAuthorizationException",
            "Not authorized to access topics: [flights]",
            Category.CONFIGURATION,
            FATAL,
        ),
        (
            "java.lang.AssertionError",
            "No offset matched from request of topic-partition in-0 and timestamp 99.",
            Category.CONFIGURATION,
            FATAL,
        ),
        (
            "org.apache.spark.sql.AnalysisException",
            "[PATH_NOT_FOUND] Path does not exist: /data/in. SQLSTATE: 42K03",
            Category.STORAGE,
            RETRY,
        ),
        (
            "org.apache.spark.sql.AnalysisException",
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column named `nope` cannot be resolved. "
            "SQLSTATE: 42703",
            Category.PLAN,
            FATAL,
        ),
        ("org.apache.spark.sql.AnalysisException", "no such thing", Category.PLAN, FATAL),
        (
            "org.apache.spark.SparkRuntimeException",
            "[A_NEW_DATA_ERROR] A value is too odd. SQLSTATE: 22999",
            Category.DATA,
            POISON,
        ),
        ("java.net.ConnectException", "Connection refused", Category.CONNECTION, RETRY),
        ("java.net.SocketTimeoutException", "Read timed out", Category.CONNECTION, RETRY),
        ("java.net.UnknownHostException", "broker-1", Category.CONNECTION, RETRY),
        ("java.lang.OutOfMemoryError", "Java heap space", Category.MEMORY, RETRY),
        ("java.io.IOException", "No space left on device", Category.STORAGE, RETRY),
        (
            "software.amazon.awssdk.services.s3.model.S3Exception",
            "Forbidden (Service: S3, Status Code: 403, Request ID: 4SIV3YBCAYINE7VO)",
            Category.CREDENTIALS,
            RETRY,
        ),
        (
            "software.amazon.awssdk.services.s3.model.S3Exception",
            "The AWS Access Key Id you provided does not exist in our records. (Service: S3, "
            "Status Code: 403, Request ID: X)",
            Category.CREDENTIALS,
            RETRY,
        ),
        (
            "java.nio.file.AccessDeniedException",
            "s3a://b/c: org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials",
            Category.CREDENTIALS,
            RETRY,
        ),
        ("java.nio.file.AccessDeniedException", "/data/in: denied", Category.STORAGE, RETRY),
        ("Py4JNetworkError", "Answer from Java side is empty", Category.PROCESS, RETRY),
        ("Py4JError", "odd", Category.PROCESS, RETRY),
        (
            "NotAccepted",
            "The master spark://a:7077 did not accept this driver, whose Spark is 4.2.1, within a "
            "minute.",
            Category.CONNECTION,
            RETRY,
        ),
        (
            "org.apache.spark.SparkException",
            "Python worker exited unexpectedly (crashed)",
            Category.PROCESS,
            RETRY,
        ),
        ("queries.runtime.build.StartsItself", "It starts.", Category.CONFIGURATION, FATAL),
        ("queries.runtime.build.CallsNeedBatches", "Calls.", Category.CONFIGURATION, FATAL),
        ("queries.runtime.allowed_paths.QueryOnly", "DROP TABLE", Category.CONFIGURATION, FATAL),
        ("queries.secret_references.ReferenceMissing", "env:X", Category.CONFIGURATION, FATAL),
        ("ModuleNotFoundError", "No module named 'sqlalchemy'", Category.USER_CODE, POISON),
        ("java.lang.IllegalStateException", "odd", Category.UNKNOWN, RETRY),
        ("", "", Category.UNKNOWN, RETRY),
    ],
)
def test_what_carries_no_condition_is_told_by_its_text_or_type(
    type_name: str, text: str, category: Category, policy: Policy
) -> None:
    for error_class in ("", "STREAM_FAILED"):
        found = classify(
            error_class=error_class,
            type_name=type_name,
            root_cause=text,
            message=f"{type_name}: {text}" + PLAN,
        )
        assert (found.category, found.policy) == (category, policy)


@pytest.mark.parametrize(
    ("raised", "category", "policy", "title"),
    [
        ("KeyError: 'price'", Category.USER_CODE, POISON, "KeyError: 'price'"),
        ("ZeroDivisionError: division by zero", Category.USER_CODE, POISON, None),
        (
            "ConnectionRefusedError: [Errno 111] Connection refused",
            Category.CONNECTION,
            RETRY,
            "ConnectionRefusedError: [Errno 111] Connection refused",
        ),
        ("TimeoutError", Category.CONNECTION, RETRY, None),
        ("socket.gaierror: [Errno -3] Temporary failure", Category.CONNECTION, RETRY, None),
        ("urllib.error.HTTPError: HTTP Error 503: odd", Category.CONNECTION, RETRY, None),
        ("requests.exceptions.ReadTimeout: odd", Category.CONNECTION, RETRY, None),
        ("httpx.ConnectError: All attempts failed", Category.CONNECTION, RETRY, None),
        ("sqlite3.OperationalError: database is locked", Category.CONNECTION, RETRY, None),
        (
            "psycopg.OperationalError: could not connect to server",
            Category.CONNECTION,
            RETRY,
            None,
        ),
        ("mylib.errors.ApiError: server answered HTTP 502", Category.CONNECTION, RETRY, None),
        (
            "ConnectionResetError: [Errno 104] reset\n\nThe above exception was the direct cause "
            "of the following exception:\n\nTraceback (most recent call last):\n"
            "mylib.errors.LookupFailed: no answer",
            Category.CONNECTION,
            RETRY,
            "LookupFailed: no answer",
        ),
        ("ValueError: retries=3 is not enough", Category.USER_CODE, POISON, None),
    ],
)
def test_user_code_is_retried_where_a_service_was_away_and_poison_where_it_is_a_bug(
    raised: str, category: Category, policy: Policy, title: str | None
) -> None:
    message = proxy(raised)
    for error_class in ("FOREACH_BATCH_USER_FUNCTION_ERROR", "STREAM_FAILED", ""):
        found = classify(
            error_class=error_class,
            type_name="py4j.Py4JException",
            root_cause=message.split("===")[0],
            message=f"org.apache.spark.sql.streaming.StreamingQueryException: {message}",
        )
        assert (found.category, found.policy) == (category, policy)
        assert title is None or found.title == title


def test_a_users_error_that_the_driver_has_read_already_is_told_by_its_type() -> None:
    found = classify(
        error_class="HEADGATE_USER_CODE",
        type_name="ModuleNotFoundError",
        root_cause="No module named 'sqlalchemy'",
        message="",
    )
    assert (found.category, found.policy) == (Category.USER_CODE, POISON)
    assert found.title == "ModuleNotFoundError: No module named 'sqlalchemy'"


def test_a_file_that_a_store_does_not_deliver_is_no_bad_file() -> None:
    found = classify(
        error_class="FAILED_READ_FILE.NO_HINT",
        type_name="java.net.SocketTimeoutException",
        root_cause="Read timed out",
        message="[FAILED_READ_FILE.NO_HINT] Encountered error while reading s3a://b/f.",
    )
    assert (found.category, found.policy) == (Category.CONNECTION, RETRY)


def test_what_a_wrapper_holds_decides() -> None:
    found = classify(
        error_class="CANNOT_LOAD_STATE_STORE.UNCATEGORIZED",
        type_name="org.apache.spark.SparkException",
        root_cause="[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] Error reading "
        "delta file 7.delta",
        message="",
    )
    assert found.category is Category.DAMAGED


def test_a_storage_error_below_a_users_function_is_retried() -> None:
    found = classify(
        error_class="FOREACH_BATCH_USER_FUNCTION_ERROR",
        type_name="py4j.Py4JException",
        root_cause=proxy("pyspark.errors.SparkException: [FAILED_RENAME_TEMP_FILE] Failed."),
        message="",
    )
    assert (found.category, found.policy) == (Category.STORAGE, RETRY)


def test_lost_data_is_named_with_its_partition_and_offsets() -> None:
    text = "Could not read records in offset [93635, 104204) for topic partition in-0"
    found = classify(
        error_class="",
        type_name="org.apache.spark.sql.kafka010.KafkaIllegalStateException",
        root_cause=f"Some data may have been lost. {text}",
        message="",
    )
    assert "reading partition in-0 from offset 93635 up to 104204; at most 10,569" in found.meaning


@pytest.mark.parametrize(
    ("type_name", "text", "title"),
    [
        (
            "org.apache.kafka.clients.consumer.OffsetOutOfRangeException",
            "Fetch position FetchPosition{offset=500, offsetEpoch=Optional[0], currentLeader="
            "LeaderAndEpoch{leader=Optional[kafka-1:9092 (id: 1 rack: null)], epoch=0}} is out of "
            "range for partition flights-0",
            "OffsetOutOfRangeException: Fetch position is out of range for partition flights-0",
        ),
        (
            "py4j.protocol.Py4JError",
            "An error occurred while calling o75.start. Trace:\npy4j.Py4JException: Method "
            "start([]) does not exist\n\tat py4j.reflection.ReflectionEngine.getMethod(R.java:3)",
            "Py4JException: Method start([]) does not exist",
        ),
        (
            "py4j.protocol.Py4JJavaError",
            "An error occurred while calling o75.start.\n: java.lang.NoSuchMethodError: 'int x()'"
            "\n\tat a.b(C.java)",
            "NoSuchMethodError: 'int x()'",
        ),
        (
            "py4j.protocol.Py4JError",
            "An error occurred while calling o75.start",
            "The driver process ended unexpectedly",
        ),
        (
            "py4j.protocol.Py4JNetworkError",
            "Answer from Java side is empty",
            "The driver's JVM ended while the query was running",
        ),
        ("a.BError", f"{'A{' * 6}{'}' * 6} is bad", "BError: A{A{}} is bad"),
    ],
)
def test_a_title_holds_no_object_of_java_and_no_words_of_py4j(
    type_name: str, text: str, title: str
) -> None:
    found = classify(error_class="", type_name=type_name, root_cause=text, message=text)
    assert found.title == title


def test_division_by_zero_says_how_to_go_on() -> None:
    found = classify(
        error_class="DIVIDE_BY_ZERO",
        type_name="org.apache.spark.SparkArithmeticException",
        root_cause="[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` … SQLSTATE: 22012",
        message=DIVIDE_BY_ZERO,
    )
    assert found.title == "DIVIDE_BY_ZERO: Division by zero."
    assert "try_divide" in found.way_out
    assert top_frame(DIVIDE_BY_ZERO) == "sql: arr_delay / dep_delay"


@pytest.mark.parametrize(
    ("refused", "category", "policy"),
    [
        ("held", Category.LOCK, RETRY),
        ("own", Category.EARLIER_RUN, RETRY),
        ("fenced", Category.FENCED, RETRY),
        ("foreign", Category.OWNERSHIP, FATAL),
    ],
)
def test_a_refused_start_is_told_by_why(refused: str, category: Category, policy: Policy) -> None:
    found = classify(
        error_class="",
        type_name="",
        root_cause="The checkpoint is held by pid 4711. Another sentence.",
        message="",
        refused=refused,
    )
    assert (found.category, found.policy) == (category, policy)
    assert found.title == "The checkpoint is held by pid 4711."


def test_a_checkpoint_that_its_own_driver_holds_is_no_reason_to_end_a_process() -> None:
    text = "The checkpoint /c is held by run 41 of the same driver, which has not ended."
    found = classify(error_class="", type_name="", root_cause=text, message=text, refused="own")
    assert "End the process" not in found.way_out
    assert "to get a new driver; its other queries restart too" in found.way_out


@pytest.mark.parametrize(
    ("type_name", "error_class", "root_cause", "category", "policy", "says"),
    [
        (
            "queries.runtime.failures.error_capture.ExitInUsersCode",
            "HEADGATE_USER_CODE",
            "function 'app:build': SystemExit(3) was raised in app.py, line 12",
            Category.USER_CODE,
            POISON,
            "tried to exit the process",
        ),
        (
            "StartTimedOut",
            "",
            "The query was not started within 180 s; its code is at app.py, line 12.",
            Category.UNKNOWN,
            RETRY,
            "does not return",
        ),
    ],
)
def test_code_that_leaves_or_never_returns_is_named_with_its_line(
    type_name: str, error_class: str, root_cause: str, category: Category, policy: Policy, says: str
) -> None:
    found = classify(
        error_class=error_class, type_name=type_name, root_cause=root_cause, message=root_cause
    )
    assert (found.category, found.policy) == (category, policy)
    assert says in found.meaning
    assert "app.py, line 12" in found.title


@pytest.mark.parametrize(
    ("python", "jvm", "oom", "log", "category", "says"),
    [
        ("SIGKILL", "SIGKILL", False, "", Category.PROCESS, "killed by SIGKILL"),
        ("1", "SIGKILL", False, "", Category.PROCESS, "exited with 1, JVM killed by SIGKILL"),
        ("SIGKILL", "SIGKILL", True, "", Category.MEMORY, "out of memory"),
        ("1", "3", False, "java.lang.OutOfMemoryError: Java heap space", Category.MEMORY, "memory"),
        ("UNKNOWN", "UNKNOWN", False, "", Category.PROCESS, "for an unknown reason"),
        ("1", "SIGSEGV", False, "", Category.PROCESS, "SIGSEGV"),
        ("1", "0", False, "OSError: No space left on device", Category.STORAGE, "exited with 1"),
        ("0", "0", False, "", Category.PROCESS, "exited with 0"),
        ("", "", False, "", Category.PROCESS, "exited with no code"),
    ],
)
def test_the_death_of_a_driver_is_retried_and_told(
    python: str, jvm: str, oom: bool, log: str, category: Category, says: str
) -> None:
    found = classify_exit(python=python, jvm=jvm, oom=oom, log_tail=log)
    assert (found.category, found.policy) == (category, RETRY)
    assert says in found.title
    assert found.meaning
    assert found.way_out


def test_spark_s_own_exit_after_failed_executors_is_told() -> None:
    log = "ERROR ExecutorPodsLifecycleManager: Max number of executor failures (3) reached"
    found = classify_exit(python="74", jvm="11", oom=False, log_tail=log)
    assert (found.category, found.policy) == (Category.PROCESS, RETRY)
    assert found.title.startswith("Too many executors failed: ")
    assert "executors failed again and again" in found.meaning
    other = classify_exit(python="74", jvm="11", oom=False, log_tail="")
    assert "executors" not in other.title


@pytest.mark.parametrize("killed", [one for one in Killer if one])
def test_who_ended_a_driver_is_named_and_memory_only_where_the_kernel_says_so(
    killed: Killer,
) -> None:
    ends = {"python": "SIGKILL", "jvm": "SIGKILL"}
    found = classify_exit(**ends, oom=False, killed=killed)
    unknown = classify_exit(**ends, oom=False)
    assert (found.category, found.policy) == (Category.PROCESS, RETRY)
    assert found.meaning != unknown.meaning
    assert "unknown" in unknown.meaning
    assert ("dmesg" in found.way_out) is (killed is Killer.MEMORY_OR_STRANGER)
    assert ("not started" in found.title) is killed.startswith("walls")
    assert classify_exit(**ends, oom=True, killed=killed).category is Category.MEMORY


@pytest.mark.parametrize(
    ("found", "category"),
    [
        ("has been written by another driver.", Category.FENCED),
        ("exists already.", Category.OWNERSHIP),  # by a Spark that is not Headgate's
    ],
)
def test_a_log_entry_of_another_driver_of_ours_is_retried_and_a_strangers_is_not(
    found: str, category: Category
) -> None:
    text = f"The log entry s3a://bucket/delays/commits/7 {found}"
    told = classify(
        error_class="CONCURRENT_STREAM_LOG_UPDATE",
        type_name="org.apache.hadoop.fs.FileAlreadyExistsException",
        root_cause=text,
        message=f"[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.\n{text}",
    )
    assert told.category is category


def test_a_driver_that_was_cut_off_from_its_store_and_from_us_is_named() -> None:
    found = classify_exit(python="71", jvm=str(CUT_OFF), oom=False)
    assert (found.category, found.policy) == (Category.PROCESS, RETRY)
    assert "could have taken over" in found.meaning
    assert "connection of this host to the store" in found.way_out


def test_every_category_has_a_meaning_and_a_way_out() -> None:
    assert set(GENERAL) == set(Category)


@given(*(st.text(max_size=400) for _ in range(4)))
def test_nothing_that_a_failure_can_say_breaks_the_judgement(
    error_class: str, type_name: str, root_cause: str, message: str
) -> None:
    found = classify(
        error_class=error_class, type_name=type_name, root_cause=root_cause, message=message
    )
    assert found.policy is found.category.policy
    assert 0 < len(found.title) <= 300
    assert "\n" not in found.title


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("`dep_delay`", "Did you mean `dep_delay`?"),
        ("`a`, `b`, `c`, `d`", "Did you mean `a`, `b`, `c`?"),
    ],
)
def test_what_spark_suggests_stands_in_the_headline(names: str, said: str) -> None:
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name "
        f"`delay` cannot be resolved. Did you mean one of the following? [{names}]. "
        "SQLSTATE: 42703; line 1 pos 7"
    )
    found = classify(
        error_class="UNRESOLVED_COLUMN.WITH_SUGGESTION",
        type_name="org.apache.spark.sql.catalyst.ExtendedAnalysisException",
        root_cause=text,
        message=text,
        in_batch=False,
    )
    assert found.title == (
        "UNRESOLVED_COLUMN.WITH_SUGGESTION: A column, variable, or function parameter with name "
        f"`delay` cannot be resolved. {said}"
    )
