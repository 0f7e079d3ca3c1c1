"""One of three queries of a real driver calls os._exit in its foreachBatch: it is found."""

from functools import partial
from typing import Any

import pytest

from tests.faults.shared import code_of
from tests.faults.system import System

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.timeout(1200)]

CODE = """
import os

def leaves(batch, number):
    os._exit(5)

def define(spark, params):
    return spark.readStream.format("rate").load().writeStream.foreachBatch(leaves)
"""
RATE: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate"}],
    "sql": "SELECT * FROM ticks",
    "sink": {"format": "noop"},
    "trigger": {"kind": "processing_time", "interval": "1 second"},
}
KILLER: dict[str, Any] = {
    "kind": "python",
    "function": "killer:define",
    "trigger": {"kind": "processing_time", "interval": "1 second"},
}
NEIGHBOURS = ("arrivals", "routes")


def define(system: System, path: str, body: dict[str, Any]) -> None:
    status, answer = system.call("POST", path, body)
    assert status == 201, answer


def goes_on(system: System, name: str, batch: int) -> bool:
    return system.batch(name) > batch


@pytest.mark.guarantee("G-RESTART-3")
def test_the_query_that_ends_its_driver_is_held_and_the_others_run_on(
    shared_system: System,
) -> None:
    system, root = shared_system, code_of(shared_system)
    (root / "killer.py").write_text(CODE)
    spec = {"memory": "512m", "python_path": [str(root)], "policy": {"base_delay_s": 1}}
    define(system, "applications/", {"name": "flights", "spec": spec})
    for name, query in (("arrivals", RATE), ("delays", KILLER), ("routes", RATE)):
        define(system, "queries/", {"name": name, "application": "flights", "spec": query})
    for name in ("arrivals", "delays", "routes"):
        system.verb(name, "start")

    def held() -> Any:
        bodies = {name: system.query(name) for name in ("arrivals", "delays", "routes")}
        assert all(bodies[name]["phase"] != "ON_HOLD" for name in NEIGHBOURS)
        return bodies["delays"] if bodies["delays"]["phase"] == "ON_HOLD" else None

    body = system.wait("the culprit is held", held)
    assert body["phase_reason_code"] == "KILLS_DRIVER"
    assert "Python exited with 5" in body["phase_detail"]
    before = {name: system.running(name)["current_run"] for name in NEIGHBOURS}
    batches = {name: system.batch(name) for name in NEIGHBOURS}
    for name in NEIGHBOURS:
        system.wait("batches go on", partial(goes_on, system, name, batches[name] + 5))
        assert system.query(name)["current_run"]["id"] == before[name]["id"]
    failures = system.get("queries/arrivals/failures/")["results"]
    assert len(failures) >= 3, "each death shows at a neighbour"
    assert all("Python exited with 5" in one["root_cause"] for one in failures)
