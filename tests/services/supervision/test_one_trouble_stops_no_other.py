"""The loops of the worker: the trouble of one application, query or file stops no other."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from controlplane import signs_of_life
from listeners.loops.backlogs import current
from listeners.missing.recovered import LostBatches
from queries import ticks
from queries.domain.states import DriverKind, DriverState, OperationOutcome, Phase, Reason, Verb
from queries.domain.supervision.observation import HOLDS_SLOT
from queries.models.checkpoints import Snapshot
from queries.models.definitions import Checkpoint, QueryRevision
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.selectors.supervision.health import healths
from queries.services.checkpoints import batch_repair, remote, snapshot
from queries.services.probes.inspections import forget_old_results
from queries.services.probes.probe_steps import SHOWN_FOR
from queries.services.procedures import engine
from queries.services.supervision import decision_rows, reconcile, records
from tests.launchers.in_memory import InMemoryLauncher
from tests.scenarios.stage import Stage

NAMES = ("arrivals", "delays", "weather")


def troubles() -> list[tuple[str, str]]:
    return [(one.loop, one.about) for one in current(datetime.now(UTC))]


@pytest.mark.django_db
def test_an_application_that_cannot_be_reconciled_delays_no_other_and_is_logged_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rotten = stage.query("delays").application_id
    good = stage.query("arrivals").application_id
    served: list[int] = []

    def reconciles(application_id: int, **_: Any) -> None:
        if application_id == rotten:
            raise KeyError("memory")
        served.append(application_id)

    monkeypatch.setattr(reconcile, "reconcile", reconciles)
    monkeypatch.setattr(reconcile, "due_applications", lambda **_: [rotten, good])
    for _ in range(3):
        ticks.sweep()
    assert served == [good] * 3
    assert len([one for one in caplog.records if one.levelno >= logging.ERROR]) == 1
    assert troubles() == [("sweep", f"application number {rotten}")]


@pytest.mark.django_db
def test_a_folder_that_cannot_be_pruned_keeps_the_others_from_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        stage.query(name)
    pruned: list[str] = []

    def prune(application: str, **_: Any) -> None:
        if application == "delays":
            raise PermissionError(13, "Permission denied")
        pruned.append(application)

    monkeypatch.setattr(stage.launcher, "prune", prune)
    reconcile.prune_folders(launcher=stage.launcher)
    assert sorted(pruned) == ["arrivals", "weather"]
    assert troubles() == [("prune", "folders of delays")]


@pytest.mark.django_db
def test_an_answer_that_cannot_be_removed_keeps_the_others_from_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, now: datetime
) -> None:
    for name in NAMES:
        stage.query(name)
        stage.up(name)
    ended = {"kind": DriverKind.PROBE, "state": DriverState.ENDED}
    Driver.objects.update(**ended, ended_at=now - SHOWN_FOR - timedelta(minutes=1))
    forgotten: list[str] = []

    def forget(application: str, epoch: int) -> None:
        if application == "delays":
            raise PermissionError(13, "Permission denied")
        forgotten.append(application)

    monkeypatch.setattr(stage.launcher, "forget_result", forget)
    forget_old_results(launcher=stage.launcher, now=now)
    assert sorted(forgotten) == ["arrivals", "weather"]


@pytest.mark.django_db
def test_a_snapshot_that_cannot_be_removed_keeps_the_others_from_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, settings: Settings, now: datetime
) -> None:
    settings.SNAPSHOTS_KEPT = 0
    for name in NAMES:
        query = stage.query(name)
        checkpoint = Checkpoint.objects.get(query=query)
        for batch, removed_at in ((1, None), (2, now)):
            Snapshot.objects.create(
                checkpoint=checkpoint,
                batch=batch,
                location=f"file:///c/{name}/{batch}",
                taken_at=now,
                removed_at=removed_at,
            )
    removed: list[str] = []

    def remove(place: Path) -> None:
        if "delays" in str(place):
            raise OSError(5, "Input/output error")
        removed.append(str(place))

    monkeypatch.setattr(snapshot, "remove", remove)
    monkeypatch.setattr(remote, "remove", remove)
    assert snapshot.prune(launcher=InMemoryLauncher(), now=now) == 2
    assert sorted(removed) == ["/c/arrivals/1", "/c/arrivals/2", "/c/weather/1", "/c/weather/2"]
    assert len(troubles()) == 2


@pytest.mark.django_db
def test_a_checkpoint_that_cannot_be_read_keeps_the_others_from_repair(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    for name in ("arrivals", "delays"):
        stage.query(name)
        stage.up(name)
    Driver.objects.update(host=settings.HEADGATE_HOST)
    runs = [stage.run("delays").pk, stage.run("arrivals").pk]
    lost = [LostBatches(number, run, (1,)) for number, run in enumerate(runs)]
    repaired: list[int] = []

    def repair(one: Any, run: Any, now: datetime) -> int:
        if run.pk == runs[0]:
            raise RecursionError("an offset log of the size of a house")
        repaired.append(run.pk)
        return 1

    monkeypatch.setattr("listeners.missing.recovered.lost_batches", lambda **_: lost)
    monkeypatch.setattr(batch_repair, "_repair", repair)
    assert batch_repair.repair_from_checkpoints(now=stage.now) == 1
    assert repaired == [runs[1]]


@pytest.mark.django_db
def test_a_query_whose_health_cannot_be_judged_leaves_the_others_theirs(stage: Stage) -> None:
    for name in ("arrivals", "delays"):
        stage.query(name)
        stage.up(name)
    QueryRevision.objects.filter(query=stage.row("delays")).update(
        spec={"trigger": {"kind": "when it rains"}}
    )
    rows = [stage.row(name) for name in ("delays", "arrivals")]
    runs = {row.pk: stage.run(row.name) for row in rows}
    assert list(healths(rows, runs, now=stage.now)) == [rows[1].pk]


@pytest.mark.django_db
def test_a_checkpoint_that_cannot_be_looked_into_keeps_the_others_from_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("arrivals", "delays"):
        stage.query(name)
        stage.up(name)
    rotten = stage.run("arrivals").checkpoint_id

    def look(checkpoint: Checkpoint, *_: Any) -> bool:
        if checkpoint.pk == rotten:
            raise OSError(5, "Input/output error")
        return True

    monkeypatch.setattr(batch_repair, "_look", look)
    assert batch_repair.look_for_foreign_batches(now=stage.now) == 1
    assert troubles() == [("foreign batches", f"checkpoint number {rotten}")]


@pytest.mark.django_db
def test_a_verdict_that_cannot_be_written_keeps_the_others_from_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("arrivals", "delays"):
        stage.query(name)
        stage.up(name)

    def changed(topic: str) -> None:
        if topic == f"query:{stage.row('arrivals').pk}":
            raise RuntimeError("nobody may hear it")

    monkeypatch.setattr(records, "changed", changed)
    assert records.note_verdicts(now=stage.now) == 1
    assert stage.row("delays").verdict
    assert troubles() == [("verdicts", "query arrivals")]


@pytest.mark.django_db
def test_an_operation_of_a_silent_host_that_fails_to_be_told_keeps_the_others_from_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("arrivals", "delays"):
        stage.query(name)
        stage.start(name)
    waits = {"verb": Verb.SNAPSHOT, "outcome": OperationOutcome.OPEN, "host": "host-b"}
    Operation.objects.update(**waits)
    operations = list(Operation.objects.order_by("pk"))
    rotten = operations[0]

    def changed(*topics: str) -> None:
        if f"operation:{rotten.uuid}" in topics:
            raise RuntimeError("nobody may hear it")

    monkeypatch.setattr(engine, "is_silent", lambda host: host == "host-b")
    monkeypatch.setattr(engine, "changed", changed)
    engine.note_silent_hosts()
    operations[-1].refresh_from_db()
    assert operations[-1].detail.params == {"host": "host-b"}
    assert troubles() == [("operations", f"operation {rotten.uuid}")]


@pytest.mark.django_db
def test_a_rotten_batch_keeps_no_application_from_being_reconciled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run replayed is measured from its progress, in the transaction of reconcile."""

    def replayed_by(run: Any) -> Any:
        return run.outcome.get("sources")  # as of a body that is no JSON object

    monkeypatch.setattr(decision_rows, "replayed_by", replayed_by)
    monkeypatch.setattr(decision_rows, "tracking_of", lambda *_: True)
    stage.query("delays")
    stage.start("delays")
    stage.ready("delays")
    stage.commit("delays")
    stage.settle()
    stage.wait(5)
    assert stage.phase("delays") == "RUNNING"
    assert troubles() == [("reconcile", f"run {stage.run('delays').pk}: what it replayed")]


def test_a_sign_of_life_that_cannot_be_sent_ends_no_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def say(*_: Any, **__: Any) -> None:
        raise ValueError("an odd answer of Redis")

    monkeypatch.setattr(signs_of_life, "record_heartbeat", say)
    signs_of_life.try_to_record_heartbeat(signs_of_life.WORKER, now=datetime.now(UTC))
    assert "heartbeat of worker not sent" in caplog.text


@pytest.mark.django_db
def test_a_driver_that_hangs_at_its_start_holds_up_the_others_for_half_a_minute(
    stage: Stage, settings: Settings
) -> None:
    settings.STARTS_AT_ONCE = 1
    for name in ("hangs", "waits"):
        stage.query(name)
        stage.start(name)
    assert stage.row("waits").phase_reason == Reason.WAITS_SLOT
    stage.wait(HOLDS_SLOT.total_seconds() + 5)
    assert stage.row("hangs").phase_reason == Reason.WAITS_DRIVER
    stage.up("waits")
    assert stage.row("waits").phase == Phase.RUNNING
