"""`make kafka`, `make s3`, `make hadoop` and `make connector` download once, as a whole folder."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headgate_server import downloads

REPOSITORY = Path(__file__).resolve().parents[2]

#: A Maven that copies one jar and tells of it as Maven does.
_MAVEN = """#!/bin/sh
for argument do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done
echo "Downloaded from central: https://example.org/a/b/some-jar-1.0.jar (12 kB at 1 kB/s)"
touch "$out/some-jar-1.0.jar"
echo called >> "$CALLS"
"""
#: A Maven that copies a connector, a jar that Spark contains too, and its pom for a test.
_OF_COORDINATES = """#!/bin/sh
for argument do
case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; *pom.xml) pom="$argument";; esac
done
cat "$pom" > "$CALLS.pom"
for jar in tables-4.2_2.13-4.4.0 hadoop-client-api-3.1.0 tables-storage-4.4.0
do echo "$jar" > "$out/$jar.jar"; done
"""
_MISSING = """#!/bin/sh
echo "[ERROR] Failed to execute goal on project connector: Could not resolve dependencies"
echo "[ERROR] dependency: a:b:jar:9 (compile)"
echo "[ERROR] 	Could not find artifact a:b:jar:9 in central (https://example.org) -> [Help 1]"
exit 1
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
        for name in ("touch", "env", "cat"):
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
    assert "Choose kafka, s3, hadoop, kubernetes, rest-catalog." in refused.stderr


def test_a_python_that_is_too_new_for_a_spark_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "NEWEST_PYTHON", {"3.5": (3, 10)})
    home = downloads.Downloads(
        recipes=REPOSITORY / "connectors",
        connectors=tmp_path / "connectors",
        sparks=tmp_path / "sparks",
        report=lambda line: None,
        follow=lambda *command, **how: (1, []),
    )
    with pytest.raises(
        downloads.DownloadFailed, match=r"3\.5 runs on Python 3\.10 or older"
    ) as said:
        home.spark("3.5")
    assert said.value.way_out == "Install Headgate with Python 3.10, or choose a newer Spark."
    assert not (tmp_path / "sparks").exists()


# --- connectors ---------------------------------------------------------------------------------
COORDINATES = "org.example:tables-4.2_2.13:4.4.0"


def _spark(setup: Setup, version: str) -> None:
    """Install a version of Spark that contains one jar."""
    jars = setup.home / "sparks" / version / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "hadoop-client-api-3.5.0.jar").touch()


def test_maven_coordinates_become_a_connector_without_what_spark_contains(setup: Setup) -> None:
    setup.maven(_OF_COORDINATES)
    _spark(setup, "4.2")
    added = setup.run("--connector", "add", "tables", COORDINATES, "--spark", "4.2")
    assert added.returncode == 0, added.stderr
    folder = setup.home / "connectors" / "4.2" / "tables"
    assert sorted(path.name for path in folder.glob("*.jar")) == [
        "tables-4.2_2.13-4.4.0.jar",
        "tables-storage-4.4.0.jar",
    ]
    asked = Path(f"{setup.calls}.pom").read_text()
    assert "<artifactId>tables-4.2_2.13</artifactId><version>4.4.0</version>" in asked
    digest = hashlib.sha256(b"tables-storage-4.4.0\n").hexdigest()
    assert f"{digest}  tables-storage-4.4.0.jar\n" in (folder / "SHA256SUMS").read_text()
    assert f'packages = ["{COORDINATES}"]' in (folder / "connector.toml").read_text()


def test_what_an_admin_wrote_about_a_connector_outlives_its_next_version(setup: Setup) -> None:
    setup.maven(_OF_COORDINATES)
    setup.run("--connector", "add", "tables", COORDINATES)
    told = setup.home / "connectors" / "tables" / "connector.toml"
    told.write_text('sources = ["tables"]\n')
    newer = setup.run("--connector", "add", "tables", COORDINATES.replace("4.4.0", "4.4.1"))
    assert newer.returncode == 0, newer.stderr
    assert told.read_text() == 'sources = ["tables"]\n'


def test_a_changed_jar_is_downloaded_again_and_an_unchanged_one_is_not(setup: Setup) -> None:
    setup.maven(_MAVEN)
    setup.run("--connector", "kafka")
    setup.run("--connector", "kafka")
    assert setup.calls.read_text().split() == ["called"]
    jar = setup.home / "connectors" / "kafka" / "some-jar-1.0.jar"
    jar.write_text("something else")
    setup.run("--connector", "kafka")
    assert setup.calls.read_text().split() == ["called", "called"]
    assert jar.read_text() == ""


def test_an_older_release_s_folder_gets_checksums_without_a_download(setup: Setup) -> None:
    setup.maven(_MAVEN)
    setup.run("--connector", "kafka")
    sums = setup.home / "connectors" / "kafka" / "SHA256SUMS"
    sums.unlink()
    setup.run("--connector", "kafka")
    assert "some-jar-1.0.jar" in sums.read_text()
    assert setup.calls.read_text().split() == ["called"]


def test_coordinates_for_another_scala_than_that_of_the_spark_are_refused(setup: Setup) -> None:
    setup.maven(_OF_COORDINATES)
    _spark(setup, "3.5")
    jars = setup.home / "sparks" / "3.5" / "pyspark" / "jars"
    (jars / "scala-library-2.12.18.jar").touch()
    add = ("--connector", "add", "tables")
    refused = setup.run(*add, COORDINATES, "--spark", "3.5")
    assert refused.returncode == 1
    assert f"{COORDINATES} is for Scala 2.13, but this Spark has Scala 2.12." in refused.stderr
    assert "Use the artifact that ends in _2.12." in refused.stderr
    added = setup.run(*add, COORDINATES.replace("_2.13", "_2.12"), "--spark", "3.5")
    assert added.returncode == 0, added.stderr


@pytest.mark.parametrize(("spark", "scala"), [("3.5", "2.12"), ("4.0", "2.13")])
def test_a_recipe_uses_the_artifacts_for_the_scala_of_the_spark(
    setup: Setup, spark: str, scala: str
) -> None:
    setup.maven('#!/bin/sh\necho "$@" > "$CALLS"\nexit 1\n')
    _spark(setup, spark)
    setup.run("--connector", "add", "kafka", "--spark", spark)
    assert ("-Dscala.short=2.12" in setup.calls.read_text()) == (scala == "2.12")


@pytest.mark.parametrize(
    ("arguments", "problem", "way_out"),
    [
        (["kafka", "--spark", "4.2"], "Spark 4.2 is not installed", "make spark ARGS=4.2"),
        (["kafka", "--spark", "3.4"], "Spark '3.4' cannot be installed", "4.0, 4.1, 4.2"),
        (["kafka", "--spark"], "Spark '' cannot be installed", "4.0, 4.1, 4.2"),
        (["nonsense"], "no recipe for nonsense", "nonsense GROUP:ARTIFACT:VERSION"),
        (["tables", "org.example:tables"], "'org.example:tables'", "Use GROUP:ARTIFACT:VERSION"),
        (["tables", "a:b:../c"], "is not in the form of Maven", "Use GROUP:ARTIFACT:VERSION"),
        (["4.2", "a:b:1"], "'4.2' is not a valid connector name", "with a letter first"),
        (["kafka", "a:b:1"], "kafka is the name of a recipe", "Choose another name"),
        (["a", "b", "a:b:1"], "need one name, not 'a b'", "Choose a name"),
        (["tables", "a:b:9"], "Could not find artifact a:b:jar:9 in central", "Check the network"),
    ],
)
def test_a_connector_that_cannot_be_had_is_refused_with_the_reason_and_a_way_out(
    setup: Setup, arguments: list[str], problem: str, way_out: str
) -> None:
    setup.maven(_MISSING)
    refused = setup.run("--connector", "add", *arguments)
    assert refused.returncode == 1
    assert problem in refused.stderr
    assert way_out in refused.stderr
    assert not list(setup.home.glob("connectors/*/*"))
