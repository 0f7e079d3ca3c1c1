"""Probes as processes: preflight and state inspection, until the last file is deleted."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from queries.checkpoints import batches
from queries.checkpoints.logs import CheckpointLogs
from queries.domain.sparks import Feature
from queries.domain.states import DriverKind, DriverState, OperationOutcome
from queries.domain.supervision.observation import Liveness
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.models.definitions import Query
from queries.models.drivers import Driver, Installation, Run
from queries.models.history import Operation
from queries.selectors.probes import passed_preflight
from queries.services.definitions import catalog
from queries.services.probes import probe_steps
from queries.services.probes.inspections import (
    begin_records,
    begin_xray,
    forget_old_results,
    records_of,
    rows_of,
)
from queries.services.probes.preflight import begin_preflight
from queries.services.procedures.engine import advance, cancel
from queries.tasks import PROCEDURES
from tests import pieces
from tests.spark.driver_under_test import STRICT
from tests.spark.probe_table import hashes
from tests.spark.test_probe_answers import SUMS, _spec

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

LIMIT_S = 200.0


class Ground:
    """A query whose checkpoint Spark has written, and all that must stay as it is."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.launcher = LocalProcessLauncher(Path(settings.DRIVERS_DIR), Path(settings.CODE_DIR))
        if not (home / "checkpoints").exists():
            self._write()

    def _write(self) -> None:
        base = _spec(self.home, SUMS)
        base["sources"][0]["options"]["cleanSource"] = "off"
        cases = {"bases": {"sums": base}, "cases": {}, "x_rays": {}}
        (self.home / "cases.json").write_text(json.dumps(cases))
        for folder in ("in", "out", "checkpoints"):
            (self.home / folder).mkdir()
        subprocess.run(
            [sys.executable, "-m", "tests.spark.probe_table", str(self.home)],
            check=True,
            timeout=280,
            capture_output=True,
            env={**os.environ, **pieces.of_spark()},
        )

    def query(self) -> Query:
        """Return the query as if it had run revision 1 on its checkpoint."""
        now = timezone.now()
        spec = _spec(self.home, SUMS)
        spec["sources"][0]["options"]["cleanSource"] = "off"
        query = catalog.create_query(
            name="sums",
            spec=spec,
            actor="aude",
            now=now,
            checkpoint=f"file://{self.home}/checkpoints/sums",
            application_spec={
                "conf": {"spark.sql.shuffle.partitions": "8"},
                "memory": "1g",
                "spark": pieces.spark_version(),
            },
        )
        driver = Driver.objects.create(
            application=query.application,
            application_revision=query.application.revisions.get(),
            epoch=Installation.draw_epoch(),
            host=settings.HEADGATE_HOST,
            directory="/nowhere",
            created_at=now,
            state=DriverState.ENDED,
            state_since=now,
        )
        Run.objects.create(
            query=query,
            driver=driver,
            epoch=Installation.draw_epoch(),
            checkpoint=query.checkpoints.get(),
            revision=query.revisions.get(),
            generation=0,
            cause="",
            created_at=now,
            first_commit_at=now,
            outcome="STOPPED",
        )
        return query

    def hashes(self) -> dict[str, dict[str, str]]:
        return {
            name: {
                path: digest
                for path, digest in hashes(self.home / name).items()
                if not path.startswith(".headgate/")
            }
            for name in ("checkpoints", "in", "out")
        }

    def to_the_end(self, operation: Operation) -> Operation:
        """Take its steps as a worker does, until it has ended and is tidied."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            advance(
                operation.pk,
                procedures=PROCEDURES,
                launcher=self.launcher,
                now=timezone.now() + timedelta(seconds=1),
            )
            operation.refresh_from_db()
            if operation.outcome and not operation.to_undo:
                return operation
            time.sleep(0.2)
        raise AssertionError(f"{operation.verb} is at {operation.steps} {self.log(operation)}")

    def log(self, operation: Operation) -> str:
        driver = probe_steps.probe_of(operation)
        name = operation.subject if driver is None else driver.application.name
        return self.launcher.log_tail(name, driver.epoch, probe=True) if driver else ""

    def left(self) -> list[Path]:
        return list((self.home / "checkpoints/.headgate/probes").glob("*"))


@pytest.fixture(scope="module")
def home(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ground")


@pytest.fixture
def ground(home: Path) -> Ground:
    return Ground(home)


@pytest.mark.promise
def test_a_preflight_names_what_spark_takes_in_silence_and_leaves_nothing(ground: Ground) -> None:
    query, before = ground.query(), ground.hashes()
    spec = _spec(ground.home, SUMS.replace("1 hour", "2 hours"))
    operation = begin_preflight(query=query, spec=spec, actor="aude", now=timezone.now())
    operation = ground.to_the_end(operation)
    assert operation.outcome == OperationOutcome.DONE, (
        operation.detail.text,
        ground.log(operation),
    )
    judged = operation.result["preflight"]
    assert judged["verdict"] == "differs", judged
    assert [each["what"] for each in judged["differences"]] == ["window"]
    assert judged["pinned"] == [{"what": "spark.sql.shuffle.partitions", "old": "4", "new": "8"}]
    assert [each["end"] for each in judged["tries"]] == ["passed", "passed"]
    assert judged["tries"][0]["rows"] == 40
    checkpoint = query.checkpoints.get()
    assert passed_preflight(query, spec, checkpoint)
    assert not passed_preflight(query, query.revisions.get().spec, checkpoint)
    probe = Driver.objects.get(kind=DriverKind.PROBE)
    assert (probe.state, probe.exit_python) == (DriverState.ENDED, "0")
    assert probe.pid
    assert ground.hashes() == before
    assert ground.left() == []
    assert not ground.launcher.probe_result("sums", probe.epoch)
    assert (
        ground.launcher.directory("sums", probe.epoch, probe=True)
        .joinpath("own/driver.log")
        .exists()
    )


def test_a_preflight_of_what_spark_cannot_read_says_why(ground: Ground) -> None:
    query, before = ground.query(), ground.hashes()
    spec = _spec(ground.home, SUMS.replace("sum(delay)", "sum(dely)"))
    operation = begin_preflight(query=query, spec=spec, actor="aude", now=timezone.now())
    operation = ground.to_the_end(operation)
    assert operation.outcome == OperationOutcome.FAILED
    assert "UNRESOLVED_COLUMN" in operation.detail.text
    told: Any = operation.result["preflight"]["tries"][-1]
    assert told["category"] == "query plan"
    assert ground.hashes() == before
    assert ground.left() == []


def test_a_cancelled_preflight_ends_its_process_and_throws_its_copy_away(ground: Ground) -> None:
    query = ground.query()
    operation = begin_preflight(query=query, spec=None, actor="aude", now=timezone.now())
    advance(operation.pk, procedures=PROCEDURES, launcher=ground.launcher, now=timezone.now())
    operation.refresh_from_db()
    probe = Driver.objects.get(kind=DriverKind.PROBE)
    assert (probe.state, probe.host) == (DriverState.STARTING, settings.HEADGATE_HOST)
    assert ground.launcher.sight("sums", probe.epoch, probe=True).liveness is not Liveness.ABSENT
    assert ground.left()
    cancel(operation, actor="aude", now=timezone.now())
    operation = ground.to_the_end(operation)
    assert operation.outcome == OperationOutcome.CANCELLED
    probe.refresh_from_db()
    assert probe.state == DriverState.ENDED
    assert probe.exit_python.startswith("SIG")
    assert ground.launcher.sight("sums", probe.epoch, probe=True).liveness is Liveness.EXITED
    assert ground.left() == []


@pytest.mark.promise
@pytest.mark.skipif(
    pieces.lacking(Feature.STATE_INSPECTION) != "",
    reason=pieces.lacking(Feature.STATE_INSPECTION),
)
def test_an_x_ray_keeps_numbers_for_all_and_rows_for_an_hour(ground: Ground) -> None:
    query, before = ground.query(), ground.hashes()
    operation = begin_xray(query=query, actor="aude", now=timezone.now(), contains='"carrier":"b"')
    operation = ground.to_the_end(operation)
    assert operation.outcome == OperationOutcome.DONE, (
        operation.detail.text,
        ground.log(operation),
    )
    assert operation.result["rows"] == 1
    assert "2013" not in json.dumps(operation.result)  # no key, no value
    ended = operation.ended_at
    assert ended is not None
    seen = rows_of(operation, launcher=ground.launcher, now=ended + timedelta(minutes=59))
    assert seen is not None
    assert json.loads(seen["sample"][0]["key"])["carrier"] == "B"
    later = ended + timedelta(minutes=61)
    assert rows_of(operation, launcher=ground.launcher, now=later) is None
    forget_old_results(launcher=ground.launcher, now=later)
    driver = probe_steps.probe_of(operation)
    assert driver is not None
    assert probe_steps.read_result(driver, launcher=ground.launcher) is None
    assert ground.hashes() == before
    assert ground.left() == []


def test_the_record_at_which_the_sql_fails_is_found_among_what_a_batch_read(
    ground: Ground,
) -> None:
    query, before = ground.query(), ground.hashes()
    batch, file = _newest_read(query)
    text = Path(file.path.removeprefix("file://")).read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    spec = _spec(ground.home, f"SELECT carrier, 100 / (delay - {rows[17]['delay']}) FROM flights")
    spec["conf"] = {**spec.get("conf", {}), **STRICT}
    bad = query.revisions.create(
        number=2, kind="sql", spec=spec, author="aude", created_at=timezone.now()
    )
    query.runs.update(revision=bad)
    operation = begin_records(query=query, batch=batch, actor="aude", now=timezone.now(), rows=7)
    operation = ground.to_the_end(operation)
    assert operation.outcome == OperationOutcome.DONE, (
        operation.detail.text,
        ground.log(operation),
    )
    assert operation.result["failing"] == {"source": "flights", "record": 17}
    assert operation.result["looked_at"] == {"flights": len(rows)}
    stored = json.dumps(operation.result)
    assert json.dumps(rows[17]["carrier"]) not in stored  # no record is stored
    seen = records_of(operation, launcher=ground.launcher, now=timezone.now())
    assert seen is not None
    assert "DIVIDE_BY_ZERO" in seen["failing"]["error"]
    [source] = seen["sources"]
    shown = {row["record"]: json.loads(row["text"]) for row in source["records"]}
    assert sorted(shown) == [14, 15, 16, 17, 18, 19, 20]
    assert shown[17]["delay"] == rows[17]["delay"]
    assert ground.hashes() == before


def test_records_that_fail_by_none_of_them_are_said_to(ground: Ground) -> None:
    query = ground.query()
    batch, _ = _newest_read(query)
    operation = begin_records(query=query, batch=batch, actor="aude", now=timezone.now())
    operation = ground.to_the_end(operation)
    assert (operation.outcome, operation.result["failing"]) == (OperationOutcome.DONE, None)
    assert operation.result["searched"]


def test_the_keys_of_a_batch_are_counted_with_the_values_of_its_parameters(ground: Ground) -> None:
    query = ground.query()
    batch, file = _newest_read(query)
    text = Path(file.path.removeprefix("file://")).read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    spec = _spec(
        ground.home,
        "SELECT carrier AS by, count(*) AS n FROM flights WHERE delay > :least GROUP BY by",
    )
    made = query.revisions.create(
        number=2,
        kind="sql",
        spec={**spec, "params": {"least": 0}},
        author="aude",
        created_at=timezone.now(),
    )
    least = sorted(row["delay"] for row in rows)[len(rows) // 2]
    query.runs.update(revision=made, params={"least": least})
    operation = begin_records(query=query, batch=batch, actor="aude", now=timezone.now())
    operation = ground.to_the_end(operation)
    assert (operation.outcome, operation.result["failing"]) == (OperationOutcome.DONE, None)
    seen = records_of(operation, launcher=ground.launcher, now=timezone.now())
    assert seen is not None
    expected = Counter(row["carrier"] for row in rows if row["delay"] > least)
    hot = seen["hot"]
    assert (hot["problem"], hot["rows"], hot["part"]) == ("", expected.total(), 1.0)
    assert hot["keys"][0]["rows"] == max(expected.values())
    assert {json.loads(one["text"])["key1"]: one["rows"] for one in hot["keys"]} == dict(
        expected.most_common(10)
    )


def _newest_read(query: Query) -> tuple[int, batches.BatchFile]:
    """Return the newest batch that read something, and its file."""
    logs = CheckpointLogs.at(query.checkpoints.get().location)
    for batch in reversed(logs.begun()):
        for file in batches.files_of(logs, batch):
            return batch, file
    raise AssertionError("no batch has read a file")
