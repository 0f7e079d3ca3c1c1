"""An author's Hadoop keys run no program where the worker reads a checkpoint.

The storage JVM's files and answers are read by the worker, outside of all walls: a program that
runs there could prepare both. This is the first half of an escape that was found by trying.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from queries.domain.definitions.spec import ApplicationSpec
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.models.applications import Application, ApplicationRevision
from queries.services.checkpoints.storage_jvms import NoStorage, storage_of
from queries.storage.hadoop import StorageFailed

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

LIMIT_S = 120.0
#: Nothing listens there; the client maps its own host to a rack before it connects.
NOWHERE = "hdfs://127.0.0.1:1/checkpoints/delays"


@pytest.fixture
def launcher(settings: LazySettings, tmp_path: Path) -> Iterator[LocalProcessLauncher]:
    settings.DRIVERS_DIR = tmp_path / "drivers"
    found = LocalProcessLauncher(settings.DRIVERS_DIR, tmp_path / "code")
    yield found
    found.end_probes()


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Return a file that a program named by a key would write."""
    return tmp_path / "mark"


@pytest.fixture
def keys(tmp_path: Path, mark: Path) -> dict[str, str]:
    program = tmp_path / "racks"
    program.write_text(f"#!/bin/sh\necho ran > {mark}\necho /default-rack\n")
    program.chmod(0o755)
    return {
        "spark.hadoop.fs.client.resolve.topology.enabled": "true",
        "spark.hadoop.net.topology.script.file.name": str(program),
        "spark.hadoop.ipc.client.connect.max.retries": "0",
    }


def application(conf: dict[str, str]) -> Application:
    spec: dict[str, Any] = ApplicationSpec(conf=conf, memory="1g").model_dump(mode="json")
    row = Application.objects.create(name="lake", created_at=timezone.now())
    ApplicationRevision.objects.create(
        application=row, number=1, spec=spec, created_at=timezone.now()
    )
    return row


def until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            return look()
        except NoStorage:
            time.sleep(0.2)
    raise AssertionError(f"not within {LIMIT_S:.0f} s")


@pytest.mark.guarantee("G-ISOLATION-12")
def test_a_program_that_a_python_author_names_is_not_run_and_the_reading_says_so(
    launcher: LocalProcessLauncher, keys: dict[str, str], mark: Path
) -> None:
    row = application(keys)
    storage = until(lambda: storage_of(row, launcher=launcher, now=timezone.now()))
    with pytest.raises(StorageFailed) as failed:
        storage.list(NOWHERE, most=5)
    assert not mark.exists()
    assert (
        "was read without spark.hadoop.fs.client.resolve.topology.enabled, "
        "spark.hadoop.net.topology.script.file.name:" in str(failed.value)
    )
