"""`make kafka` has Maven resolve jars once, puts them into place whole, says what is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

#: A Maven that copies one jar and tells of it as Maven does.
_MAVEN = """#!/bin/sh
for argument do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done
echo "Downloaded from central: https://example.org/a/b/some-jar-1.0.jar (12 kB at 1 kB/s)"
touch "$out/some-jar-1.0.jar"
echo called >> "$CALLS"
"""
_FAILING = """#!/bin/sh
echo "[ERROR] Could not transfer artifact"
exit 1
"""


class Setup:
    """A data folder, a PATH of its own, and a script that stands for Maven."""

    def __init__(self, folder: Path) -> None:
        self.home, self.bin, self.calls = folder / "home", folder / "bin", folder / "calls"
        self.bin.mkdir()

    def maven(self, script: str) -> None:
        """Put a script onto the PATH as mvn."""
        (self.bin / "touch").symlink_to(shutil.which("touch") or "/usr/bin/touch")
        (self.bin / "mvn").write_text(script)
        (self.bin / "mvn").chmod(0o755)

    def run(self, option: str = "--jars") -> subprocess.CompletedProcess[str]:
        """Run what `make kafka ARGS=--jars` runs, or the image's build."""
        hidden = ("HEADGATE_CONNECTORS", "HEADGATE_HOME")
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        return subprocess.run(
            [sys.executable, "bootstrap/kafka.py", option],
            cwd=REPOSITORY,
            env={
                **environment,
                "HEADGATE_HOME": str(self.home),
                "PATH": str(self.bin),  # nothing else: this machine may have a Maven
                "CALLS": str(self.calls),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_a_missing_maven_is_told_with_the_command_that_mends_it(setup: Setup) -> None:
    result = setup.run()
    assert result.returncode == 1
    assert "Maven is missing" in result.stderr
    assert "sudo apt-get install maven" in result.stderr


def test_jars_are_put_into_place_once(setup: Setup) -> None:
    setup.maven(_MAVEN)
    first = setup.run()
    assert first.returncode == 0, first.stderr
    assert "1 fetched: some-jar-1.0.jar (12 kB)" in first.stdout
    assert "example.org" not in first.stdout
    assert (setup.home / "connectors" / "kafka" / "some-jar-1.0.jar").exists()
    assert (setup.home / "kafka" / "jars" / "some-jar-1.0.jar").exists()
    second = setup.run()
    assert (second.returncode, second.stdout) == (0, "")
    assert setup.calls.read_text().split() == ["called", "called"]  # once for each folder


def test_the_image_gets_the_connector_and_no_broker(setup: Setup) -> None:
    setup.maven(_MAVEN)
    result = setup.run("--connector")
    assert result.returncode == 0, result.stderr
    assert (setup.home / "connectors" / "kafka" / "some-jar-1.0.jar").exists()
    assert not (setup.home / "kafka").exists()


def test_a_failed_fetch_leaves_nothing_that_looks_ready(setup: Setup) -> None:
    setup.maven(_FAILING)
    result = setup.run()
    assert result.returncode == 1
    assert "Could not transfer artifact" in result.stderr
    assert "Check the network" in result.stderr
    assert list((setup.home / "connectors").iterdir()) == []
