"""The storage JVM of an application as a process: started on demand, counted, ended when unused."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.states import DriverKind, DriverState
from queries.launchers.base import LaunchRefused
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.models.applications import Application, ApplicationRevision
from queries.models.drivers import Driver
from queries.selectors.supervision.observation import STORAGE_JVM_MB, slots
from queries.services.checkpoints import storage_jvms
from queries.services.checkpoints.storage_jvms import NoStorage, note_ended, storage_of
from queries.storage.hadoop import HadoopStorage
from tests import pieces
from tests.storage.stores import S3Store

pytestmark = [pytest.mark.s3, pytest.mark.django_db(transaction=True)]

LIMIT_S = 120.0


@pytest.fixture
def launcher(settings: LazySettings, tmp_path: Path) -> Iterator[LocalProcessLauncher]:
    settings.DRIVERS_DIR = tmp_path / "drivers"
    settings.CONNECTORS_DIR = pieces.s3_connector().parent
    settings.STORAGE_IDLE_S = 300
    found = LocalProcessLauncher(settings.DRIVERS_DIR, tmp_path / "code")
    yield found
    found.end_probes()


def application(name: str, conf: dict[str, str]) -> Application:
    spec: dict[str, Any] = ApplicationSpec(connectors=("s3",), conf=conf, memory="1g").model_dump(
        mode="json"
    )
    row = Application.objects.create(name=name, created_at=timezone.now())
    ApplicationRevision.objects.create(
        application=row, number=1, spec=spec, created_at=timezone.now()
    )
    return row


def until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {LIMIT_S:.0f} s")


def reached(row: Application, launcher: LocalProcessLauncher) -> HadoopStorage | None:
    try:
        return storage_of(row, launcher=launcher, now=timezone.now())
    except NoStorage:
        return None


def test_it_starts_on_demand_serves_the_bucket_and_ends_when_unused(
    launcher: LocalProcessLauncher, s3: S3Store, settings: LazySettings
) -> None:
    settings.STORAGE_IDLE_S = 2
    row = application("lake", dict(s3.conf))
    with pytest.raises(NoStorage, match="starting"):
        storage_of(row, launcher=launcher, now=timezone.now())
    storage = until(lambda: reached(row, launcher))
    place = s3.place("by-jvm")
    storage.write(place, "metadata", b"{}")
    assert [entry.name for entry in storage.list(place, most=5).entries] == ["metadata"]
    driver = Driver.objects.get()
    assert (driver.kind, driver.state) == (DriverKind.STORAGE, DriverState.LIVE)
    assert slots(ApplicationSpec(), now=timezone.now()).memory_used_mb == STORAGE_JVM_MB

    def ended() -> bool:
        note_ended(launcher=launcher, now=timezone.now())
        driver.refresh_from_db()
        return driver.state == DriverState.ENDED

    until(ended)
    assert slots(ApplicationSpec(), now=timezone.now()).memory_used_mb == 0


def test_a_changed_definition_gets_a_new_one(launcher: LocalProcessLauncher, s3: S3Store) -> None:
    row = application("lake", dict(s3.conf))
    until(lambda: reached(row, launcher))
    spec = {
        **row.revisions.get().spec,
        "conf": {**s3.conf, "spark.hadoop.fs.s3a.path.style.access": "true"},
    }
    ApplicationRevision.objects.create(
        application=row, number=2, spec=spec, created_at=timezone.now()
    )
    until(lambda: reached(row, launcher))
    used = Driver.objects.order_by("epoch").values_list("application_revision__number", flat=True)
    assert list(used) == [1, 2]


def test_one_that_cannot_start_says_why(launcher: LocalProcessLauncher, s3: S3Store) -> None:
    row = application("lake", {"spark.hadoop.fs.s3a.access.key": "file:no-such-secret"})

    def refused() -> str:
        try:
            storage_of(row, launcher=launcher, now=timezone.now())
        except NoStorage:
            return ""
        except LaunchRefused as error:
            return str(error)
        raise AssertionError("it started without its key")

    assert "no-such-secret" in until(refused)


@pytest.mark.guarantee("G-STORE-1")
def test_one_more_than_allowed_waits_and_takes_the_place_of_an_unused_one(
    launcher: LocalProcessLauncher, s3: S3Store, settings: LazySettings, monkeypatch: Any
) -> None:
    settings.STORAGE_JVMS = 1
    first, second = application("lake", dict(s3.conf)), application("river", dict(s3.conf))
    until(lambda: reached(first, launcher))
    with pytest.raises(NoStorage) as waits:
        storage_of(second, launcher=launcher, now=timezone.now())
    assert "in use" in str(waits.value)
    monkeypatch.setattr(storage_jvms, "SPARE_AFTER_S", 0.0)

    def taken() -> HadoopStorage | None:
        note_ended(launcher=launcher, now=timezone.now())
        return reached(second, launcher)

    until(taken)
    assert Driver.objects.filter(state=DriverState.LIVE).get().application == second
