"""Plain PySpark writes checkpoints, newer versions continue copies, and the first one those.

All rows are compared with a batch computation. What fails must be what the rules predict.
"""

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.state import written
from queries.domain.sparks import (
    OURS,
    SPARKS,
    Spark,
    Written,
    cannot_go_back,
    doubts_about,
    is_older,
)
from tests import pieces
from tests.spark.upgrade_shapes import SHAPES

pytestmark = pytest.mark.spark

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def add(home: Path, stage: int) -> None:
    """Add a file with late, repeated and joined rows, whose times follow those of the last."""
    (home / "in").mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(60):
        at = BEGIN + timedelta(seconds=stage * 50 + number)
        row = {"side": "lr"[number % 2], "k": "abc"[number % 3], "n": stage * 60 + number}
        five = dict.fromkeys("abcde", number % 5)
        rows.append({**row, "t": at.isoformat(), **five})
    rows += rows[:10]  # twice
    _write(home / f"in/{stage}.json", rows)


def end(home: Path) -> None:
    """Add rows whose times end all windows, sessions and joins."""
    at = (BEGIN + timedelta(hours=1)).isoformat()
    five = dict.fromkeys("abcde", -1)
    _write(home / "in/9.json", [{"side": "l", "k": "end", "n": -1, "t": at, **five}])


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def run(spark: Spark, *homes: str) -> dict[str, dict[str, str]]:
    """Continue the queries of these homes on a version; return what went wrong, by home."""
    folders = [] if spark == OURS else [str(Path(pieces.sparks_folder()) / spark)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("upgrade_shapes.py")), *homes],
        env={**environment, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def writers(home: Path) -> dict[str, Written]:
    """Return what each query's checkpoint says about its writer."""
    found = {name: written(CheckpointLogs(home / name / "checkpoint")) for name in SHAPES}
    return {name: one for name, one in found.items() if one is not None}


def expect_what_the_rules_say(went: dict[str, Written], back: dict[str, str], first: Spark) -> None:
    """Check that only what is predicted fails, and that what cannot go back does fail."""
    for name, problem in back.items():
        known = cannot_go_back(went[name], first)
        doubts = doubts_about(went[name], first)
        assert not problem or known or doubts, (name, problem)
        assert not known or problem, (name, known)


@pytest.fixture(scope="module")
def newer() -> list[Spark]:
    """Return the installed versions that are newer than the one under test."""
    folder = Path(pieces.sparks_folder())
    first = pieces.spark_version()
    there = [one for one in SPARKS if one == OURS or (folder / one / "pyspark").is_dir()]
    found = [one for one in there if is_older(first, one)]
    if not found:
        pytest.skip("no installed version of Spark is newer: HEADGATE_TEST_SPARK selects another")
    return found


def test_newer_sparks_continue_a_checkpoint_and_the_rules_know_what_does_not_go_back(
    newer: list[Spark], tmp_path: Path
) -> None:
    first: Spark = pieces.spark_version()
    base = tmp_path / "base"
    add(base, 0)
    assert run(first, str(base))[str(base)] == dict.fromkeys(SHAPES, "")
    ways: dict[Spark, Path] = {}
    for spark in newer:
        ended, there = tmp_path / f"{spark}-ended", tmp_path / f"{spark}-there"
        for home in (ended, there):
            shutil.copytree(base, home)
            add(home, 1)
        end(ended)
        found = run(spark, f"{ended}:compare", str(there))
        assert found == {str(home): dict.fromkeys(SHAPES, "") for home in (ended, there)}, spark
        ways[spark] = there
    for home in ways.values():
        add(home, 2)
        end(home)
    went = {home: writers(home) for home in ways.values()}
    back = run(first, *(f"{home}:compare" for home in ways.values()))
    for home in ways.values():
        expect_what_the_rules_say(went[home], back[str(home)], first)


def test_what_the_newest_spark_created_goes_back_as_the_rules_say(
    newer: list[Spark], tmp_path: Path
) -> None:
    first: Spark = pieces.spark_version()
    add(tmp_path, 0)
    assert run(newer[-1], str(tmp_path))[str(tmp_path)] == dict.fromkeys(SHAPES, "")
    created = writers(tmp_path)
    add(tmp_path, 1)
    end(tmp_path)
    back = run(first, f"{tmp_path}:compare")[str(tmp_path)]
    expect_what_the_rules_say(created, back, first)
    failed = {name for name, problem in back.items() if problem}
    assert failed == ({"duplicates by 6 columns, HDFS"} if newer[-1] == "4.3" else set())
