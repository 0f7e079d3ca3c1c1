"""Spark's own example scripts run unchanged, from the package that is installed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from queries.domain.protocol import RunState
from tests import pieces
from tests.spark.driver_under_test import wait_for
from tests.spark.scripts.script_driver import (
    ScriptUnderTest,
    example,
    line_server,
    running_plainly,
)

pytestmark = pytest.mark.spark

LINES = ["apache spark", "apache hadoop", "spark spark"]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[ScriptUnderTest]:
    driver = ScriptUnderTest(tmp_path, application="words")
    try:
        yield driver
    finally:
        driver.end()


Row = dict[str, str]


def batches(log: str) -> Iterator[list[Row]]:
    """Yield the rows of each batch that the console sink has printed, by their columns."""
    for part in re.split(r"Batch: \d+", log)[1:]:
        lines = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
        head, *rows = [[cell.strip() for cell in line] for line in lines] or [[]]
        yield [dict(zip(head, row, strict=True)) for row in rows if len(row) == len(head)]


def tables(log: str) -> list[set[tuple[str, ...]]]:
    """Return the rows of each batch that the console sink has printed."""
    return [{tuple(row.values()) for row in rows} for rows in batches(log)]


def counted(log: str, words: int) -> set[tuple[tuple[str, object], ...]] | None:
    """Return the newest count of each word in each of its windows, once all words are counted.

    Times are those of arrival, so windows count from the earliest.
    """
    newest: dict[tuple[str, ...], Row] = {}
    for row in (row for rows in batches(log) for row in rows):
        newest[row.get("window", ""), row.get("word") or row["sessionId"]] = row
    if sum(int(row["count"]) for row in newest.values()) != words:
        return None
    begun = min((_times(row["window"])[0] for row in newest.values() if "window" in row), default=0)
    found = set()
    for row in newest.values():
        said: dict[str, object] = dict(row)
        if "window" in row:
            said["window"] = tuple(round(at - begun) for at in _times(row["window"]))
        for name in ("start", "end"):  # of a session; the console cuts them off
            said.pop(name, None)
        found.add(tuple(sorted(said.items())))
    return found


def _times(text: object) -> list[float]:
    """Return the times in a cell of the console, in seconds."""
    found = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", str(text))
    return [datetime.fromisoformat(one).replace(tzinfo=UTC).timestamp() for one in found]


@pytest.mark.parametrize(
    ("name", "arguments", "windows"),
    [
        ("structured_network_wordcount.py", (), 1),
        ("structured_network_wordcount_windowed.py", ("10", "5"), 2),
        ("structured_network_wordcount_session_window.py", (), 1),
    ],
)
def test_a_script_on_a_socket_counts_what_a_plain_run_counts(
    driver: ScriptUnderTest, tmp_path: Path, name: str, arguments: tuple[str, ...], windows: int
) -> None:
    script, words = example(name), windows * sum(len(line.split()) for line in LINES)
    with line_server(LINES) as port:
        address = ("127.0.0.1", str(port), *arguments)
        driver.launch_script(script.parent, name, *address)
        line = driver.wait_line("", RunState.RUNNING)
        assert line.first_commit_at
        ours = wait_for(lambda: counted(driver.log(2000), words), "the words are counted")
        found = driver.found("")
        assert found is not None
        assert found.temporary == "a socket cannot send its rows again"
        driver.assign(end=True)
        seen = driver.wait_exit()
        log = tmp_path / "plain.log"
        with running_plainly(script, log, *address):
            plain = wait_for(lambda: counted(log.read_text(), words), "a plain run counts them")
    assert seen.exit is not None
    assert seen.exit.python == "0", driver.log()
    assert ours == plain
    assert len(ours) == 3 * windows  # apache, spark, hadoop


def test_what_spark_itself_refuses_of_its_examples_is_told_as_spark_tells_it(
    driver: ScriptUnderTest,
) -> None:
    """No Spark has an update mode for session windows, which this example asks for."""
    script = example("structured_sessionization.py")
    with line_server(LINES) as port:
        plain = subprocess.run(
            [sys.executable, str(script), "127.0.0.1", str(port)],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, **pieces.of_spark(), "PYSPARK_PYTHON": sys.executable},
        )
        assert plain.returncode == 1
        [refused] = re.findall(r"^\S*AnalysisException: (.*?);?$", plain.stderr, re.MULTILINE)
        driver.launch_script(script.parent, script.name, "127.0.0.1", str(port))
        driver.wait_exit()
    error = driver.status().error
    assert error is not None
    assert refused in error.message
    if condition := re.match(r"\[(\S+)\]", refused):  # Spark 3.5 has none for it
        assert error.error_class == condition[1]
