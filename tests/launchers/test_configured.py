"""Which launcher an installation has: the one that its settings name."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane import hosts
from queries.launchers.configured import launcher
from queries.launchers.process.launcher import LocalProcessLauncher
from tests.launchers.in_memory import InMemoryLauncher


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    hosts.launcher.cache_clear()
    yield
    hosts.launcher.cache_clear()


def test_drivers_run_as_processes_unless_told_otherwise() -> None:
    assert isinstance(launcher(), LocalProcessLauncher)
    assert launcher() is launcher()


def test_another_kind_is_named_and_chosen_by_settings(settings: Any) -> None:
    settings.LAUNCHERS = {"memory": "tests.launchers.in_memory.InMemoryLauncher"}
    settings.LAUNCHER = "memory"
    assert isinstance(launcher(), InMemoryLauncher)


def test_an_unknown_kind_stops_the_start_with_the_way_out() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import controlplane.settings"],
        env={**os.environ, "HEADGATE_LAUNCHER": "cloud"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert "HEADGATE_LAUNCHER='cloud' cannot be used. Use one of process." in last
