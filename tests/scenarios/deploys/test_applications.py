"""Deploys of an application's own definition, with queries in its driver: judged and taken back."""

import json
from pathlib import Path
from typing import Any

import pytest

from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.deploys.request import ChangeState, DeployState
from queries.domain.protocol import RunError
from queries.domain.sparks import JOIN_FORMAT, PINS, Spark, pinned_by
from queries.domain.states import Desired, Phase
from queries.models.applications import Application
from queries.models.deploys import Deploy
from queries.models.history import Operation
from queries.selectors import code as places
from queries.services.code import preparing
from queries.services.code.packages import InstallFailed
from queries.services.supervision.application_operations import request_application_restart
from tests.scenarios.deploys.way import NOTE, Way
from tests.scenarios.stage import DIVIDE, NO_SUCH_SOURCE, Stage

NO_MODULE = RunError("", "ModuleNotFoundError", "No module named 'hgcolours'", "No module named …")


@pytest.fixture
def way(stage: Stage) -> Way:
    return Way(stage)


@pytest.fixture
def flights(stage: Stage) -> Application:
    """An application with two queries that run."""
    row = stage.application("flights")
    for name in ("a", "b"):
        stage.query(name, "flights")
        stage.start(name)
    stage.ready("flights")
    stage.commit("a")
    stage.commit("b")
    return row


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of packages that has no version 9.9 of anything."""

    def install(spec: ApplicationSpec) -> None:
        if "9.9" in spec.packages:
            raise InstallFailed("uv says: there is no version of hgcolours==9.9.")
        folder = places.packages_folder(spec)
        assert folder is not None
        folder.mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(preparing, "install", install)


def installed(stage: Stage) -> None:
    """The packages of the next driver are there, or are refused; it is launched if they are."""
    stage.look("flights")
    preparing.wait(20)
    stage.look("flights")


def deployed(way: Way, spec: dict[str, Any] | None = None, **how: Any) -> Deploy:
    """Deploy the application with these fields of its definition changed."""
    held = {"master": "local[2]", "memory": "1g", **(spec or {})}
    head = {"apiVersion": "headgate/v1", "kind": "Application", "metadata": {"name": "flights"}}
    return way.ask({**head, "spec": held}, **how)


def fresh(stage: Stage) -> None:
    """The old driver has left, and the session of the next is up."""
    stage.launcher.leave("flights")
    stage.look("flights")
    stage.ready("flights")


def spec_of(row: Application, number: int) -> dict[str, Any]:
    return dict(row.revisions.get(number=number).spec)


@pytest.mark.parametrize(
    "change",
    [
        {"memory": "2g"},
        {"conf": {"spark.sql.shuffle.partitions": "3"}},
        {"packages": "hgcolours==2.0"},
    ],
    ids=["memory", "configuration", "packages"],
)
def test_an_applications_change_goes_back_with_all_of_its_queries(
    way: Way, stage: Stage, flights: Application, index: None, change: dict[str, Any]
) -> None:
    deploy = deployed(way, change)
    assert (deploy.stage, deploy.wave) == ("judge", 1)
    stage.launcher.leave("flights")
    installed(stage)
    stage.ready("flights")
    assert stage.driver("flights").application_revision.number == 2
    stage.commit("a")
    stage.fail("b", DIVIDE)
    deploy = way.work()
    assert "b failed: " in str(deploy.reason)
    assert deploy.stage == "try-back", "what it may have written is tried first"
    way.probe()
    deploy = way.probe()
    assert deploy.stage == "judge-back", deploy.reason
    name, wanted = next(iter(change.items()))
    assert spec_of(flights, 2)[name] == wanted
    assert spec_of(flights, 3) == spec_of(flights, 1)
    assert restarts() == 2
    fresh(stage)
    stage.commit("a")
    assert way.work().stage == "judge-back", "b ran before, and does not run again yet"
    stage.commit("b")
    deploy = way.work()
    assert deploy.state == DeployState.ROLLED_BACK, deploy.reason
    assert {one.state for one in deploy.changes.all()} == {ChangeState.ROLLED_BACK}
    assert stage.driver("flights").application_revision.number == 3
    for name in ("a", "b"):
        assert stage.row(name).revisions.count() == 1, "its own definition was never written"


def test_an_older_spark_that_cannot_read_the_state_does_not_come_back(
    way: Way, stage: Stage, settings: Any, tmp_path: Path
) -> None:
    settings.SPARKS_DIR = tmp_path / "sparks"
    (settings.SPARKS_DIR / "4.2" / "pyspark").mkdir(parents=True)
    row = stage.application("flights", spark="4.2")
    stage.query("a", "flights")
    stage.start("a")
    stage.ready("flights")
    stage.commit("a")
    deploy = deployed(way, {"spark": "4.3"}, preflight=True)
    assert deploy.stage == "preflight", "a neighbour with a checkpoint is tried with the new Spark"
    way.probe()
    fresh(stage)
    stage.commit("a")
    root = tmp_path / "checkpoints" / "a"
    type(row.queries.get().checkpoints.get()).objects.update(location=f"file://{root}")
    write_join(root, "4.3", **{JOIN_FORMAT: "4"})
    stage.fail("a", DIVIDE)
    way.work()
    probes = len(stage.launcher.probes)
    way.work()
    kept = way.of("a")
    assert kept.state == ChangeState.KEPT
    assert "Spark 4.2 cannot continue this checkpoint" in str(kept.reason)
    assert len(stage.launcher.probes) == probes == 1
    row.refresh_from_db()
    assert row.target_revision is not None
    assert row.target_revision.spec["spark"] == "4.3", "it goes on with what can read its state"


def write_join(root: Path, spark: Spark, **more: str) -> None:
    """Write a checkpoint of a stream-stream join as a version leaves it."""
    conf = {key: PINS[key].new for key in pinned_by(spark)} | more
    about = {"batchTimestampMs": 1, "batchWatermarkMs": 0, "conf": conf}
    info = {"operatorInfo": {"operatorId": 0, "operatorName": "symmetricHashJoin"}}
    for name, text in (
        ("offsets/0", f"v1\n{json.dumps(about)}\n0"),
        ("commits/0", 'v1\n{"nextBatchWatermarkMs":0}'),
        ("state/0/_metadata/metadata", f"v1\n{json.dumps(info)}"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_other_code_goes_back_to_the_code_of_before(
    way: Way, stage: Stage, flights: Application, settings: Any, tmp_path: Any
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    settings.CODE_ROOTS = [str(tmp_path)]
    spec = {**spec_of(flights, 1), "python_path": [str(tmp_path / "old")]}
    flights.revisions.update(spec=spec)
    deployed(way, {"python_path": [str(tmp_path / "new")]})
    fresh(stage)
    stage.fail("a", NO_MODULE)
    assert way.work().stage == "try-back"
    way.probe()
    deploy = way.probe()
    assert deploy.stage == "judge-back", deploy.reason
    assert spec_of(flights, 3)["python_path"] == [str(tmp_path / "old")]


def test_pools_go_back_and_a_new_one_stays(way: Way, stage: Stage, flights: Application) -> None:
    flights.pools.create(name="light", weight=1)
    deployed(way, {"pools": [{"name": "light", "weight": 9}, {"name": "heavy"}]})
    assert flights.pools.get(name="light").weight == 9
    deploy = way.cancel()
    assert deploy.stage == "judge-back", "the new driver was not up yet: nothing is tried"
    assert flights.pools.get(name="light").weight == 1
    assert flights.pools.filter(name="heavy").exists()


def test_a_driver_that_cannot_start_takes_the_change_back(
    way: Way, stage: Stage, flights: Application
) -> None:
    deployed(way, {"memory": "2g"})
    stage.launcher.leave("flights")
    stage.look("flights")
    stage.launcher.session_fails("flights", NO_MODULE)
    stage.look("flights")
    deploy = way.work()
    assert " failed: " in str(deploy.reason)
    assert deploy.stage == "judge-back", deploy.reason
    assert way.of("flights", "Application").evidence["failures"]


def test_an_application_none_of_whose_queries_ran_is_judged_by_the_first_that_does(
    way: Way, stage: Stage, flights: Application
) -> None:
    for name in ("a", "b"):
        stage.fail(name, NO_SUCH_SOURCE)
        assert stage.phase(name) == Phase.FAILED
    deploy = deployed(way, {"memory": "2g"})
    assert (deploy.state, deploy.stage) == (DeployState.RUNNING, "judge")
    if stage.driver("flights").application_revision.number == 1:
        stage.launcher.leave("flights")
        stage.look("flights")
    assert way.work().stage == "judge", "its driver is not ready yet"
    stage.ready("flights")
    deploy = way.work()
    assert deploy.stage == "judge", "held queries are tried again, and none runs yet"
    assert "none of its queries" in str(way.of("flights", "Application").reason)
    stage.commit("a")
    deploy = way.work()
    assert deploy.state == DeployState.SUCCEEDED, deploy.reason
    change = way.of("flights", "Application")
    assert f"driver {stage.driver('flights').epoch}" in change.judged_by
    assert "only new failures count" in way.of("b").judged_by


@pytest.mark.sql("queries.selectors.deploys.evidence._of_driver")
def test_packages_that_a_resolver_refuses_are_mended_and_that_is_judged(
    way: Way, stage: Stage, flights: Application, index: None
) -> None:
    """The application is held: none of its queries ran, and nothing of it was judged."""
    wrong = {**spec_of(flights, 1), "packages": "hgcolours==9.9"}
    flights.revisions.create(number=2, spec=wrong, author="ada", created_at=stage.now)
    request_application_restart(application=flights, actor="ada", now=stage.now)
    stage.look("flights")
    stage.launcher.leave("flights")
    installed(stage)
    assert [stage.phase(name) for name in ("a", "b")] == [Phase.FAILED] * 2

    deployed(way, {"packages": "hgcolours==9.9", "memory": "2g"})
    installed(stage)
    deploy = way.work()
    assert "flights failed: " in str(deploy.reason)
    assert "uv says" in str(deploy.reason)
    assert deploy.state == DeployState.ROLLED_BACK, deploy.reason

    deploy = deployed(way, {"packages": "hgcolours==1.0"})
    assert deploy.stage == "judge", deploy.reason
    installed(stage)
    assert way.work().stage == "judge"
    stage.ready("flights")
    stage.commit("a")
    assert way.work().state == DeployState.SUCCEEDED


@pytest.mark.sql("queries.selectors.deploys.evidence._of_driver")
def test_a_mend_that_mends_nothing_goes_back(way: Way, stage: Stage, flights: Application) -> None:
    for name in ("a", "b"):
        stage.fail(name, NO_SUCH_SOURCE)
    deployed(way, {"memory": "2g"})
    if stage.driver("flights").application_revision.number == 1:
        stage.launcher.leave("flights")
        stage.look("flights")
    stage.ready("flights")
    for name in ("a", "b"):
        stage.fail(name, NO_SUCH_SOURCE)
    deploy = way.work()
    assert "flights failed: " in str(deploy.reason)
    way.probe()
    deploy = way.probe()
    assert deploy.state == DeployState.ROLLED_BACK, deploy.reason
    assert spec_of(flights, 3) == spec_of(flights, 1)


def test_a_query_that_did_not_run_before_fails_in_a_new_way(
    way: Way, stage: Stage, flights: Application
) -> None:
    stage.fail("b", NO_SUCH_SOURCE)
    deployed(way, {"memory": "2g"})
    fresh(stage)
    stage.fail("b", DIVIDE)
    deploy = way.work()
    assert "b failed: " in str(deploy.reason)
    assert "ivision by zero" in str(deploy.reason)


def test_a_neighbour_with_a_newer_definition_stays_on_the_one_that_it_runs(
    way: Way, stage: Stage, flights: Application
) -> None:
    """Somebody has applied that one, and has not restarted the query: no deploy does so."""
    stage.revise("b", conf={NOTE: "later"})
    deployed(way, {"memory": "2g"})
    fresh(stage)
    stage.commit("b")
    stage.fail("a", DIVIDE)
    way.work()
    way.probe()
    deploy = way.probe()
    assert deploy.stage == "judge-back", deploy.reason
    fresh(stage)
    stage.commit("a")
    stage.commit("b")
    deploy = way.work()
    assert deploy.state == DeployState.ROLLED_BACK, deploy.reason
    assert stage.run("b").revision.number == 1
    assert stage.row("b").revisions.count() == 2


def test_a_query_that_was_stopped_is_stopped_again_on_the_way_back(way: Way, stage: Stage) -> None:
    stage.query("a")
    way.ask(way.manifest("a", conf={NOTE: "new"}) | {"desired": "RUNNING"})
    stage.ready("a")
    stage.fail("a", NO_SUCH_SOURCE)
    way.work()
    deploy = way.probe() if stage.launcher.calls and way.now().ended_at is None else way.now()
    assert deploy.state == DeployState.ROLLED_BACK, deploy.reason
    assert stage.row("a").desired == Desired.STOPPED


def restarts() -> int:
    rows = Operation.objects.filter(application__name="flights", query=None, verb="restart")
    return rows.count()
