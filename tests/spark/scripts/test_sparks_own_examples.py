"""Spark's own example scripts run unchanged, from the package that is installed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queries.domain.protocol import RunState
from tests.spark.driver_under_test import wait_for
from tests.spark.scripts.script_driver import ScriptUnderTest, example, line_server

pytestmark = pytest.mark.spark

LINES = ["apache spark", "apache hadoop", "spark spark"]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[ScriptUnderTest]:
    driver = ScriptUnderTest(tmp_path, application="words")
    try:
        yield driver
    finally:
        driver.end()


def tables(log: str) -> list[set[tuple[str, ...]]]:
    """Return the rows of each batch that the console sink has printed."""
    found = []
    for part in re.split(r"Batch: \d+", log)[1:]:
        cells = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
        found.append({tuple(cell.strip() for cell in row) for row in cells[1:]})
    return found


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("structured_network_wordcount.py", (), {("apache", "2"), ("spark", "3"), ("hadoop", "1")}),
        ("structured_network_wordcount_windowed.py", ("10", "5"), None),
        ("structured_network_wordcount_session_window.py", (), None),
    ],
)
def test_a_script_on_a_socket_runs_as_it_is(
    driver: ScriptUnderTest,
    name: str,
    arguments: tuple[str, ...],
    expected: set[tuple[str, ...]] | None,
) -> None:
    script = example(name)
    with line_server(LINES) as port:
        driver.launch_script(script.parent, name, "127.0.0.1", str(port), *arguments)
        line = driver.wait_line("", RunState.RUNNING)
        assert line.first_commit_at

        def look() -> set[tuple[str, ...]] | None:
            for rows in tables(driver.log(2000)):
                words = {row[1] if expected is None else row[0] for row in rows if len(row) > 1}
                if expected is not None and rows >= expected:
                    return rows
                if expected is None and words & {"apache"} | {row[0] for row in rows} & {"apache"}:
                    return rows
            return None

        wait_for(look, "the words are counted")
        found = driver.found("")
        assert found is not None
        assert found.temporary == "a socket cannot send its rows again"
        driver.assign(end=True)
        seen = driver.wait_exit()
    assert seen.exit is not None
    assert seen.exit.python == "0", driver.log()


def test_what_spark_itself_refuses_of_its_examples_is_told_as_spark_tells_it(
    driver: ScriptUnderTest,
) -> None:
    """Spark 4.3 has no update mode for session windows, which this example asks for."""
    script = example("structured_sessionization.py")
    refused = "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION"
    with line_server(LINES) as port:
        plain = subprocess.run(
            [sys.executable, str(script), "127.0.0.1", str(port)],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        assert plain.returncode == 1
        assert refused in plain.stderr
        driver.launch_script(script.parent, script.name, "127.0.0.1", str(port))
        driver.wait_exit()
    error = driver.status().error
    assert error is not None
    assert error.error_class == refused
