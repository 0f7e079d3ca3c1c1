"""A script continues with a checkpoint of plain Spark, and plain Spark with Headgate's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queries.domain.protocol import RunState
from tests.spark.driver_under_test import wait_for, write_rows
from tests.spark.scripts.programs import MOVING
from tests.spark.scripts.script_driver import ScriptUnderTest, rows_in, run_plainly

pytestmark = pytest.mark.spark


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[list[ScriptUnderTest]]:
    made = [ScriptUnderTest(tmp_path, application="job")]
    try:
        yield made
    finally:
        for driver in made:
            driver.end()


def test_no_row_is_lost_or_doubled_on_the_way_in_and_out(
    drivers: list[ScriptUnderTest], tmp_path: Path
) -> None:
    code, source, out = tmp_path / "code-of-users", tmp_path / "in", tmp_path / "out"
    code.mkdir()
    (code / "moving.py").write_text(MOVING)
    plain = (code / "moving.py", str(source), str(out), "once")
    total = 0

    def arrive(*names: str) -> None:
        """Write files whose rows repeat the last two of those before: the state drops them."""
        nonlocal total
        for name in names:
            rows = [{"id": n, "word": f"w{n}"} for n in range(max(total - 2, 0), total + 5)]
            write_rows(source, f"{name}.json", rows)
            total += 5

    arrive("a", "b", "c")
    run_plainly(*plain)
    checkpoint = out / "checkpoint"
    identity = (checkpoint / "metadata").read_text()
    # As after a kill between the sink's commit and Spark's own: the last batch is repeated.
    (checkpoint / "commits/2").unlink()
    (checkpoint / "commits/.2.crc").unlink()

    arrive("d", "e")
    [driver] = drivers
    driver.launch_script(code, "moving.py", str(source), str(out))
    driver.wait_line("words", RunState.RUNNING)
    found = driver.found("words")
    assert found is not None
    assert found.location == f"file://{checkpoint}"
    wait_for(lambda: (checkpoint / "commits/4").exists(), "Headgate has read the new files")
    driver.assign(end=True)
    assert driver.wait_exit().exit is not None

    arrive("f")
    run_plainly(*plain)
    assert (checkpoint / "metadata").read_text() == identity
    assert sorted(row["id"] for row in rows_in(out / "rows")) == list(range(total))
