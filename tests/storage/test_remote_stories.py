"""Operations on a query whose checkpoint is on S3 or HDFS that read its logs: no copy is made."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from queries.domain.errors import NotAllowed
from queries.domain.probes.questions import ProbeResult
from queries.domain.states import Desired, OperationOutcome
from queries.models.checkpoints import Loss
from queries.models.definitions import Checkpoint
from queries.runtime.checkpoints.logs import CheckpointReader as DriversCheckpoint
from queries.services.checkpoints import remote
from queries.services.kafka import go_on_after_loss, lag
from queries.services.kafka.go_on_after_loss import go_on
from queries.services.probes.inspections import begin_records
from tests.checkpoints.reports import Remote, reports_of
from tests.conftest_brokers import Brokers, brokers, commit, said
from tests.scenarios.async_logs import AsyncQuery
from tests.scenarios.stage import Stage
from tests.scenarios.test_async_off import Way
from tests.scenarios.test_go_on import LOST
from tests.storage.bench import Bench, bench
from tests.storage.stores import HadoopJvm

pytestmark = pytest.mark.django_db

__all__ = ["bench", "brokers"]


def _asked(bench: Bench) -> list[Any]:
    """Return the tasks of the probes that were launched; a storage JVM's is empty."""
    found = (json.loads(probe.task) for probe in bench.stage.launcher.probes.values())
    return [task for task in found if task]


def test_the_records_of_a_batch_are_looked_for_where_the_log_says(
    bench: Bench, settings: LazySettings
) -> None:
    settings.ALLOWED_PATHS = (*settings.ALLOWED_PATHS, "/in")
    query = bench.define()
    revision = query.revisions.get()
    (source,) = revision.spec["sources"]
    source["options"] = {"path": "file:///in"}
    revision.save()
    operation = bench.work(begin_records(query=query, batch=7, actor="aude", now=timezone.now()))
    assert operation.steps[2]["state"] == "DONE", operation.steps
    (task,) = _asked(bench)
    (read,) = task["reads"]
    assert (read["source"], read["files"]) == ("flights", ["file:///in/f7-0.json"])
    source = {"source": "flights", "looked_at": 1, "records": []}
    found = {"sources": [source], "searched": True, "failing": None}
    bench.stage.launcher.answer(ProbeResult("Reading", done=True, records=found).dumps())
    bench.done(operation)
    assert (operation.result["looked_at"], operation.result["failing"]) == ({"flights": 1}, None)


def test_a_batch_that_the_log_does_not_contain_launches_no_probe(bench: Bench) -> None:
    query = bench.define()
    operation = bench.work(begin_records(query=query, batch=70, actor="aude", now=timezone.now()))
    assert operation.outcome == OperationOutcome.FAILED
    assert "The checkpoint does not contain batch 70." in operation.detail.text
    assert not _asked(bench)


class AsyncThere(AsyncQuery):
    """A query with async progress tracking, whose log is on the store."""

    def __init__(self, bench: Bench, root: Path) -> None:
        super().__init__(bench.stage, root)
        self.bench, self.location = bench, bench.store.place("checkpoints/flights")
        Checkpoint.objects.filter(query=self.query).update(location=self.location)

    def log(self, *begun: int, committed: tuple[int, ...] | None = None) -> None:
        super().log(*begun, committed=committed)
        files = [str(path.relative_to(self.root)) for path in self.root.rglob("*")]
        wanted = [name for name in files if (self.root / name).is_file()]
        self.bench.jvm.storage.copy(self.root.as_uri(), wanted, self.location)


def test_async_progress_tracking_is_switched_off_by_the_log_on_the_store(
    bench: Bench, tmp_path: Path
) -> None:
    stage, flights = bench.stage, AsyncThere(bench, tmp_path / "async")
    way = Way(stage, flights)
    flights.up()
    current = Checkpoint.objects.get(query=flights.query, retired_at=None)
    remote.read_checkpoint(current.pk, launcher=stage.launcher, now=timezone.now())
    row = way.ask()
    way.restarted()
    assert way.at() == "Let two batches commit"
    flights.commit()
    way.work()
    assert "1 of 2" in row.steps[2]["detail"]
    flights.commit()
    way.work()
    way.stopped()
    row.refresh_from_db()
    assert (row.outcome, row.to_undo) == (OperationOutcome.DONE, False)
    assert flights.options() == {}
    assert stage.row("flights").desired == Desired.RUNNING


class Lost:
    """A query over Kafka that has failed on 80 lost offsets, its checkpoint on the store."""

    def __init__(self, bench: Bench, jvm: HadoopJvm, root: Path) -> None:
        self.bench, self.jvm, self.root = bench, jvm, root
        options = {"kafka.bootstrap.servers": "one:9092", "subscribe": "flights"}
        source = {"name": "flights", "format": "kafka", "options": options}
        bench.stage.query("delays", sources=[source])
        Checkpoint.objects.update(location=bench.location)
        bench.stage.start("delays")
        bench.stage.ready("delays")
        self.driver = Remote(bench.stage.row("delays"), root, root / "driver", bench.location)

    def commit(self, batch: int, offsets: dict[int, int]) -> None:
        """Commit a batch, which the driver then reports."""
        commit(self.bench.mine, batch, offsets)
        self.bench.upload()
        own = self.driver.own(self.bench.stage.last_run("delays"))
        jvm = self.jvm.jvm
        conf = jvm.org.apache.hadoop.conf.Configuration()
        for name, value in self.bench.store.conf.items():
            conf.set(name.removeprefix("spark.hadoop."), value)
        context: Any = SimpleNamespace(
            _jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=lambda: conf)
        )
        store = DriversCheckpoint(self.bench.location, SimpleNamespace(sparkContext=context))
        reports_of(store, self.bench.location, own)._write(ended=False)


@pytest.fixture
def lost(
    bench: Bench,
    hadoop_jvm: HadoopJvm,
    tmp_path: Path,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
) -> Lost:
    brokers.said["one:9092"] = said({0: (180, 300), 1: (0, 100)})
    look = partial(lag.look_at_sources, readers=brokers)
    monkeypatch.setattr(go_on_after_loss, "look_at_sources", look)
    return Lost(bench, hadoop_jvm, tmp_path / "lost")


def _fail(stage: Stage) -> None:
    stage.fail("delays", LOST)
    assert stage.phase("delays") == "FAILED"
    stage.launcher.obliging = True


def test_a_query_goes_on_after_a_loss_by_what_its_driver_reported(bench: Bench, lost: Lost) -> None:
    stage = bench.stage
    lost.commit(0, {0: 100, 1: 100})
    _fail(stage)
    operation = go_on(query=stage.row("delays"), offsets=80, actor="otto", now=timezone.now())
    bench.work(operation)
    loss = Loss.objects.get()
    assert (loss.partition, loss.from_offset, loss.to_offset) == (0, 100, 180)
    stage.ready("delays")
    assert stage.run("delays").accepts_loss
    bench.work(operation)
    assert "flights-0 has committed 100 of 180" in operation.detail.text
    lost.commit(1, {0: 180, 1: 100})
    bench.work(operation)
    stage.ready("delays")
    bench.work(operation)
    assert operation.outcome == OperationOutcome.DONE, operation.detail.text
    assert stage.phase("delays") == "RUNNING"
    assert not stage.run("delays").accepts_loss


def test_nobody_is_told_that_nothing_was_lost_if_the_committed_offsets_are_unknown(
    bench: Bench, lost: Lost
) -> None:
    _fail(bench.stage)
    with pytest.raises(NotAllowed, match="No driver has reported its logs yet"):
        go_on(query=bench.stage.row("delays"), offsets=80, actor="otto", now=timezone.now())
