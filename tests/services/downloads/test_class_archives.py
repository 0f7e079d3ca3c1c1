"""The worker makes class archives while its host is quiet, one at a time, each once."""

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate_ground import files
from queries.domain.states import DriverState
from queries.launchers.base import NotMade
from queries.launchers.process.class_archives import HostArchives
from queries.models.drivers import Driver
from queries.services import downloads
from queries.services.downloads import Archiver
from tests.scenarios.stage import Stage
from tests.services.downloads.host import HostFolders

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 27, tzinfo=UTC).timestamp()


class Making:
    """What makes archives, in place of a training."""

    def __init__(self, folder: Path) -> None:
        self.archiver = Archiver(HostArchives(folder / "classes"), lambda _: False)
        self.made: list[tuple[str, str]] = []  # name, folder of Spark
        self.refused = ""

    def make(self, target: Path, environ: Any, spark: str, leaving: Any) -> None:
        self.made.append((target.name, spark))
        if self.refused:
            raise NotMade(self.refused)
        target.parent.mkdir(exist_ok=True)
        target.write_text("classes")
        target.with_suffix(".size").write_text("7")

    def looks(self, times: int = 2, *, later_s: float = 0) -> list[Path | None]:
        return [self.archiver.look(now=NOW + later_s) for _ in range(times)]


@pytest.fixture
def making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Making:
    HostFolders(tmp_path, settings)
    found = Making(tmp_path)
    java = tmp_path / "java/bin/java"
    base = tmp_path / "java/lib/server/classes.jsa"
    for file in (java, tmp_path / "java/lib/modules", base):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\necho '    java.home = {tmp_path}/java' >&2\n")
        file.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setattr("queries.launchers.process.class_archives.make", found.make)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    monkeypatch.setattr(downloads, "NEEDS_MEMORY", 0)
    return found


def test_an_archive_is_made_at_the_second_quiet_look_and_only_once(making: Making) -> None:
    first, second = making.looks()
    assert first is None
    assert second is not None
    assert second.exists()
    assert making.looks(4) == [None] * 4
    assert making.made == [(second.name, "")]
    second.write_text("cl")
    assert making.looks()[-1] == second


def test_a_busy_host_makes_none_and_says_so_after_an_hour(
    making: Making, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as busy, caplog.at_level(logging.WARNING):
        busy.setattr(os, "getloadavg", lambda: (float(os.cpu_count() or 1), 0.0, 0.0))
        assert making.looks(4) == making.looks(4, later_s=3500) == [None] * 4
        assert not caplog.records
        assert making.looks(4, later_s=3700) == [None] * 4
    [record] = caplog.records
    assert "this host has not had a free processor" in record.getMessage()
    assert making.made == []
    assert making.looks(later_s=3800)[-1] is not None


def test_a_driver_that_starts_is_not_disturbed(making: Making, stage: Stage, settings: Any) -> None:
    stage.application("flights")
    stage.query("delays", "flights")
    stage.start("delays")
    driver = Driver.objects.get()
    Driver.objects.update(host=settings.HEADGATE_HOST)
    assert driver.state == DriverState.STARTING
    assert making.looks(3) == [None] * 3
    Driver.objects.update(state=DriverState.LIVE)
    assert making.looks()[-1] is not None


@pytest.mark.parametrize("lacking", ["memory", "disk"])
def test_without_room_none_is_made(
    making: Making,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lacking: str,
) -> None:
    if lacking == "memory":
        monkeypatch.setattr(downloads, "NEEDS_MEMORY", 1 << 60)
    else:
        monkeypatch.setattr(downloads, "free_bytes", lambda _: files.KEEP_FREE)
    assert making.looks(4) == [None] * 4
    assert making.made == []
    with caplog.at_level(logging.WARNING):
        making.looks(later_s=3700)
    said = {"memory": "of free memory on this host", "disk": "GB free in "}
    assert said[lacking] in caplog.text


def test_one_that_cannot_be_made_is_told_once_and_not_tried_again(
    making: Making, caplog: pytest.LogCaptureFixture
) -> None:
    making.refused = "The folder of class archives cannot be used: read-only."
    with caplog.at_level(logging.WARNING):
        assert making.looks(6) == [None] * 6
    assert len(making.made) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "drivers with Spark 4.3 start without a class archive: "
        "The folder of class archives cannot be used: read-only."
    ]


def test_a_java_that_cannot_archive_classes_is_told_once(
    making: Making, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "java/lib/server/classes.jsa").unlink()
    with caplog.at_level(logging.WARNING):
        assert making.looks(4) == [None] * 4
    [record] = caplog.records
    assert "has no archive of Java's own classes" in record.getMessage()
    assert making.made == []


def test_a_version_that_an_application_names_gets_an_archive_of_its_own(
    making: Making, tmp_path: Path, stage: Stage, settings: Any
) -> None:
    spark = HostFolders(tmp_path / "other", settings).spark("4.2")
    assert len([one for one in making.looks(6) if one]) == 1  # nothing names it
    stage.application("flights", spark="4.2")
    assert len([one for one in making.looks(6) if one]) == 1
    assert making.made[-1][1] == str(spark)
