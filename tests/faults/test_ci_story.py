"""The story of docs/ci.md, command by command, on a whole system with a real Spark."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.system import REPOSITORY, System

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.timeout(1500)]

PAGE = (REPOSITORY / "docs" / "ci.md").read_text()
#: How long one chapter of it may take on a busy machine.
LIMIT_S = 900


class Reader:
    """Somebody who types the commands of the page, chapter by chapter."""

    def __init__(self, folder: Path, system: System) -> None:
        self._folder = folder
        command = folder / "bin" / "headgate"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m headgate_cli "$@"\n')
        command.chmod(0o755)
        self._environment = {
            "PATH": f"{command.parent}:/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHONPATH": str(REPOSITORY / "cli"),
            "LANG": "C.UTF-8",
            "HEADGATE_URL": system.base,
            "HEADGATE_TOKEN": system.token,
            **{
                f"GIT_{who}_{what}": value
                for who in ("AUTHOR", "COMMITTER")
                for what, value in (("NAME", "Aude"), ("EMAIL", "aude@example.org"))
            },
        }

    def types(self, chapter: str) -> str:
        """Run what stands in a chapter; return what is printed."""
        text = PAGE.split(f"\n## {chapter}\n")[1].split("\n## ")[0]
        commands = re.findall(r"^```sh run\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        assert commands, chapter
        inside = self._folder / "counting"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
            cwd=inside if inside.exists() else self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"{chapter}:\n{done.stdout}"
        return done.stdout


def newest_deploy(system: System) -> Any:
    """Return the report of the last deploy."""
    [newest, *_] = system.get("deploys/")["results"]
    return system.get(f"deploys/{newest['id']}/")


def test_the_story_of_a_repository_from_its_first_apply_to_a_prune(
    shared_system: System, tmp_path: Path
) -> None:
    system = shared_system
    reader = Reader(tmp_path / "reader", system)
    reader.types("A folder of manifests")

    said = reader.types("Preview and apply")
    assert "21 created" in said
    assert "21 unchanged" in said
    assert all(system.query(f"count-{number:02d}")["phase"] == "RUNNING" for number in range(1, 20))
    assert system.batch("totals") >= 0

    before = system.batch("count-01")
    reader.types("A good change")
    report = newest_deploy(system)
    assert report["state"] == "SUCCEEDED", report
    canary, others = report["waves"]
    assert [one["name"] for one in canary["queries"]] == ["count-01"]
    assert [one["name"] for one in others["queries"]] == ["count-02"]
    assert canary["queries"][0]["first_batch"] > before
    assert system.query("count-03")["revision"] == 1, "what did not change was left alone"

    reader.types("A bad change is rolled back")
    report = newest_deploy(system)
    assert report["state"] == "ROLLED_BACK", report
    assert "DIVIDE_BY_ZERO" in str(report["waves"])
    assert "value % 5" in system.query("count-01")["spec"]["sql"]

    reader.types("A change that cannot be rolled back")
    report = newest_deploy(system)
    assert report["state"] == "FAILED", report
    [offer] = report["offers"]
    assert (offer["act"], offer["query"]) == ("rewind", "totals")
    assert system.query("totals")["phase"] == "RUNNING", "what runs goes on"

    said = reader.types("Delete a query")
    assert "1 to-be-pruned" in said
    system.wait("the end of count-19", lambda: system.call("GET", "queries/count-19/")[0] == 404)
    assert system.query("count-18")["phase"] == "RUNNING"
