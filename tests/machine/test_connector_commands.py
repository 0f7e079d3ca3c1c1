"""The commands of docs/connectors.md, from an empty HEADGATE_HOME to installed connectors.

pip and Maven are real. Where `make spark ARGS=4.2` has been run, pip's cache holds that Spark, and
the commands download little.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.pieces import spark_folder

REPOSITORY = Path(__file__).resolve().parents[2]
#: Seconds for one command; Spark is a download of 450 MB where pip's cache has nothing.
LIMIT_S = 900


def _blocks() -> list[list[str]]:
    """Return the commands of each shell block of the page."""
    page = (REPOSITORY / "docs" / "connectors.md").read_text()
    return [one.strip().splitlines() for one in re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty machine's HEADGATE_HOME, where it can be filled."""
    if shutil.which("mvn") is None:
        pytest.skip("there is no Maven; get it with `sudo apt-get install maven`")
    if not spark_folder("4.2"):
        pytest.skip("Spark 4.2 was never downloaded here; get it with `make spark ARGS=4.2`")
    return tmp_path_factory.mktemp("empty")


def _said(home: Path, command: str) -> str:
    """Run a command of the page; return what it prints."""
    hidden = ("HEADGATE_CONNECTORS", "DATABASE_URL")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        [*shlex.split(command), f"PYTHON={sys.executable}"],
        cwd=REPOSITORY,
        env={**environment, "HEADGATE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_commands_lead_from_nothing_to_connectors_that_are_checked_and_removed(
    home: Path,
) -> None:
    install, coordinates, check = _blocks()
    assert install == [
        "make spark ARGS=4.2",
        'make connector ARGS="delta --spark 4.2"',
        "make connector ARGS=list",
    ]
    said = [_said(home, command) for command in install]
    assert "delta for Spark 4.2" in said[-1]
    assert "All jars match what was downloaded." in said[-1]
    jars = {path.name: path for path in (home / "connectors" / "4.2" / "delta").glob("*.jar")}
    [delta] = [path for name, path in jars.items() if name.startswith("delta-spark_4.2_2.13-")]
    assert "io/delta/sql/DeltaSparkSessionExtension.class" in zipfile.ZipFile(delta).namelist()
    spark = {path.name for path in (home / "sparks" / "4.2" / "pyspark" / "jars").glob("*.jar")}
    assert not jars.keys() & spark

    for command in coordinates:
        _said(home, command)
    driver = home / "connectors" / "4.2" / "pg" / "postgresql-42.7.14.jar"
    assert "org/postgresql/Driver.class" in zipfile.ZipFile(driver).namelist()

    again = [_said(home, command) for command in (*install[:2], *coordinates)]
    assert not any("Resolving" in text or "Installing" in text for text in again)

    listed, removed, sparks = (_said(home, command) for command in check)
    assert "pg for Spark 4.2: 2 jars" in listed
    assert "Removed the connector pg for Spark 4.2." in removed
    assert not driver.exists()
    assert "All jars match what was downloaded." in sparks
