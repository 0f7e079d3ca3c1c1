"""A query of a script gets another name, on a whole system: it is held until an author answers."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults.shared import code_of, data_of
from tests.faults.system import System
from tests.spark.driver_under_test import write_rows
from tests.spark.scripts.script_driver import rows_in

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.timeout(2400)]

SCRIPT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", "1").json(sys.argv[1])
query = rows.writeStream.queryName("NAME").format("json").option("path", sys.argv[2]).start()
query.awaitTermination()
"""


@pytest.fixture
def system(shared_system: System) -> System:
    """Return the shared system."""
    return shared_system


@pytest.fixture
def folder(system: System) -> Path:
    """Return the folder of the script."""
    return code_of(system)


def ids(out: Path) -> list[int]:
    return sorted(row["id"] for row in rows_in(out))


def held_after_renaming(system: System, folder: Path, name: str) -> dict[str, Any]:
    """Rename the query in the script, restart it; return the question."""
    (folder / "renamed.py").write_text(SCRIPT.replace("NAME", name))
    status, answer = system.call("POST", "applications/renamed/restart/", {})
    assert status == 202, answer

    def question() -> Any:
        script = system.get("applications/renamed/")["script"]
        return script["question"] if script["phase"] == "FAILED" else None

    found: dict[str, Any] = system.wait("the script is held", question)
    return found


def answer(system: System, question: dict[str, Any], same_as: str) -> None:
    said = {"identity": question["identity"], "same_as": same_as}
    status, body = system.call("POST", "applications/renamed/answer/", said)
    assert status == 200, body


def test_it_goes_on_from_the_old_offsets_or_begins_as_another(system: System, folder: Path) -> None:
    source, out = data_of(system) / "renamed/in", data_of(system) / "renamed/out"
    write_rows(source, "0.json", [{"id": 0}, {"id": 1}])
    (folder / "renamed.py").write_text(SCRIPT.replace("NAME", "one"))
    spec = {
        "kind": "script",
        "memory": "512m",
        "master": "local[2]",
        "python_path": [str(folder)],
        "script": {"file": f"{folder}/renamed.py", "arguments": [str(source), str(out)]},
    }
    status, made = system.call("POST", "applications/", {"name": "renamed", "spec": spec})
    assert status == 201, made
    assert system.call("POST", "applications/renamed/start/", {})[0] == 202
    first = system.wait("one runs", lambda: ready(system, "renamed~one"))
    system.wait("its rows are there", lambda: ids(out) == [0, 1])

    question = held_after_renaming(system, folder, "two")
    assert (question["query"], question["missing"]) == ('"two"', ["renamed/one"])
    write_rows(source, "1.json", [{"id": 2}])
    assert system.get("queries/?application=renamed")["results"][0]["name"] == "renamed/one"
    answer(system, question, "renamed/one")
    second = system.wait("two runs", lambda: ready(system, "renamed~two"))
    assert second["checkpoint"] == first["checkpoint"]
    system.wait("the new row is there", lambda: 2 in ids(out))
    assert ids(out) == [0, 1, 2]  # no row was lost, and none was read again
    runs = system.get("queries/renamed~two/runs/")["results"]
    assert len(runs) == 2

    question = held_after_renaming(system, folder, "three")
    answer(system, question, "")
    third = system.wait("three runs", lambda: ready(system, "renamed~three"))
    assert third["checkpoint"] != first["checkpoint"]
    # A file sink's log knows batches, not checkpoints: what a new one writes there is left out. So
    # its own log tells that it began with the first file.
    begun = Path(third["checkpoint"].removeprefix("file://")) / "sources/0"
    system.wait("it reads from the start", lambda: "0.json" in read(begun))
    gone = system.get("queries/renamed~two/")
    assert (gone["phase"], gone["phase_reason_code"]) == ("STOPPED", "SCRIPT_DROPPED")

    place = 'sys.argv[2] + "-" + spark.sparkContext.applicationId'
    moving = SCRIPT.replace(".start()", f'.option("checkpointLocation", {place}).start()')
    (folder / "renamed.py").write_text(moving.replace("NAME", "three"))
    assert system.call("POST", "applications/renamed/restart/", {})[0] == 202

    def noted() -> Any:
        notes = system.get("applications/renamed/")["script"]["notes"]
        return [one for one in notes if "The checkpoint of renamed/three was" in one]

    [note] = system.wait("the new place is named", noted)
    assert third["checkpoint"] in note
    assert f"{out}-local-" in note


def ready(system: System, name: str) -> Any:
    """Return a query's body once it runs; None while it is not there, or does not."""
    status, body = system.call("GET", f"queries/{name}/")
    return body if status == 200 and body["phase"] == "RUNNING" else None


def read(log: Path) -> str:
    return "".join(file.read_text() for file in log.glob("[0-9]*"))
