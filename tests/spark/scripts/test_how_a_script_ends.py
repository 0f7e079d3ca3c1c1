"""How scripts end, and what a driver does with those that misbehave."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queries.domain.protocol import SCRIPT_FAILED, RunState, ScriptState
from tests.spark.driver_under_test import wait_for
from tests.spark.scripts.programs import BEHAVING
from tests.spark.scripts.script_driver import ScriptUnderTest

pytestmark = pytest.mark.spark


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[ScriptUnderTest]:
    driver = ScriptUnderTest(tmp_path, application="job")
    try:
        yield driver
    finally:
        driver.end()


def launch(driver: ScriptUnderTest, how: str) -> None:
    folder = driver.home / "code-of-users" / "pkg"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "behaving.py").write_text(BEHAVING)
    driver.launch_script(folder.parent, "", how, module="pkg.behaving")


def test_an_exit_code_is_a_failure_of_the_script(driver: ScriptUnderTest) -> None:
    launch(driver, "exit")
    seen = driver.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == str(SCRIPT_FAILED)
    error = driver.status().error
    assert error is not None
    assert error.root_cause == "The script ended with exit code 3."


def test_an_exception_is_told_with_its_place(driver: ScriptUnderTest) -> None:
    launch(driver, "raise")
    driver.wait_exit()
    status = driver.status()
    assert status.error is not None
    assert status.error.type_name == "RuntimeError"
    assert "pkg/behaving.py" in status.error.message
    assert 'raise RuntimeError("the program is at fault")' in driver.log()


@pytest.mark.promise
def test_queries_go_on_after_the_script_has_returned_and_a_stop_drains_them(
    driver: ScriptUnderTest,
) -> None:
    launch(driver, "returns")
    driver.wait_script(ScriptState.RETURNED)
    driver.wait_line("first", RunState.RUNNING)
    driver.assign(end=True)
    seen = driver.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == "0", driver.log()
    assert [line.state for line in driver.status().runs] == [RunState.ENDED]


def test_a_script_that_does_not_listen_is_ended_after_its_queries(driver: ScriptUnderTest) -> None:
    launch(driver, "deaf")
    driver.wait_line("first", RunState.RUNNING)
    driver.assign(end=True)
    seen = driver.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == "0"
    assert "the script continues although its queries have ended" in driver.log()


def test_a_second_query_without_a_name_is_refused_with_the_line_to_add(
    driver: ScriptUnderTest,
) -> None:
    launch(driver, "unnamed")
    driver.wait_line("named", RunState.RUNNING)
    assert len(driver.status().found) == 2
    assert 'Add .queryName("…") with a unique name before its .start()' in driver.log()


def test_a_path_of_a_clusters_file_system_is_refused_with_the_uri_to_write(
    driver: ScriptUnderTest,
) -> None:
    launch(driver, "elsewhere")
    driver.wait_line("here", RunState.RUNNING)
    assert len(driver.status().found) == 1
    refused = [line for line in driver.log().splitlines() if "REFUSED" in line]
    assert len(refused) == 3, refused
    for line, write in zip(refused, ("/etl/ck", "/FOLDER/ck", "/etl/ck"), strict=True):
        assert f"Write hdfs://nn:9{write}" in line


def test_a_query_that_failed_and_is_not_started_again_ends_all(driver: ScriptUnderTest) -> None:
    launch(driver, "swallows")
    driver.wait_line("bad", RunState.FAILED)
    seen = driver.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == str(SCRIPT_FAILED)
    status = driver.status()
    assert status.error is not None
    assert "this batch is none" in status.error.root_cause
    assert status.script is not None
    assert status.script.failed_batch == 0


def test_a_query_that_the_script_starts_again_goes_on(driver: ScriptUnderTest) -> None:
    launch(driver, "again")
    driver.wait_line("bad", RunState.RUNNING)
    numbers = [one.number for one in driver.status().found]
    assert numbers == [1, 2, 3, 4]


def test_a_start_through_the_jvm_is_ended_and_told(driver: ScriptUnderTest) -> None:
    launch(driver, "past")
    driver.wait_line("met", RunState.RUNNING)

    def look() -> str | None:
        script = driver.status().script
        notes = " ".join(script.notes) if script else ""
        return notes if "stranger was started directly through the JVM" in notes else None

    wait_for(look, "the stranger is told of")
    assert {one.name for one in driver.status().found} == {"met"}


def test_a_query_that_the_script_stops_has_ended_cleanly(driver: ScriptUnderTest) -> None:
    launch(driver, "stops")
    seen = driver.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == "0", driver.log()
    status = driver.status()
    assert status.script is not None
    assert status.script.state is ScriptState.COMPLETED
    assert [(line.state, line.error) for line in status.runs] == [(RunState.ENDED, None)]
