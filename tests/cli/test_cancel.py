"""cancel: an operation or a deploy that is under way ends, and Ctrl-C says how."""

import json
import signal
import subprocess
from typing import Any

import pytest

from queries.models.deploys import Deploy
from queries.models.history import Operation
from tests.cli.conftest import COMMAND, LIMIT_S, Done, Shell
from tests.cli.test_deploys import WHAT, change, folder, interval
from tests.scenarios.stage import Stage

__all__ = ["folder"]


@pytest.fixture
def deploying(shell: Shell, stage: Stage, folder: Any) -> Deploy:
    """Return a deploy that waits for batches that never come."""
    change(folder, "8 seconds")
    shell("deploy", *WHAT, "--batches", "1000", "--no-wait")
    work = shell.meanwhile
    assert work is not None
    row = Deploy.objects.get()
    while row.stage != "judge":
        work()
        row.refresh_from_db()
    assert interval() == "8 seconds"
    return row


def test_a_cancelled_deploy_takes_back_what_it_has_written(shell: Shell, deploying: Deploy) -> None:
    done = shell("cancel", f"deploy/{deploying.uuid}", "--wait")
    assert f"Deploy {deploying.uuid}: CANCELLED" in done.out
    assert interval() == "5 seconds"
    again = shell("cancel", str(deploying.uuid), code=1)
    assert "The deploy has ended: CANCELLED" in again.err


def test_a_cancel_that_is_not_waited_for_says_where_to_look(
    shell: Shell, deploying: Deploy
) -> None:
    shell.meanwhile = None
    done = shell("cancel", str(deploying.uuid))
    assert f"headgate describe deploy {deploying.uuid}" in done.out
    assert shell("cancel", str(deploying.uuid), "-o", "name").out == f"deploy/{deploying.uuid}\n"
    told = json.loads(shell("cancel", str(deploying.uuid), "-o", "json").out)
    assert told["cancelled_by"] == "aude"
    timed = shell("cancel", str(deploying.uuid), "--wait", "--timeout", "1s", code=3)
    assert "Not done within 1s" in timed.err


def test_a_deploy_that_ended_otherwise_after_a_cancel_is_a_failure(
    shell: Shell, stage: Stage, deploying: Deploy
) -> None:
    """Somebody has edited what the deploy wrote: that stays, and the deploy is FAILED."""
    stage.revise("delays", trigger={"kind": "processing_time", "interval": "9 seconds"})
    done = shell("cancel", str(deploying.uuid), "--wait", code=2)
    assert f"Deploy {deploying.uuid}: FAILED" in done.out
    assert interval() == "9 seconds"


def test_a_preflight_is_cancelled_and_a_start_is_not(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    shell.meanwhile = None  # nobody works on it
    asked = subprocess.Popen(
        [*COMMAND, "preflight", "delays"],
        env=shell.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with asked:
        assert asked.stderr is not None
        assert "preflight of delays" in asked.stderr.readline()
        operation = Operation.objects.get(verb="preflight")
        done = shell("cancel", f"operation/{operation.uuid}")
        assert done.out == f"preflight of delays: CANCELLED, operation {operation.uuid}\n"
        asked.communicate(timeout=LIMIT_S)
    assert asked.returncode == 2  # who waited for it is told
    shell("start", "delays")
    start = Operation.objects.get(verb="start")
    refused = shell("cancel", str(start.uuid), code=1)
    assert "cannot be cancelled" in refused.err
    assert "What to do: Request the opposite instead." in refused.err


def test_what_is_neither_an_operation_nor_a_deploy_is_refused(shell: Shell) -> None:
    unknown = shell("cancel", "8a4b5c3e-0000-4000-8000-000000000000", code=1)
    assert "does not exist" in unknown.err
    assert (
        "This deploy does not exist"
        in shell("cancel", "deploy/8a4b5c3e-0000-4000-8000-000000000000", code=1).err
    )
    for name in ("delays", "query/delays", "query/8a4b5c3e-0000-4000-8000-000000000000"):
        refused = shell("cancel", name, code=64)
        assert f"{name} is not a valid operation or deploy ID" in refused.err
        assert "headgate get operations --open" in refused.err


def test_ctrl_c_says_that_the_deploy_goes_on_and_how_to_cancel_it(
    shell: Shell, stage: Stage, folder: Any
) -> None:
    change(folder, "8 seconds")
    done = interrupted(shell, "deploy", *WHAT, "--batches", "1000", after="RUNNING")
    row = Deploy.objects.get()
    assert row.ended_at is None
    assert (
        f"deploy/{row.uuid} continues. To cancel it: headgate cancel deploy/{row.uuid}"
    ) in done.err
    assert done.code == 130
    shell("cancel", f"deploy/{row.uuid}", "--wait")


def interrupted(shell: Shell, *arguments: str, after: str) -> Done:
    """Run a command, press Ctrl-C once it has said a word, and return how it ended."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env=shell.environment(),
        cwd=shell.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = ""
        while after not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
            if shell.meanwhile:
                shell.meanwhile()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    return Done(process.returncode, out, said + err)


def test_operations_and_deploys_are_listed_and_described(
    shell: Shell, stage: Stage, deploying: Deploy
) -> None:
    def names(*asked: str) -> list[str]:
        return shell("get", *asked, "-o", "name").out.split()

    shell.meanwhile = None  # what is open stays open
    deploy = [f"deploy/{deploying.uuid}"]
    assert names("deploys", "--state", "RUNNING", "--owner", "repo", "--query", "delays") == deploy
    assert names("deploys", "--state", "SUCCEEDED") == []
    assert "stage:" in shell("describe", "deploy", deploy[0]).out
    ended = names("operations", "--ended", "--query", "delays")
    of_query = Operation.objects.filter(query__name="delays").exclude(outcome="")
    assert set(ended) == {f"operation/{row.uuid}" for row in of_query}
    assert ended
    still = {f"operation/{row.uuid}" for row in Operation.objects.filter(outcome="")}
    assert set(names("operations", "--open")) == still
    assert "verb:" in shell("describe", "operation", ended[0]).out
