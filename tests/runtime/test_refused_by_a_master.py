"""A master that accepts no driver is named, however far Spark's constructor got meanwhile."""

import pytest

from queries.runtime.spark_session import stopped_while_starting

#: What the constructor of SparkContext has said, depending on when the context was stopped.
STOPPED = [
    "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
    'java.lang.NullPointerException: Cannot invoke "org.apache.spark.scheduler.TaskScheduler'
    '.postStartHook()" because the return value of "org.apache.spark.SparkContext'
    '._taskScheduler()" is null',
    'java.lang.NullPointerException: Cannot invoke "org.apache.spark.SparkEnv.metricsSystem()" '
    'because the return value of "org.apache.spark.SparkEnv$.get()" is null',
    "java.lang.IllegalArgumentException: requirement failed: Can only call getServletHandlers on a "
    "running MetricsSystem",
    "org.apache.spark.SparkException: Could not find HeartbeatReceiver.",
    "org.apache.spark.rpc.RpcEnvStoppedException: RpcEnv already stopped.",
]


@pytest.mark.parametrize("text", STOPPED)
def test_a_context_that_spark_stopped_while_it_started_is_recognized(text: str) -> None:
    assert stopped_while_starting(text)


@pytest.mark.parametrize(
    "text",
    [
        "java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed",
        'java.lang.NullPointerException: Cannot invoke "String.length()" because "value" is null',
        "org.apache.spark.SparkException: Could not parse Master URL: 'spark:/nowhere'",
    ],
)
def test_another_error_keeps_its_own_words(text: str) -> None:
    assert not stopped_while_starting(text)
