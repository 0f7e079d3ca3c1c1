"""A script within bubblewrap's walls finds its folder, its code and its checkpoints."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from queries.domain.hosts import Mode
from queries.domain.protocol import RunState
from tests.spark.driver_under_test import holder, wait_for, write_rows
from tests.spark.scripts.programs import COUNTING
from tests.spark.scripts.script_driver import ScriptUnderTest, rows_in

pytestmark = [pytest.mark.walls, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[ScriptUnderTest]:
    driver = ScriptUnderTest(tmp_path, application="job", walls=Mode.BUBBLEWRAP)
    try:
        yield driver
    finally:
        driver.end()


def test_it_runs_and_its_checkpoint_outlives_it(driver: ScriptUnderTest, tmp_path: Path) -> None:
    code, data = tmp_path / "code-of-users", tmp_path / "data"
    code.mkdir()
    (code / "counting.py").write_text(COUNTING)
    write_rows(data / "in", "0.json", [{"id": 1, "word": "w"}])
    outside = (f"file://{tmp_path}",)
    driver.spec = replace(driver.spec, data_roots=(f"file://{data}",), own_folders=outside)
    driver.launch_script(code, "counting.py", str(data / "in"), str(data), "0")
    driver.wait_line("counts", RunState.RUNNING)
    wait_for(lambda: rows_in(data / "rows"), "the row is written")
    assert holder(f"file://{tmp_path}/checkpoints/counts") is not None
    driver.assign(end=True)
    seen = driver.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == "0", driver.log()
    assert (tmp_path / "checkpoints/counts/commits/0").exists()
    assert (tmp_path / "checkpoints/.work").is_dir()
