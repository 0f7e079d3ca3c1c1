"""A script of several queries gives the rows that the same script gives without Headgate."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.parquet import read_table as read_parquet

from queries.domain.protocol import AssignmentEntry, RunState, ScriptState, Want
from tests import pieces
from tests.spark.driver_under_test import holder, wait_for, write_rows
from tests.spark.scripts.programs import COUNTING, HELPER, SEVERAL, STATEFUL
from tests.spark.scripts.script_driver import ScriptUnderTest, files_in, rows_in, run_plainly

pytestmark = pytest.mark.spark

ROWS = 60


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code-of-users"
    folder.mkdir()
    (folder / "several.py").write_text(SEVERAL)
    (folder / "helper.py").write_text(HELPER)
    (folder / "counting.py").write_text(COUNTING)
    (folder / "stateful.py").write_text(STATEFUL)
    return folder


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[list[ScriptUnderTest]]:
    made = [ScriptUnderTest(tmp_path, application="job")]
    try:
        yield made
    finally:
        for driver in made:
            driver.end()


def input_of(folder: Path, files: int = 3) -> Path:
    for name, word in (("left", "l"), ("right", "r")):
        for file in range(files):
            rows = [
                {
                    "id": number,
                    "word": f"{word}{number}",
                    "at": f"2026-03-01T12:00:{number % 60:02}Z",
                }
                for number in range(file, ROWS, files)
            ]
            write_rows(folder / name, f"{file}.json", rows)
    return folder


def results(out: Path) -> dict[str, list[str]]:
    found = {
        name: sorted(json.dumps(row, sort_keys=True) for row in rows_in(out / name))
        for name in ("loud", "joined")
    }
    kept = [line for file in out.glob("batches-*") for line in file.read_text().splitlines()]
    files = (str(out / "table" / name) for name in files_in(out / "table"))
    table = [row for file in files for row in read_parquet(file).to_pylist()]
    words = sorted(json.dumps(row, sort_keys=True, default=str) for row in table)
    return found | {"kept": sorted(kept), "table": words}


@pytest.mark.promise
def test_its_rows_are_those_of_a_plain_run_and_it_is_completed(
    drivers: list[ScriptUnderTest], code: Path, tmp_path: Path
) -> None:
    source = input_of(tmp_path / "in")
    ours, plain = tmp_path / "ours", tmp_path / "plain"
    for folder in (ours, plain):
        folder.mkdir()
    [driver] = drivers
    driver.launch_script(code, "several.py", str(source), str(ours), "and", "more")
    seen = driver.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == "0", driver.log()
    status = driver.status()
    assert status.script is not None
    assert status.script.state is ScriptState.COMPLETED
    assert {one.name for one in status.found} == {"loud", "kept", "joined", "table"}
    assert {line.state for line in status.runs} == {RunState.ENDED}
    assert "program says ['joined', 'kept', 'loud', 'table'] ['and', 'more']" in driver.log()
    notes = " ".join(status.script.notes)
    assert "spark.master=local[3]" in notes
    assert "spark.executor.memory=3g" in notes
    assert "shuffle" not in notes
    assert "appName" not in notes

    run_plainly(code / "several.py", str(source), str(plain))
    assert results(ours) == results(plain)
    assert len(results(ours)["joined"]) == ROWS
    assert len(results(ours)["table"]) == ROWS


def test_killed_in_mid_batch_it_goes_on_without_loss(
    drivers: list[ScriptUnderTest], code: Path, tmp_path: Path
) -> None:
    source, ours, plain = tmp_path / "in", tmp_path / "ours", tmp_path / "plain"
    for file in range(8):
        rows = [{"id": number, "word": f"w{number}"} for number in range(file * 5, file * 5 + 5)]
        write_rows(source, f"{file}.json", rows)
    [driver] = drivers
    driver.launch_script(code, "counting.py", str(source), str(ours), "0.2")
    driver.wait_line("counts", RunState.RUNNING)
    location = f"file://{tmp_path}/checkpoints/counts"
    found = driver.found("counts")
    assert found is not None
    assert (found.location, found.temporary) == (location, "")
    jvm = driver.status().jvm_pid
    assert holder(location) == jvm
    place = tmp_path / "checkpoints/counts"

    def in_flight() -> bool:
        begun, done = (
            {int(file.name) for file in (place / name).glob("[0-9]*")}
            for name in ("offsets", "commits")
        )
        return len(done) >= 1 and bool(begun - done)

    wait_for(in_flight, "a batch is in flight")
    driver.kill_python(signal.SIGKILL)
    assert driver.wait_exit().exit is not None
    assert len(list((place / "commits").glob("[0-9]*"))) < 8, "it was killed too late"

    after = driver.again()
    drivers.append(after)
    wait_for(lambda: len(rows_in(ours / "rows")) == 40, "all rows are there")
    owner = json.loads((tmp_path / "checkpoints/.headgate/counts.held/owner.json").read_text())
    assert owner["epoch"] == after.epoch
    after.assign(end=True)
    seen = after.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == "0", after.log()

    run_plainly(code / "counting.py", str(source), str(plain), "0", "plain")
    expected, got = (
        sorted(json.dumps(row, sort_keys=True) for row in rows_in(folder / "rows"))
        for folder in (plain, ours)
    )
    assert got == expected


@pytest.mark.skipif(
    pieces.spark_version() == "3.5",
    reason="Spark 3.5 lacks transformWithState, which 4.0 and newer have",
)
def test_state_of_its_own_in_pandas_is_kept_from_batch_to_batch(
    drivers: list[ScriptUnderTest], code: Path, tmp_path: Path
) -> None:
    source, ours, plain = tmp_path / "in", tmp_path / "ours", tmp_path / "plain"
    for file in range(3):
        words = [{"id": number, "word": f"w{number % 3}"} for number in range(file, file + 5)]
        write_rows(source, f"{file}.json", words)
    for folder in (ours, plain):
        folder.mkdir()
    [driver] = drivers
    driver.launch_script(code, "stateful.py", str(source), str(ours))
    seen = driver.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == "0", driver.log()
    run_plainly(code / "stateful.py", str(source), str(plain))
    assert (ours / "counted").read_text() == (plain / "counted").read_text()


def test_the_control_plane_gives_it_rows_and_stops_one_run(
    drivers: list[ScriptUnderTest], code: Path, tmp_path: Path
) -> None:
    source, ours = tmp_path / "in", tmp_path / "ours"
    write_rows(source, "0.json", [{"id": 1, "word": "w"}])
    [driver] = drivers
    driver.launch_script(code, "counting.py", str(source), str(ours), "0")
    driver.wait_line("counts", RunState.RUNNING)
    found = driver.found("counts")
    assert found is not None
    driver.entries[70] = AssignmentEntry(
        query=7,
        name="job/counts",
        run=70,
        epoch=170,
        spec={"kind": "python"},
        checkpoint=found.location,
        pool="",
        want=Want.RUN,
        found=found.number,
    )
    driver.assign()
    adopted = driver.wait_run(70, RunState.RUNNING)
    assert adopted.query == 7
    assert not any(line.run == -found.number for line in driver.status().runs)
    driver.request_end(70, Want.DRAIN)
    assert driver.wait_run(70, RunState.ENDED).asked_for is Want.DRAIN
