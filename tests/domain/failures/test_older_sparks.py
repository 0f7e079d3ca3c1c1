"""What Spark 4.1.4 and 3.5.9 report where a newer version has a condition, as recorded."""

import pytest

from queries.domain.failures import error_text
from queries.domain.failures.categories import Category, FailureSubject
from queries.domain.failures.diagnosis import classify

RECORDED = {
    "a Python function": (  # PYTHON_EXCEPTION since 4.2
        "PythonException",
        "Traceback (most recent call last):\n"
        '  File "users_sums.py", line 19, in <lambda>\n'
        "    u = f.udf(lambda v: 1 // (v - 5), 'int')\n"
        "ZeroDivisionError: integer division or modulo by zero\n",
        Category.USER_CODE,
    ),
    "missing state": (  # STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY since 4.2
        "FileNotFoundException",
        "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred during "
        "loading state. Error reading delta file file:/c/state/0/0/1.delta of "
        "HDFSStateStoreProvider[stateStoreProviderId=StateStoreProviderId[ storeId=StateStoreId[ "
        "operatorId=0, partitionId=0, storeName=default ], queryRunId=8a67f331 ]]: "
        "file:/c/state/0/0/1.delta does not exist. SQLSTATE: 58030",
        Category.DAMAGED,
    ),
    "named sources": (  # a log that 4.2 or newer wrote
        "SparkIllegalStateException",
        "[INVALID_LOG_VERSION.MAX_SUPPORTED_VERSION] UnsupportedLogVersion. The maximum supported "
        "log version is v1, but encountered v2. The log file was produced by a newer version of "
        "Spark and cannot be read by this version. You need to upgrade. SQLSTATE: KD002",
        Category.INCOMPATIBLE,
    ),
    "a join of 4.3": (
        "SparkIllegalArgumentException",
        "[INVALID_CONF_VALUE.REQUIREMENT] The value '4' in the config "
        '"spark.sql.streaming.join.stateFormatVersion" is invalid. Valid versions are 1, 2, and 3 '
        "SQLSTATE: 22022",
        Category.CONFIGURATION,
    ),
}


@pytest.mark.parametrize("case", RECORDED)
def test_an_older_spark_is_understood_by_its_messages(case: str) -> None:
    type_name, text, category = RECORDED[case]
    found = classify(
        error_class="",
        type_name=type_name,
        root_cause=text,
        message=text,
        subject=FailureSubject.SQL,
    )
    assert found.category is category


#: What Spark 3.5.9 reports with a condition of its own ("" for none), and the condition of 4.0.
BEFORE_4_0 = {
    "an append without a watermark": (
        "",
        "Append output mode not supported when there are streaming aggregations on streaming "
        "DataFrames/DataSets without watermark;",
        "STREAMING_OUTPUT_MODE",
        Category.CONFIGURATION,
    ),
    "a deduplication without a watermark": (
        "",
        "dropDuplicatesWithinWatermark is not supported on streaming DataFrames/DataSets without "
        "watermark;",
        "UNSUPPORTED_STREAMING_OPERATOR_WITHOUT_WATERMARK",
        Category.CONFIGURATION,
    ),
    "updates of files": (
        "_LEGACY_ERROR_TEMP_1131",
        "Data source parquet does not support Update output mode.",
        "STREAMING_OUTPUT_MODE.UNSUPPORTED_DATASOURCE",
        Category.CONFIGURATION,
    ),
    "a log of a newer version": (
        "",
        "Failed to read log file file:/c/offsets/0. UnsupportedLogVersion: maximum supported log "
        "version is v1, but encountered v2. The log file was produced by a newer version of Spark "
        "and cannot be read by this version. Please upgrade.",
        "INVALID_LOG_VERSION",
        Category.INCOMPATIBLE,
    ),
    "another schema of the state": (
        "",
        "Provided schema doesn't match to the schema for existing state! Please note that Spark "
        "allow difference of field name: check count of fields and data type of each field.",
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        Category.INCOMPATIBLE,
    ),
    "missing state": (
        "",
        "Error reading delta file file:/c/state/0/0/1.delta of HDFSStateStoreProvider[id = (op=0,"
        "part=0),dir = file:/c/state/0/0]: file:/c/state/0/0/1.delta does not exist",
        "CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE",
        Category.DAMAGED,
    ),
    "missing state in RocksDB": (
        "",
        "Error reading streaming state file of file:/c/state/0/0/1.changelog does not exist. If "
        "the stream job is restarted with a new or updated state operation, please create a new "
        "checkpoint location or clear the existing checkpoint location.",
        "CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE",
        Category.DAMAGED,
    ),
    "damaged state": (  # not recorded: the text of its jar
        "_LEGACY_ERROR_TEMP_2258",
        "Error reading delta file file:/c/state/0/0/1.delta of HDFSStateStoreProvider[id = (op=0,"
        "part=0),dir = file:/c/state/0/0]: key size cannot be -4.",
        "CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_KEY_SIZE",
        Category.CORRUPTION,
    ),
    "a file that is not Parquet": (
        "",
        "file:/in/x.parquet is not a Parquet file. Expected magic number at tail, but found [101]",
        "FAILED_READ_FILE.NO_HINT",
        Category.DATA,
    ),
    "a source file that is gone": (  # not recorded: the text of its jar
        "_LEGACY_ERROR_TEMP_2055",
        "File file:/in/a.csv does not exist\nIt is possible the underlying files have been "
        "updated.",
        "FAILED_READ_FILE.FILE_NOT_EXIST",
        Category.DATA,
    ),
    "raise_error()": (
        "",
        "java.lang.RuntimeException: no\n\tat org.apache.spark.sql.catalyst.expressions."
        "GeneratedClass$GeneratedIteratorForCodegenStage1.processNext(Unknown Source)",
        "USER_RAISED_EXCEPTION",
        Category.DATA,
    ),
}


@pytest.mark.parametrize("case", BEFORE_4_0)
def test_a_message_of_3_5_is_classified_by_the_condition_of_newer_versions(case: str) -> None:
    error_class, text, condition, category = BEFORE_4_0[case]
    assert error_text.condition(error_class, text, "") == condition
    found = classify(
        error_class=error_class, type_name="x.Exception", root_cause=text, message=text
    )
    assert found.category is category
    assert found.title.startswith(condition)


def test_the_message_of_a_newer_version_does_not_replace_its_condition() -> None:
    text = "Error reading delta file file:/c/1.delta of X: file:/c/1.delta does not exist"
    name = "CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS"
    assert error_text.condition(name, text, "") == name
    assert error_text.condition("", f"[{name}] {text}", "") == name
