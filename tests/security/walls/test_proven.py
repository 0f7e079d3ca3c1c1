"""Walls are tried before they are used, and what a host lacks is named."""

import errno
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from headgate_server.places import ROOT as REPOSITORY
from queries.domain.hosts import IsolationChoice, Mode, choose
from queries.domain.protocol import Assignment
from queries.launchers.base import LaunchRefused
from queries.launchers.process.isolation import bubblewrap, mounts, self_test
from queries.launchers.process.isolation.trial import IsolationMissing, TrialInconclusive
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.launchers.recorded_isolation import recorded_isolation
from tests.launchers.test_contract import _spec

LACKS = "bubblewrap is not installed; it is in the bubblewrap package."


@pytest.mark.guarantee("G-ISOLATION-14")
@pytest.mark.walls
def test_a_host_with_bubblewrap_and_user_namespaces_gives_walls(tmp_path: Path) -> None:
    assert self_test.prove("auto", tmp_path / "drivers") == IsolationChoice(Mode.BUBBLEWRAP, "auto")
    assert list((tmp_path / "drivers").iterdir()) == []


def test_where_the_program_is_missing_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    choice = self_test.prove("auto", tmp_path / "drivers")
    assert (choice.mode, choice.lacks) == (Mode.NEITHER, LACKS)


def test_where_the_kernel_gives_no_namespace_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bubblewrap stands in for one that the kernel refuses: with its words and its code."""
    stand_in = tmp_path / "bwrap"
    stand_in.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "PROGRAM", str(stand_in))
    choice = self_test.prove("bubblewrap", tmp_path / "drivers")
    assert choice.refused
    assert "No permissions to create new namespace" in choice.told
    assert "kernel.apparmor_restrict_unprivileged_userns" in choice.told


@pytest.mark.walls
def test_the_number_of_a_containers_first_process_is_another_one_within(tmp_path: Path) -> None:
    """A worker may be process 1 of its container; within the walls that is their own init."""
    prove = (
        "import sys; from pathlib import Path; "
        "from queries.launchers.process.isolation import self_test"
    )
    say = "print(self_test.prove('auto', Path(sys.argv[1])).told)"
    done = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"),
            *(sys.executable, "-P", "-c", f"{prove}; {say}", str(tmp_path / "drivers")),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.startswith("Isolation of drivers: bubblewrap."), done.stdout + done.stderr


@pytest.mark.guarantee("G-ISOLATION-1")
@pytest.mark.walls
def test_walls_with_a_hole_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_SYSTEM", f"{mounts._SYSTEM} {tmp_path}")
    choice = self_test.prove("auto", tmp_path / "drivers")
    assert choice.mode is Mode.NEITHER
    assert "it was not stopped from reading a file of the control plane" in choice.lacks


@pytest.mark.guarantee("G-ISOLATION-4")
@pytest.mark.walls
@pytest.mark.parametrize("top", ["/proc", "/sys"])
def test_a_file_of_the_kernel_that_can_be_opened_to_write_is_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: str
) -> None:
    whole = mounts.mounts

    def with_hole(*arguments: Any) -> mounts.Mounts:
        made = whole(*arguments)
        return replace(made, options=[*made.options, "--bind", top, top])

    monkeypatch.setattr(mounts, "mounts", with_hole)
    choice = self_test.prove("auto", tmp_path / "drivers")
    assert choice.mode is Mode.NEITHER
    assert f"not stopped from opening a kernel file for writing: {top}/" in choice.lacks


@pytest.mark.walls
def test_processes_of_the_host_in_sight_are_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tuple(each for each in bubblewrap.NAMESPACES if each not in _OF_PROCESSES)
    monkeypatch.setattr(bubblewrap, "NAMESPACES", shared)
    assert self_test.prove("auto", tmp_path / "drivers").mode is Mode.NEITHER


_OF_PROCESSES = ("--unshare-pid", "--as-pid-1")


@pytest.mark.guarantee("G-ISOLATION-1")
@pytest.mark.parametrize("asked", ["auto", "bubblewrap"])
@pytest.mark.parametrize(
    ("error", "late"),
    [
        (TrialInconclusive("the trial took longer than 300 s."), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (IsolationMissing("the trial failed: it was not stopped."), False),
    ],
)
def test_a_host_that_is_busy_or_full_is_not_one_without_walls(
    tmp_path: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    error: Exception,
    late: bool,
) -> None:
    def fails(drivers: Path) -> None:
        raise error

    settings.HEADGATE_HOME, settings.ISOLATION, settings.DRIVERS_DIR = (
        tmp_path,
        asked,
        tmp_path / "d",
    )
    monkeypatch.setattr(self_test, "_try_bubblewrap", fails)
    monkeypatch.setattr(self_test, "_late", [])
    self_test._isolation.cache_clear()
    launcher = LocalProcessLauncher(
        tmp_path / "drivers", tmp_path / "code", isolation=self_test.isolation
    )
    try:
        choice = self_test.isolation()
        assert (choice.late, choice.refused) == (late, late or asked == "bubblewrap")
        assert recorded_isolation() == choice
        if choice.refused:
            with pytest.raises(LaunchRefused) as refused:
                launcher.launch(_spec(1), Assignment(1, 1), "")
            assert refused.value.passing == late
        monkeypatch.setattr(self_test, "_try_bubblewrap", lambda _: None)
        assert self_test.isolation() == choice  # not tested again for each of many starts
        monkeypatch.setattr(self_test, "_late", [])
        assert (self_test.isolation() == choice) is not late
    finally:
        self_test._isolation.cache_clear()


@pytest.mark.walls
def test_a_trial_that_is_killed_or_lacks_memory_says_nothing_about_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code in (
        "import os; os.kill(os.getpid(), 9)",
        "import sys; sys.exit('fork: Resource temporarily unavailable')",
    ):
        command = [sys.executable, "-c", code]
        monkeypatch.setattr(self_test, "attempt", lambda *_, said=command, **__: said)
        choice = self_test.prove("auto", tmp_path / "drivers")
        assert (choice.late, choice.refused) == (True, True), choice


@pytest.mark.guarantee("G-ISOLATION-1")
def test_without_the_walls_that_are_asked_for_nothing_is_launched(tmp_path: Path) -> None:
    launcher = LocalProcessLauncher(
        tmp_path / "drivers", tmp_path / "code", isolation=lambda: choose("bubblewrap", LACKS)
    )
    with pytest.raises(LaunchRefused, match="is not installed"):
        launcher.launch(_spec(1), Assignment(1, 1), "")
    assert launcher.living() == []


@pytest.mark.django_db
def test_settings_and_the_log_say_what_an_author_can_do(
    settings: Settings,
    client: Client,
    viewer: User,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.force_login(viewer)
    settings.HEADGATE_HOME, settings.DRIVERS_DIR = tmp_path, tmp_path / "drivers"
    settings.ISOLATION = "neither"
    monkeypatch.setattr("queries.services.system.health.FRESH_FOR_S", 0)
    assert "is tested when the worker starts" in client.get("/settings/system/").content.decode()
    self_test._isolation.cache_clear()
    with caplog.at_level(logging.INFO, logger=self_test.__name__):
        self_test.isolation()
    self_test._isolation.cache_clear()
    assert Mode.NEITHER.sentence in caplog.text
    page = client.get("/settings/system/").content.decode()
    assert "Isolation of drivers: neither. Drivers run as the worker" in page
    part = next(
        part
        for part in client.get("/api/v1/system/").json()["parts"]
        if part["name"] == "isolation"
    )
    assert Mode.NEITHER.sentence in part["sentence"]
