"""The wheels run the demo and the README's first query where no checkout is in sight."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate_ground import packages
from tests import pieces
from tests.faults.system import REPOSITORY, System
from tests.machine import wheels
from tests.machine.wheels import Environment

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    built = wheels.built(tmp_path_factory.mktemp("dist"))
    return Environment.made(tmp_path_factory.mktemp("env"), *built.values())


@pytest.fixture(scope="module")
def system(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Start what `headgate-server up` starts for somebody who has set no variable but the port."""
    users = tmp_path_factory.mktemp("user")
    running = System(users / ".local" / "share" / "headgate", pieces.free_port())
    kept = {
        name: running.environment[name] for name in ("HEADGATE_PORT", "HEADGATE_START_DEADLINE_S")
    }
    running.environment = installed.variables(users) | kept
    running.starts = (str(installed.bin / "headgate-server"), "up")
    running.command = (str(installed.bin / "headgate-server"), "manage")
    running.folder = users
    try:
        running.up()
        yield running
    finally:
        running.close()


def test_the_demos_python_query_runs_and_sees_of_our_packages_those_that_drivers_run(
    installed: Environment, system: System
) -> None:
    assert "headgate-server manage changepassword" in system.said
    system.wait("a batch", lambda: system.batch("flights-by-hour") >= 0)
    driver: Any = system.query("flights-by-hour")["current_run"]
    walls = json.loads((system.home / "walls.json").read_text())
    if walls["mode"] != "bubblewrap":
        pytest.skip(f"drivers have no walls here: {walls['lacks']}")
    seen = Path(f"/proc/{driver['jvm_pid']}/root{installed.packages}")
    shown = {name for name in packages.OURS if (seen / name / "__init__.py").exists()}
    assert shown == {*packages.DRIVER}


def test_the_readmes_first_query_commits_a_batch(system: System) -> None:
    readme = (REPOSITORY / "README.md").read_text()
    script = readme.split("```bash\n")[1].split("```")[0]
    script = script.replace("http://127.0.0.1:8000", system.base)
    done = subprocess.run(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            script.replace(".venv/bin/python manage.py", "headgate-server manage"),
        ],
        cwd=system.folder,
        env=system.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    system.wait("a committed batch", lambda: system.batch("first-query") >= 0)


def test_the_command_of_the_other_wheel_speaks_to_it(system: System) -> None:
    env = system.environment | {"HEADGATE_URL": system.base, "HEADGATE_TOKEN": system.token}
    done = subprocess.run(
        ["headgate", "get", "queries", "-o", "name"],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "query/first-query" in done.stdout.split()
