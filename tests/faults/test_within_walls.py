"""The main job within walls, end to end: the demos, what is done to them, and a kill.

One system serves the stories in the order they stand in. What it does without walls, the rest of
the tests tells: drivers under test have none. Both kills within bubblewrap, and what they leave,
are in `tests/security/walls/test_life_within.py`.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.flights import topics
from installation.machine import trial_servers
from queries.domain.hosts import Mode
from queries.domain.protocol import DriverSpec, Ident
from tests import pieces
from tests.faults.system import System

pytestmark = [
    *(pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.walls),
    pytest.mark.timeout(1800),
]

OPERATION_S = 600  # until an operation is given up by the system itself
DEMO = ("flight-delays", "long-delays", "flights-by-hour")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Start the whole system within bubblewrap, with a broker; end it with its drivers."""
    home = tmp_path_factory.mktemp("home")
    settings = {
        "HEADGATE_PROBES_PER_MINUTE": "0",
        "HEADGATE_OPERATION_DEADLINE_S": f"{OPERATION_S}",
        "HEADGATE_ISOLATION": Mode.BUBBLEWRAP,
    }
    running = System(home, pieces.free_port(), **settings, **_broker(home))
    try:
        running.up()
        yield running
    finally:
        running.close()


def _broker(home: Path) -> dict[str, str]:
    """Start a broker for the demo, as after `make kafka`, where its jars are."""
    if pieces.missing_kafka():
        return {}
    shutil.copytree(pieces.kafka_jars(), home / "kafka/jars", copy_function=os.link)
    trial_servers.Broker(home / "kafka", usual_port=None).address()
    return {"HEADGATE_CONNECTORS": str(pieces.kafka_connector().parent)}


def _reach(system: System, name: str, batch: int) -> None:
    system.wait(f"batch {batch} of {name}", lambda: system.batch(name) >= batch)


def _go_on(system: System, name: str) -> None:
    """Wait for two further batches."""
    _reach(system, name, system.batch(name) + 2)


def _ident(system: System, name: str) -> Ident:
    """Return who the query's driver is, as its shim wrote it down."""
    pid = system.running(name)["current_run"]["pid"]
    files = (system.home / "drivers").glob("*/*/control/ident.json")
    return next(found for file in files if (found := Ident.loads(file.read_text())).pid == pid)


def _done(system: System, name: str, verb: str, body: Any = None) -> Any:
    """Ask for something, wait until it has come to its end, and return what it says."""
    operation = system.verb(name, verb, body)
    path = f"operations/{operation['id']}/?wait=30"
    ended = system.wait(
        f"the end of {verb}",
        lambda: found if (found := system.get(path))["outcome"] else None,
        limit_s=OPERATION_S + 60,
    )
    assert ended["outcome"] == "DONE", ended
    return ended


def test_the_demo_streams_and_the_system_says_within_what(system: System) -> None:
    for name in DEMO:
        _reach(system, name, 2)
        assert _ident(system, name).init_pid is not None
    [told] = [part for part in system.get("system/")["parts"] if part["name"] == "isolation"]
    assert told["sentence"].startswith(
        f"Isolation of drivers: bubblewrap. {Mode.BUBBLEWRAP.sentence}"
    )


@pytest.mark.kafka
def test_kafkas_demo_streams(system: System) -> None:
    names = (topics.CLEAN, topics.DELAYS, topics.REAL_TIME)
    for name in names:
        _reach(system, name, 2)
        assert _ident(system, name).init_pid is not None
    for name in names:
        _done(system, name, "stop", {"mode": "now"})


def test_a_killed_worker_comes_back_and_takes_up_its_drivers(system: System) -> None:
    known = {name: _ident(system, name) for name in DEMO}
    worker = system.program("controlplane worker")
    worker.kill()
    system.wait("another worker", lambda: system.program("controlplane worker").pid != worker.pid)
    for name in DEMO:
        _go_on(system, name)
    _done(system, "long-delays", "restart")  # directed by the new one
    assert {name: _ident(system, name) for name in DEMO} == known


@pytest.mark.guarantee("G-ISOLATION-3")
def test_a_killed_driver_comes_back_from_its_checkpoint(system: System) -> None:
    run = system.running("flights-by-hour")["current_run"]
    os.kill(run["jvm_pid"], signal.SIGKILL)

    def ended() -> Any:
        body = system.get(f"runs/{run['id']}/")
        return body if body["outcome"] else None

    body = system.wait("the end of the killed driver's run", ended)
    assert (body["outcome"], body["exit_jvm"]) == ("DRIVER_ENDED", "SIGKILL"), body
    assert system.running("flights-by-hour")["current_run"]["epoch"] > run["epoch"]
    _go_on(system, "flights-by-hour")


def test_a_snapshot_a_preflight_and_an_x_ray_are_made_of_a_running_query(system: System) -> None:
    _done(system, "flight-delays", "snapshots", {"reason": "before"})
    assert system.get("queries/flight-delays/snapshots/")["results"][0]["reason"] == "before"
    tried = _done(system, "flight-delays", "preflight", {})
    assert tried["result"]["preflight"], tried
    seen = _done(system, "flight-delays", "x-ray", {})
    rows = system.get(f"queries/flight-delays/x-ray/{seen['id']}/")
    assert rows["rows"] > 0
    assert rows["sample"]


@pytest.mark.parametrize("name", ["flight-delays", "flights-by-hour"])
def test_a_rewind_goes_on_in_another_directory(system: System, name: str) -> None:
    """That of the shared application its driver sees; the other one's driver is replaced."""
    before, batch = system.query(name), system.batch(name)
    _done(system, name, "rewind", {"batch": batch - 1})
    after = system.running(name)
    assert after["checkpoint"] != before["checkpoint"]
    _reach(system, name, batch + 1)
    neighbour = system.running("long-delays")["current_run"]
    assert (neighbour["driver"] == after["current_run"]["driver"]) is (name == "flight-delays")


def test_ctrl_c_leaves_the_drivers_and_the_next_start_adopts_them(system: System) -> None:
    known = {name: _ident(system, name) for name in DEMO}
    system.interrupt()
    system.up()
    for name in DEMO:
        _go_on(system, name)
    assert {name: _ident(system, name) for name in DEMO} == known


@pytest.mark.guarantee("G-ISOLATION-3")
def test_every_driver_was_within_walls(system: System) -> None:
    specs = [
        DriverSpec.loads(path.read_text())
        for path in (system.home / "drivers").rglob("control/spec.json")
    ]
    assert len(specs) >= 3
    assert {spec.walls for spec in specs} == {Mode.BUBBLEWRAP}
