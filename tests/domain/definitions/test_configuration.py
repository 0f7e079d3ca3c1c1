"""Configuration and environment are open where they tune, closed where they take over."""

import pytest

from queries.domain.definitions.configuration import (
    application_conf_problems,
    environment_problems,
    query_conf_problems,
)


@pytest.mark.parametrize(
    "key",
    [
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.metricsEnabled",
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.warehouse.dir",
        "spark.hadoop.fs.s3a.endpoint",
        "spark.scheduler.listenerbus.eventqueue.capacity",
        "spark.scheduler.listenerbus.eventqueue.streams.capacity",
        "spark.task.maxFailures",
        "spark.speculation",
        "spark.executor.memory",
        "spark.memory.fraction",
        "spark.shuffle.compress",
        "spark.locality.wait",
        "spark.network.timeout",
        "spark.log.level",
        "spark.ui.retainedJobs",
    ],
)
def test_what_tunes_is_open(key: str) -> None:
    assert application_conf_problems({key: "1"}) == []


@pytest.mark.parametrize(
    "key",
    [
        "spark.master",
        "spark.driver.memory",
        "spark.app.name",
        "spark.driver.extraJavaOptions",
        "spark.driver.defaultJavaOptions",
        "spark.executor.extraJavaOptions",
        "spark.driver.extraClassPath",
        "spark.driver.extraLibraryPath",
        "spark.jars",
        "spark.jars.packages",
        "spark.jars.ivy",
        "spark.files",
        "spark.submit.pyFiles",
        "spark.plugins",
        "spark.plugins.defaultList",
        "spark.extraListeners",
        "spark.sql.extensions",
        "spark.sql.queryExecutionListeners",
        "spark.sql.streaming.streamingQueryListeners",
        "spark.sql.streaming.checkpointLocation",
        "spark.sql.streaming.stopTimeout",
        "spark.sql.hive.metastore.jars.path",
        "spark.scheduler.mode",
        "spark.scheduler.allocation.file",
        "spark.scheduler.listenerbus.eventqueue.headgate.capacity",
        "spark.local.dir",
        "spark.ui.port",
        "spark.ui.killEnabled",
        "spark.pyspark.python",
        "spark.python.daemon.module",
        "spark.shuffle.manager",
        "spark.serializer.objectStreamReset",
        "spark.metrics.conf",
        "spark.redaction.regex",
        "spark.driver.host",
        "something.else",
        "",
    ],
)
def test_what_takes_over_or_is_unknown_is_closed(key: str) -> None:
    (problem,) = application_conf_problems({key: "x"})
    assert problem.field == f"conf.{key}"
    assert problem.value == "x"
    assert problem.way_out


def test_a_control_character_is_no_configuration() -> None:
    (problem,) = application_conf_problems({"spark.sql.ansi.enabled": "true\nspark.plugins=x"})
    assert "control character" in problem.message


def test_a_secret_in_configuration_is_named_never_written_out() -> None:
    key = "spark.hadoop.fs.s3a.secret.key"
    (problem,) = application_conf_problems({key: "abc"})
    assert "abc" not in str(problem)
    assert "file:NAME" in problem.way_out
    assert application_conf_problems({key: "file:s3-secret"}) == []


def test_a_query_sets_what_its_session_can_change() -> None:
    assert query_conf_problems({"spark.sql.shuffle.partitions": "4"}) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("PYTHONPATH", "controls"),
        ("PATH", "controls"),
        ("LD_PRELOAD", "controls"),
        ("JAVA_TOOL_OPTIONS", "controls"),
        ("SPARK_HOME", "controls"),
        ("PYSPARK_PYTHON", "controls"),
        ("HEADGATE_HOME", "controls"),
        ("DATABASE_URL", "controls"),
        ("secret_key", "controls"),
        ("2FAST", "is not a variable name"),
        ("A-B", "is not a variable name"),
        ("", "is not a variable name"),
    ],
)
def test_the_environment_leaves_what_steers_the_driver_alone(name: str, says: str) -> None:
    problems = environment_problems({name: "x"}, allowed=())
    assert says in problems[0].message


def test_the_environment_names_secrets_that_the_host_may_tell() -> None:
    ok = {"DB_PASSWORD": "env:DB_PASSWORD", "API_TOKEN": "file:api-token", "MODE": "trial"}
    assert environment_problems(ok, allowed=("DB_PASSWORD",)) == []
    (problem,) = environment_problems({"A": "env:OTHER"}, allowed=("DB_PASSWORD",))
    assert "Add OTHER to HEADGATE_SECRET_ENV" in problem.way_out
    (problem,) = environment_problems({"DB_PASSWORD": "hunter2"}, allowed=())
    assert "in plain text" in problem.message
    (problem,) = environment_problems({"A": "x\0y"}, allowed=())
    assert "null byte" in problem.message


@pytest.mark.parametrize("value", ["${env:KEY}", "a-${env.KEY}-b", "$${x}"])
def test_a_value_that_would_be_replaced_by_what_the_process_has_is_refused(value: str) -> None:
    (problem,) = application_conf_problems({"spark.hadoop.fs.s3a.endpoint": value})
    assert problem.message.startswith("contains ${…}")
