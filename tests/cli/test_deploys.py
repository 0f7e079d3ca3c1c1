"""deploy and rollback: followed to the report, with the outcome as exit code."""

import json
from pathlib import Path

import pytest
from django.utils import timezone

from queries.models.definitions import Query
from queries.services.deploys.advancing import advance_all
from tests.cli.conftest import Shell
from tests.cli.test_documented import repository, steps
from tests.scenarios.deploys.way import Way
from tests.scenarios.stage import DIVIDE, Stage
from tests.services.probes.test_preflight_operations import PASSED


@pytest.fixture
def folder(shell: Shell, stage: Stage) -> Path:
    """Return a repository whose query runs; deploys go on while a command does."""
    repository(shell.folder)
    shell.env["HEADGATE_OWNER"] = "repo"
    work = shell.meanwhile

    def deploying() -> None:
        assert work is not None
        work()
        advance_all(now=timezone.now())
        if any(probe.exit is None for probe in stage.launcher.probes.values()):
            stage.launcher.answer(PASSED.dumps())

    shell.meanwhile = deploying
    shell("apply", "-f", "jobs", "--values", "values/production.yaml", "--wait")
    shell("wait", "delays", "--for", "running")
    return shell.folder


def change(folder: Path, interval: str) -> None:
    path = folder / "jobs" / "delays.yaml"
    text = path.read_text()
    path.write_text(text.replace("5 seconds", interval).replace("8 seconds", interval))


def interval(name: str = "delays") -> str:
    revision = Query.objects.get(name=name).revisions.latest("number")
    return str(revision.spec["trigger"]["interval"])


WHAT = ("-f", "jobs", "--values", "values/production.yaml")


def test_a_change_is_deployed_and_rolled_back_by_hand(
    shell: Shell, stage: Stage, folder: Path
) -> None:
    change(folder, "8 seconds")
    good = shell("deploy", *WHAT, "--canary", "delays")
    assert ": SUCCEEDED" in good.out
    assert "delays: GOOD, revision 1 → 2" in good.out
    assert interval() == "8 seconds"
    listed = json.loads(shell("get", "deploys", "-o", "json").out)
    assert [one["state"] for one in listed] == ["SUCCEEDED"]
    assert "SUCCEEDED" in shell("describe", "deploy", listed[0]["id"]).out
    shell("rollback", "delays", "--to", "1")
    assert interval() == "5 seconds"
    missing = shell("rollback", "delays", "--to", "77", code=1)
    assert "77" in missing.err


def test_a_change_that_fails_goes_back_by_itself_and_the_report_names_the_error(
    shell: Shell, stage: Stage, folder: Path
) -> None:
    change(folder, "8 seconds")
    work, failed = shell.meanwhile, list[str]()

    def failing() -> None:
        assert work is not None
        work()
        run = stage.last_run("delays")
        if run.revision.number == 2 and not run.outcome and not failed:
            stage.fail("delays", DIVIDE)
            failed.append("delays")

    shell.meanwhile = failing
    done = shell("deploy", *WHAT, code=2)
    assert ": ROLLED_BACK" in done.out
    assert "delays: ROLLED_BACK, revision 1 → 2 → 3 (as before)" in done.out
    assert Query.objects.get(name="delays").revisions.latest("number").number == 3
    lines = done.err.splitlines()
    assert len(lines) == len(set(lines)) > 2, lines
    assert "DIVIDE_BY_ZERO" in done.out
    assert interval() == "5 seconds"


def test_a_set_that_cannot_be_applied_is_not_deployed(shell: Shell, folder: Path) -> None:
    change(folder, "5 parsecs")
    done = shell("deploy", *WHAT, code=1)
    assert "5 parsecs" in done.out + done.err
    assert shell("get", "deploys", "-o", "name").out == ""


def test_the_example_deploys_what_is_merged(shell: Shell, stage: Stage, folder: Path) -> None:
    shell.env["GITHUB_STEP_SUMMARY"] = str(shell.folder / "summary.md")
    change(folder, "8 seconds")
    work, committed = shell.meanwhile, list[str]()

    def committing() -> None:
        assert work is not None
        work()
        run = stage.last_run("delays")
        if run.revision.number == 2 and run.outcome == "" and not committed:
            Way(stage).store_batches("delays", 3)
            committed.append("delays")

    shell.meanwhile = committing
    for name in ("Deploy", "Show the running queries"):
        shell.script(next(step["run"] for step in steps() if step["name"] == name))
    assert interval() == "8 seconds"
    assert "delays" in (shell.folder / "summary.md").read_text()
