"""What Spark 4.1.4 reports where a newer version has a condition of its own, as recorded."""

import pytest

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
