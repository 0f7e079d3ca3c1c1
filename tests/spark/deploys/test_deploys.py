"""Deploys on a whole system: a good one, one that goes back, one that cannot go back."""

from typing import Any

import pytest

from tests.faults.shared import code_of
from tests.faults.system import System

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.timeout(2400)]

#: A state that its function reads itself: form 2 reads what form 1 wrote, and not the reverse.
CODE = '''
import pandas as pd
from pyspark.sql import functions as F


def _keeps(params):
    form, wrong = int(params["form"]), params.get("wrong")

    def keep(key, frames, state):
        count = sum(len(frame) for frame in frames)
        held = state.get[0] if state.exists else "0"
        text, _, after = held.removeprefix("form 2: " if form == 2 else "").partition(" after ")
        total, batches = int(text) + count, int(after or 0) + 1
        if wrong:
            raise ValueError("the change is wrong")
        if batches > int(params.get("until", batches)):
            raise ZeroDivisionError("too many batches")
        state.update((f"form 2: {total} after {batches}" if form == 2 else str(total),))
        yield pd.DataFrame({"k": [key[0]], "total": [total]})

    return keep


def define(spark, params):
    """Count the rows of each key for ever."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 4).load()
    keyed = rows.select((F.col("value") % 2).alias("k"), "value")
    counted = keyed.groupBy("k").applyInPandasWithState(
        _keeps(params), "k LONG, total LONG", "held STRING", "update", "NoTimeout"
    )
    return counted.writeStream.outputMode("update").format("noop")
'''


@pytest.fixture
def system(shared_system: System) -> System:
    """Return the shared system, with the code that its drivers run."""
    (code_of(shared_system) / "counting.py").write_text(CODE)
    return shared_system


def manifests(system: System, name: str, **params: Any) -> list[dict[str, Any]]:
    """Return the files of an application and its query with these parameters."""
    head = {"apiVersion": "headgate/v1"}
    application = {
        "memory": "512m",
        "master": "local[2]",
        "python_path": [system.environment["HEADGATE_CODE_ROOTS"]],
        "conf": {"spark.sql.shuffle.partitions": "1"},
    }
    query = {
        "kind": "python",
        "function": "counting:define",
        "params": params,
        "trigger": {"kind": "processing_time", "interval": "1 second"},
    }
    about = {"name": name, "application": f"{name}-driver"}
    return [
        {
            "path": "driver.yaml",
            "manifest": {
                **head,
                "kind": "Application",
                "metadata": {"name": f"{name}-driver"},
                "spec": application,
            },
        },
        {
            "path": "queries/query.yaml",
            "manifest": {**head, "kind": "Query", "metadata": about, "spec": query}
            | {"desired": "RUNNING"},
        },
    ]


def deployed(system: System, name: str, params: dict[str, Any], **how: Any) -> dict[str, Any]:
    """Deploy the query with these parameters; return the report once it has ended."""
    source = {"repository": "https://git/flights", "commit": "c" * 40}
    body = {"owner": name, "source": source, "manifests": manifests(system, name, **params)}
    return system.deployed({"apply": body, **how})


def only(report: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the report's one query."""
    [wave] = report["waves"]
    [query] = wave["queries"]
    assert query["name"] == name
    return dict(query)


def test_a_good_change_goes_on_and_a_wrong_one_goes_back_by_itself(system: System) -> None:
    first = deployed(system, "counts", {"form": 1}, good={"batches": 1})
    assert first["state"] == "SUCCEEDED", first
    assert only(first, "counts")["first_batch"] == 0

    good = deployed(system, "counts", {"form": 1, "note": "good"}, good={"batches": 2})
    assert good["state"] == "SUCCEEDED", good
    query = only(good, "counts")
    assert (query["from_revision"], query["to_revision"]) == (1, 2)
    assert query["first_batch"] > 0
    assert query["snapshot"] is not None

    wrong = deployed(system, "counts", {"form": 1, "wrong": "yes"}, good={"batches": 1})
    assert wrong["state"] == "ROLLED_BACK", wrong
    query = only(wrong, "counts")
    assert "the change is wrong" in str(query["evidence"]["failures"])
    assert wrong["reason"].startswith("counts failed: ")
    assert (query["to_revision"], query["back_revision"]) == (3, 4)
    assert running_on(system, "counts", 4)


def test_a_state_that_the_former_revision_cannot_read_is_left_to_a_rewind(system: System) -> None:
    first = deployed(system, "forms", {"form": 1}, good={"batches": 1})
    assert first["state"] == "SUCCEEDED", first

    # It writes its own form for some batches, and then fails.
    kept = deployed(system, "forms", {"form": 2, "until": 3}, good={"batches": 1000})
    assert kept["state"] == "FAILED", kept
    assert kept["reason"].startswith("forms failed: ")
    assert "It is not proven that revision" in kept["reason"]
    query = only(kept, "forms")
    assert query["first_batch"] is not None, "it has written some"
    [offer] = kept["offers"]
    assert (offer["act"], offer["query"]) == ("rewind", "forms")
    assert offer["snapshot"] == query["snapshot"]

    # The rewind that is offered starts the former definition on the state from before.
    system.verb("forms", "rewind", {"batch": offer["batch"]})
    assert running_on(system, "forms", query["back_revision"])["phase"] == "RUNNING"


def running_on(system: System, name: str, revision: int) -> Any:
    """Wait until the query runs on a revision; return its body."""

    def look() -> Any:
        body = system.query(name)
        return body if (body["phase"], body["running_revision"]) == ("RUNNING", revision) else None

    return system.wait(f"{name} on revision {revision}", look)
