"""The command is a distribution of its own, which installs into an empty environment."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.cli.conftest import SOURCE, Shell, said, token_of
from tests.machine.wheels import built

LIMIT_S = 300


def run(*command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        env=said(env),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Return the wheel, built offline as `make dist` builds it."""
    return built(tmp_path)["headgate_cli"]


def test_the_wheel_runs_alone_in_an_empty_environment(
    wheel: Path, live_server: Any, author: User, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    made = run(sys.executable, "-m", "venv", "--without-pip", empty)
    assert made.returncode == 0, made.stderr
    pip = (sys.executable, "-m", "pip", "--python", empty / "bin" / "python", "install", "-q")
    installed = run(*pip, "--retries", "0", "--timeout", "60", wheel)
    if re.search("No matching distribution|connection|Temporary failure", installed.stderr):
        pytest.skip(f"no index of packages is reached: {installed.stderr.splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    shell = Shell(tmp_path, live_server.url)
    env = shell.environment() | {
        "PATH": f"{empty / 'bin'}:/usr/bin:/bin",
        "PYTHONPATH": "",
        "HEADGATE_URL": live_server.url,
        "HEADGATE_TOKEN": token_of(author),
    }
    listed = subprocess.run(
        ["headgate", "get", "queries"],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    assert listed.stderr == "There are no queries.\n"
    there = run(empty / "bin" / "python", "-c", "import django")
    assert "No module named 'django'" in there.stderr


def test_what_it_is_tested_with_is_what_it_asks_for() -> None:
    """The tests' own environment holds each of its packages, in a version that it takes."""
    from importlib.metadata import version

    from packaging.requirements import Requirement

    asked = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["dependencies"]
    unfit = [one for one in map(Requirement, asked) if version(one.name) not in one.specifier]
    assert unfit == []
