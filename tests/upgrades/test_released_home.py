"""This release takes over a home that the last one made: a driver of it that streams, a query that
failed as often as its policy allows with its incident, and an alert rule about such incidents.

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
FAILING = "fails-at-once"
#: Every batch with a row fails in the same way.
FAILING_SPEC = {
    **SPEC,
    "sql": "SELECT 1 / (value - value) AS n FROM ticks",
    "sink": {"format": "noop", "output_mode": "append"},
}
POLICY = {"policy": {"poison_limit": 2, "base_delay_s": 1}}
#: What an admin set up: a rule about the release's kind of incident.
RULE = """
from django.utils import timezone
from queries.models.alerts import AlertRule
made = {"created_at": timezone.now(), "created_by": "admin"}
AlertRule.objects.create(name="nights", selector={"kinds": ["broken", "disk"]}, **made)
"""


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


def incident(system: System) -> Any:
    """Return the failing query's open incident, None before it is opened."""
    found = system.get(f"incidents/?state=OPEN&query={FAILING}")["results"]
    return found[0] if found else None


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
        failing = {"name": FAILING, "spec": FAILING_SPEC, "application_spec": POLICY}
        assert system.call("POST", "queries/", failing)[0] == 201
        system.verb(FAILING, "start")
        system.manage("shell", "-c", RULE)
        system.wait("a batch under the release", lambda: system.batch(NAME) >= 1)
        system.wait("a BROKEN query", lambda: system.query(FAILING)["phase"] == "BROKEN")
        opened = system.wait("its incident", lambda: incident(system))
        assert opened["kind"] == "broken"
        before: Any = system.running(NAME)["current_run"]
        assert str(released) in Path(f"/proc/{before['pid']}/environ").read_text()
        assert "1 driver keeps streaming" in system.interrupt()

        system.folder = REPOSITORY
        system.up()
        after = system.running(NAME)["current_run"]
        assert (after["pid"], after["epoch"]) == (before["pid"], before["epoch"])
        batch = system.batch(NAME)
        system.wait("more batches of the same driver", lambda: system.batch(NAME) > batch + 1)
        body = system.query(FAILING)
        assert (body["phase"], body["restart_block"]) == ("ON_HOLD", "ON_HOLD")
        assert system.get("alert-rules/nights/")["selector"]["kinds"] == ["on-hold", "disk"]

        def watched() -> Any:
            seen = incident(system)
            return seen if seen and seen["seen_at"] > opened["seen_at"] else None

        same = system.wait("a look at the incident", watched)
        assert (same["id"], same["kind"]) == (opened["id"], "on-hold")
        assert same["occurrence"] == opened["occurrence"]
        assert len(system.get(f"incidents/?query={FAILING}")["results"]) == 1

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
