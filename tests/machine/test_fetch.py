"""`make kafka`, `make s3` and `make hadoop` fetch once, put it into place whole, say what lacks."""

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
_GO = """#!/bin/sh
echo "go: downloading example.org/module v1.0.0"
touch "$GOBIN/versitygw"
echo "called $*" >> "$CALLS"
"""
_JAVAC = """#!/bin/sh
while [ "$1" != -d ]; do shift; done
touch "$2/MiniHadoop.class"
"""


class Setup:
    """A data folder, a PATH of its own, and scripts that stand for Maven, Go and javac."""

    def __init__(self, folder: Path) -> None:
        self.home, self.bin, self.calls = folder / "home", folder / "bin", folder / "calls"
        self.bin.mkdir()
        for name in ("touch", "env"):
            (self.bin / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")

    def maven(self, script: str) -> None:
        """Put a script onto the PATH as mvn."""
        self.program("mvn", script)

    def program(self, name: str, script: str) -> None:
        """Put a script onto the PATH."""
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run what `make kafka ARGS=--jars` runs, or what other arguments ask for."""
        hidden = ("HEADGATE_CONNECTORS", "HEADGATE_HOME")
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        return subprocess.run(
            [sys.executable, "bootstrap/fetch.py", *(arguments or ("kafka", "--jars"))],
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


def test_the_gateway_is_built_once_of_one_version_into_the_data_folder(setup: Setup) -> None:
    setup.maven(_MAVEN)
    setup.program("go", _GO)
    first = setup.run("s3", "--jars")
    assert first.returncode == 0, first.stderr
    assert "Building the S3 gateway" in first.stdout
    assert "1 fetched: example.org/module v1.0.0" in first.stdout
    assert (setup.home / "s3" / "bin" / "versitygw").exists()
    assert (setup.home / "connectors" / "s3" / "some-jar-1.0.jar").exists()
    assert "versitygw/cmd/versitygw@v" in setup.calls.read_text()
    before = setup.calls.read_text()
    second = setup.run("s3", "--jars")
    assert (second.returncode, second.stdout) == (0, "")
    assert setup.calls.read_text() == before


def test_a_missing_go_and_a_failing_one_are_told_with_the_version_to_install(setup: Setup) -> None:
    setup.maven(_MAVEN)
    missing = setup.run("s3", "--jars")
    assert missing.returncode == 1
    assert "Go is missing" in missing.stderr
    assert "Install Go 1." in missing.stderr
    setup.program("go", "#!/bin/sh\necho 'requires go >= 9'\nexit 1\n")
    failing = setup.run("s3", "--jars")
    assert failing.returncode == 1
    assert "requires go >= 9" in failing.stderr
    assert "`go version`" in failing.stderr
    assert list((setup.home / "s3").iterdir()) == []


def test_hadoop_is_compiled_against_its_jars(setup: Setup) -> None:
    setup.maven(_MAVEN)
    missing = setup.run("hadoop", "--jars")
    assert missing.returncode == 1
    assert "javac is missing" in missing.stderr
    assert "openjdk-17-jdk-headless" in missing.stderr
    setup.program("javac", _JAVAC)
    built = setup.run("hadoop", "--jars")
    assert built.returncode == 0, built.stderr
    classes = setup.home / "hadoop" / "classes"
    assert (classes / "MiniHadoop.class").exists()
    assert (classes / "log4j.properties").exists()


def test_a_server_that_there_is_not_is_refused_with_those_that_there_are(setup: Setup) -> None:
    refused = setup.run("hbase")
    assert refused.returncode == 1
    assert "'hbase'" in refused.stderr
    assert "Choose kafka, s3, hadoop." in refused.stderr
