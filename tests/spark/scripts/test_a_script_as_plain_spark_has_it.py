"""What a script asks for, waits for and keeps: as in Spark, and what differs is told."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from queries.domain.protocol import KnownQuery, RunState, ScriptState
from queries.domain.scripts import TEMPORARY
from tests.spark.driver_under_test import write_rows
from tests.spark.scripts.programs import ASKING, AWAITING, NAMING, REMEMBERING
from tests.spark.scripts.script_driver import ScriptUnderTest, run_plainly

pytestmark = pytest.mark.spark


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code-of-users"
    folder.mkdir()
    programs = {"asking": ASKING, "awaiting": AWAITING, "naming": NAMING}
    for name, text in (programs | {"remembering": REMEMBERING}).items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[list[ScriptUnderTest]]:
    made = [ScriptUnderTest(tmp_path, application="job")]
    try:
        yield made
    finally:
        for driver in made:
            driver.end()


def completed(driver: ScriptUnderTest) -> None:
    """Wait until the script has ended well."""
    seen = driver.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == "0", driver.log()
    script = driver.status().script
    assert script is not None
    assert script.state is ScriptState.COMPLETED


def test_what_it_asks_of_a_context_or_a_session_and_does_not_get_is_named(
    drivers: list[ScriptUnderTest], code: Path
) -> None:
    [driver] = drivers
    driver.launch_script(code, "asking.py")
    completed(driver)
    script = driver.status().script
    assert script is not None
    asked = sorted(note.split(" requests ")[1].split(", ")[0] for note in script.notes)
    assert asked == [
        "spark.jars.packages=org.example:nothing:1.0",
        "spark.jars=/nowhere/one.jar",
        "spark.master=local[7]",
        "spark.memory.fraction=0.5",
        "spark.sql.extensions=org.example.Extensions",
    ]
    assert all("which is not applied" in note for note in script.notes)
    assert "PARTITIONS 3" in driver.log()


def test_what_waits_returns_and_raises_as_in_a_plain_run(
    drivers: list[ScriptUnderTest], code: Path
) -> None:
    [driver] = drivers
    driver.launch_script(code, "awaiting.py")
    completed(driver)
    ours, plain = (
        [line[line.index("SAID") :] for line in text.splitlines() if "SAID" in line]
        for text in (driver.log(2000), run_plainly(code / "awaiting.py"))
    )
    assert len(ours) == 9
    assert ours == plain


def test_the_memory_sink_begins_with_nothing_at_each_start(
    drivers: list[ScriptUnderTest], code: Path, tmp_path: Path
) -> None:
    write_rows(tmp_path / "in", "0.json", [{"id": number} for number in range(3)])
    [driver] = drivers
    driver.launch_script(code, "remembering.py", str(tmp_path / "in"))
    completed(driver)
    found = driver.found("kept")
    assert found is not None
    assert found.temporary == "the memory sink loses its rows when the driver ends"
    assert found.location.endswith(TEMPORARY)
    assert "REMEMBERED 3" in driver.log()
    # With the checkpoint of before it would read nothing, and have nothing to show.
    drivers.append(driver.again())
    completed(drivers[-1])
    assert "REMEMBERED 3" in drivers[-1].log()
    assert drivers[-1].found("kept") == found


def test_after_a_rewind_the_path_that_it_names_leads_to_the_new_directory(
    drivers: list[ScriptUnderTest], code: Path, tmp_path: Path
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    out.mkdir()
    for number in range(3):
        write_rows(source, f"{number}.json", [{"id": number}])
        os.utime(source / f"{number}.json", (1_000_000 + number, 1_000_000 + number))
    [driver] = drivers
    driver.launch_script(code, "naming.py", str(source), str(out))
    completed(driver)
    assert batches(out) == ["0 0", "1 1", "2 2"]
    first = driver.found("named")
    assert first is not None
    assert first.asked == first.location == f"file://{out}/cp"

    shutil.copytree(out / "cp", out / "cp.rewound")
    for log in ("offsets", "commits"):
        for name in ("2", ".2.crc"):
            (out / "cp.rewound" / log / name).unlink(missing_ok=True)
    before = sorted(str(path) for path in (out / "cp").rglob("*"))
    after = ScriptUnderTest(tmp_path, application="job", epoch=driver.epoch + 1)
    drivers.append(after)
    assert driver.spec.script is not None
    location = f"file://{out}/cp.rewound"
    known = (KnownQuery(first.number, first.identity, first.asked, location),)
    spec = replace(driver.spec, driver=after.epoch, epoch=after.epoch)
    after.spec = replace(spec, script=replace(driver.spec.script, known=known))
    after.launch()
    completed(after)
    found = after.found("named")
    assert found is not None
    assert (found.asked, found.location) == (first.asked, location)
    assert batches(out) == ["0 0", "1 1", "2 2", "2 2"]  # the batch after the rewind, again
    assert (out / "cp.rewound/commits/2").is_file()
    assert sorted(str(path) for path in (out / "cp").rglob("*")) == before
    assert {line.state for line in after.status().runs} == {RunState.ENDED}


def batches(out: Path) -> list[str]:
    """Return which batch has read which row, in order."""
    return (out / "batches").read_text().splitlines()
