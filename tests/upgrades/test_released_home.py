"""This release takes over a home that the last one made, with a driver of it that streams.

The released program is taken out of git and runs on the packages of this environment.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import pieces
from tests.faults.system import REPOSITORY, System

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.timeout(900)]

VERSION = "0.1.0"  # the release whose installations must be taken over
NAME = "taken-over"
SPEC = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate", "options": {"rowsPerSecond": "5"}}],
    "sql": "SELECT value % 3 AS third, count(*) AS n FROM ticks GROUP BY 1",
    "sink": {"format": "noop", "output_mode": "update"},
    "trigger": {"kind": "processing_time", "interval": "1 second"},
}


def git(*arguments: str) -> str:
    """Return what git says of this repository; "" where it refuses."""
    done = subprocess.run(
        ["git", "-C", REPOSITORY, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def released_commit() -> str:
    """Return the commit of the last release: its tag, or else the entry of it in CHANGELOG.md."""
    tag = f"v{VERSION}"
    tagged = git("rev-parse", "--quiet", "--verify", f"refs/tags/{tag}^{{commit}}")
    if tagged:
        return tagged
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip(f"no tag {tag} and no whole history here: git fetch --unshallow --tags")
    entered = git("log", "--reverse", "--format=%H", "-S", f"## {VERSION} (", "--", "CHANGELOG.md")
    if not entered:
        pytest.fail(f"no commit of this repository enters {VERSION} in CHANGELOG.md")
    return entered.splitlines()[0]


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """Return a folder with the released program."""
    archive, folder = tmp_path / "released.tar", tmp_path / "released"
    commit = released_commit()
    folder.mkdir()
    git("archive", f"--output={archive}", commit)
    subprocess.run(["tar", "-xf", archive, "-C", folder], timeout=120, check=True)
    return folder


@pytest.mark.guarantee("G-UPGRADE-1")
def test_a_home_of_the_last_release_is_taken_over_with_its_living_driver(
    released: Path, tmp_path: Path
) -> None:
    system = System(tmp_path / "home", pieces.free_port(), HEADGATE_DEMO="0")
    system.folder = released
    try:
        system.up()
        assert system.call("POST", "queries/", {"name": NAME, "spec": SPEC})[0] == 201
        system.verb(NAME, "start")
        system.wait("a batch under the release", lambda: system.batch(NAME) >= 1)
        before: Any = system.running(NAME)["current_run"]
        assert str(released) in Path(f"/proc/{before['pid']}/environ").read_text()
        assert "1 driver keeps streaming" in system.interrupt()

        system.folder = REPOSITORY
        system.up()
        after = system.running(NAME)["current_run"]
        assert (after["pid"], after["epoch"]) == (before["pid"], before["epoch"])
        batch = system.batch(NAME)
        system.wait("more batches of the same driver", lambda: system.batch(NAME) > batch + 1)

        system.verb(NAME, "restart")  # the driver of the release obeys, the next is of this one

        def replaced() -> Any:
            run = system.query(NAME)["current_run"]
            return run and run["epoch"] > before["epoch"] and system.running(NAME)

        system.wait("a driver of this release", replaced)
        batch = system.batch(NAME)
        system.wait("batches of it", lambda: system.batch(NAME) > batch + 1)
        batches = system.batches(NAME)
        assert batches == list(range(len(batches))), "no batch is missing or was stored twice"
    finally:
        system.close()
