"""Deploys of a script on a whole system: a good one, and one that goes back by itself."""

from typing import Any

import pytest

from tests.faults.shared import code_of
from tests.faults.system import System

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.timeout(2400)]

PROGRAM = """
import sys

from pyspark.sql import SparkSession

how = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 4).load()
seconds = 2 if how == "slower" else 1


def keep(batch, number):
    batch.count()
    if how == "wrong" and number > 0:
        raise ValueError("the change is wrong")


query = (
    rows.writeStream.foreachBatch(keep)
    .queryName("counts")
    .trigger(processingTime=f"{seconds} seconds")
    .start()
)
if how == "wrong-later":
    raise RuntimeError("nothing is right")
query.awaitTermination()
"""


@pytest.fixture
def system(shared_system: System) -> System:
    """Return the shared system, with the code that its drivers run."""
    (code_of(shared_system) / "job.py").write_text(PROGRAM)
    return shared_system


def deployed(system: System, how: str, **more: Any) -> dict[str, Any]:
    """Deploy the script with this argument; return the report once it has ended."""
    code = system.environment["HEADGATE_CODE_ROOTS"]
    application = {
        "kind": "script",
        "memory": "512m",
        "master": "local[2]",
        "python_path": [code],
        "script": {"file": f"{code}/job.py", "arguments": [how]},
    }
    head = {"apiVersion": "headgate/v1", "kind": "Application", "metadata": {"name": "job"}}
    manifest = {**head, "spec": application, "desired": "RUNNING"}
    body = {"owner": "jobs", "manifests": [{"path": "job.yaml", "manifest": manifest}]}
    return system.deployed({"apply": body, **more})


def own(report: dict[str, Any]) -> dict[str, Any]:
    """Return what the report says of the application."""
    [wave] = report["waves"]
    [application] = wave["applications"]
    assert application["name"] == "job"
    return dict(application)


def test_a_new_script_is_judged_and_wrong_code_of_it_goes_back(system: System) -> None:
    first = deployed(system, "good", good={"batches": 2})
    assert first["state"] == "SUCCEEDED", first
    application = own(first)
    assert application["from_revision"] is None
    assert "job/counts" in application["judged_by"]
    assert application["proven_at"]

    slower = deployed(system, "slower", good={"batches": 1})
    assert slower["state"] == "SUCCEEDED", slower
    [wave] = slower["waves"]
    assert [one["name"] for one in wave["queries"]] == ["job/counts"]
    assert wave["queries"][0]["first_batch"] > 0, "reading continues from its offsets"

    # Its query gets another trigger, and fails after a batch.
    wrong = deployed(system, "wrong", good={"batches": 3})
    assert wrong["state"] == "ROLLED_BACK", wrong
    assert wrong["reason"].startswith("job")
    assert "the change is wrong" in str(own(wrong)["evidence"]["failures"])
    assert (own(wrong)["to_revision"], own(wrong)["back_revision"]) == (3, 4)

    # It raises while its query's first batch is under way.
    raises = deployed(system, "wrong-later")
    assert raises["state"] == "ROLLED_BACK", raises
    assert "nothing is right" in str(own(raises)["evidence"]["failures"])

    body = system.get("applications/job/")
    assert body["running_revision"] == 6
    assert system.query("job~counts")["phase"] == "RUNNING"
