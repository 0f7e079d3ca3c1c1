"""What of a definition is code to a driver."""

from typing import Any

import pytest

from queries.domain.definitions.code import (
    application_brings_code,
    brings_code,
    handed_to_storage,
)
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, Sink, Source, SqlQuery


def sql(**changes: Any) -> SqlQuery:
    source = Source(name="orders", format="kafka", options=changes.pop("options", {}))
    given = {"sources": (source,), "sql": "SELECT 1", "sink": Sink(format="noop"), **changes}
    return SqlQuery(**given)


@pytest.mark.guarantee("G-PYTHON-2")
@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"python_path": ("/srv/code",)}, ["python_path"]),
        ({"listeners": ("a:B",)}, ["listeners"]),
        ({"master": "spark://somewhere:7077"}, ["master"]),
        ({"conf": {"spark.kubernetes.container.image": "mine"}}, None),
        ({"conf": {"spark.hadoop.net.topology.script.file.name": "/x"}}, None),
        ({"conf": {"spark.hadoop.hadoop.kerberos.kinit.command": "/x"}}, None),
        ({"env": {"GRPC_PLUGIN": "x"}}, ["env.GRPC_PLUGIN"]),
        ({"conf": {"spark.sql.shuffle.partitions": "4"}}, []),
        ({"env": {"AWS_REGION": "eu-central-1", "TZ": "UTC"}}, []),
        ({"connectors": ("kafka",), "memory": "2g", "master": "local[4]"}, []),
    ],
)
def test_a_new_application_brings_code_by_these_fields(
    changes: dict[str, Any], fields: list[str] | None
) -> None:
    expected = [f"conf.{name}" for name in changes["conf"]] if fields is None else fields
    assert application_brings_code(None, ApplicationSpec(**changes)) == expected


def test_code_that_is_there_is_left_as_it_is_and_neither_changed_nor_taken_away() -> None:
    before = ApplicationSpec(python_path=("/a", "/b"), env={"PLUGIN": "x"}, memory="1g")
    assert application_brings_code(before, before.model_copy(update={"memory": "2g"})) == []
    for changed, fields in (
        ({"python_path": ("/b", "/a")}, ["python_path"]),
        ({"python_path": ()}, ["python_path"]),
        ({"env": {}}, ["env.PLUGIN"]),
    ):
        assert application_brings_code(before, before.model_copy(update=changed)) == fields


def test_a_query_in_python_is_code_whatever_was_there_before() -> None:
    python = PythonQuery(function="a:b")
    assert brings_code(None, python) == ["kind"]
    assert brings_code(python, python) == ["kind"]
    assert brings_code(python, sql()) == []


@pytest.mark.guarantee("G-PYTHON-2")
@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.kerberos.kinit.cmd",
        "kafka.metric.reporters",
        "kafka.SSL.engine.factory.CLASS",
        "kafka.security.providers",
        "kafka.partition.assignment.strategy",
    ],
)
def test_an_option_that_loads_a_class_or_runs_a_program_is_code(name: str) -> None:
    held = sql(options={name: "x", "subscribe": "orders"})
    assert brings_code(None, held) == [f"sources.orders.options.{name}"]
    assert brings_code(held, held) == []
    assert brings_code(held, sql(options={name: "y"})) == [f"sources.orders.options.{name}"]
    in_sink = sql(sink=Sink(format="kafka", options={name: "x"}))
    assert brings_code(None, in_sink) == [f"sink.options.{name}"]
    assert brings_code(None, sql(sink=None)) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("net.topology.script.file.name", "/srv/x"),
        ("net.topology.node.switch.mapping.impl", "org.apache.hadoop.net.ScriptBasedMapping"),
        ("fs.client.resolve.topology.enabled", "true"),
        ("hadoop.security.group.mapping", "org.apache.hadoop.security.ShellBasedUnixGroupsMapping"),
        ("hadoop.security.credential.provider.path", "localjceks://file/srv/x"),
        ("hadoop.kerberos.kinit.command", "/srv/x"),
        ("fs.azure.shellkeyprovider.script", "/srv/x"),
        ("fs.s3a.aws.credentials.provider", "com.example.RunsAProgram"),
        (
            "fs.s3a.aws.credentials.provider",
            "software.amazon.awssdk.auth.credentials.ProcessCredentialsProvider",
        ),
        ("google.cloud.auth.service.account.json.keyfile", "/srv/x"),
        ("fs.s3a.endpoint", "${user.home}"),
        ("fs.s3a.impl", "com.example.Other"),
        ("fs.defaultFS", "s3a://bucket"),
        ("anything.else", "1"),
    ],
)
def test_no_key_that_may_run_a_program_reaches_the_storage_jvm(key: str, value: str) -> None:
    name = f"spark.hadoop.{key}"
    handed = handed_to_storage({name: value}, {})
    assert (handed.conf, handed.withheld) == ({}, (name,))


def test_a_storage_jvm_knows_address_account_and_tuning_and_no_other_setting() -> None:
    conf = {
        "spark.hadoop.fs.s3a.endpoint": "https://minio.example:9000",
        "spark.hadoop.fs.s3a.secret.key": "file:s3-secret",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
        ),
        "spark.hadoop.dfs.nameservices": "lake",
        "spark.hadoop.hadoop.security.authentication": "kerberos",
    }
    env = {"AWS_REGION": "eu-central-1", "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token"}
    handed = handed_to_storage(
        {**conf, "spark.sql.shuffle.partitions": "4"}, {**env, "GRPC_PLUGIN": "x"}
    )
    assert (handed.conf, handed.env, handed.withheld) == (conf, env, ())
