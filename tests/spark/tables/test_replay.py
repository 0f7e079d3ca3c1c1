"""What is said before a rewind, a clone or a reset is what a real table then does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queries.domain.sparks import Spark
from queries.domain.validation.tables import SPARKS
from tests import pieces

REPOSITORY = Path(__file__).resolve().parents[3]
#: Each format with the versions of Spark for which it has a release.
RELEASES = [(name, spark) for name, sparks in SPARKS.items() for spark in sparks]

pytestmark = pytest.mark.spark


def play(table_format: str, version: Spark, folder: Path) -> dict[str, Any]:
    """Play the story in a process of its own; return what was said and found, by act."""
    if missing := pieces.missing_connector(table_format, version):
        pytest.skip(missing)
    spark = pieces.spark_folder(version)
    jars = os.path.dirname(pieces.connector_jars(table_format, version)[0])
    story = [sys.executable, "-m", "tests.spark.tables.replay_story"]
    told = subprocess.run(
        [*story, table_format, str(folder), jars],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([spark, str(REPOSITORY)]),
            "SPARK_HOME": f"{spark}/pyspark",
            "PYSPARK_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-4000:]
    return {one["act"]: one for one in json.loads(told.stdout.splitlines()[-1])}


@pytest.mark.parametrize(("table_format", "version"), RELEASES)
def test_a_table_skips_and_loses_what_was_said_before(
    tmp_path: Path, table_format: str, version: Spark
) -> None:
    acts = play(table_format, version, tmp_path)
    assert acts["run"]["table"] == acts["run"]["batch"] == [0, 1, 2, 3]

    same = acts["rewind"]
    assert "Batches 2 to 3 will run again and be skipped" in same["said"][0]
    assert same["table"] == same["batch"]  # the same boundaries: nothing twice, nothing lost

    other = acts["rewind to other batches"]
    assert "New rows in skipped batches are lost" in other["said"][1]
    assert other["table"] == [0, 1, 2, 3, 6]  # 4 and 5 were in batches 2 and 3
    assert other["batch"] == [0, 1, 2, 3, 4, 5, 6]

    clone = acts["clone"]
    assert "are in the table twice" in clone["said"][0]
    assert clone["table"] == [0, 1, 2, 3, 6, 6]

    reset = acts["reset"]
    assert "the table skips batches 0 to 4" in reset["said"][0]
    assert reset["table"] == clone["table"]  # batches 0 to 3 read everything, and wrote nothing

    after = acts["continue"]
    assert "Batch 4 will be skipped" in after["said"][0]
    assert after["table"] == [*reset["table"], 8]  # 7 was in batch 4, 8 in batch 5
