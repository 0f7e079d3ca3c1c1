"""What of a definition is code to a driver."""

from typing import Any

import pytest

from queries.domain.definitions.code import application_brings_code, brings_code
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, Sink, Source, SqlQuery


def sql(**changes: Any) -> SqlQuery:
    source = Source(name="orders", format="kafka", options=changes.pop("options", {}))
    given = {"sources": (source,), "sql": "SELECT 1", "sink": Sink(format="noop"), **changes}
    return SqlQuery(**given)


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
