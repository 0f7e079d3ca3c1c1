"""`wait`: an outcome that is known is answered at once, others at their limit."""

import signal
import subprocess

import pytest

from tests.cli.conftest import COMMAND, LIMIT_S, SOURCE, Shell
from tests.scenarios.stage import NO_SUCH_SOURCE, Stage


def test_a_query_is_waited_for_until_it_runs_and_until_it_has_stopped(
    shell: Shell, stage: Stage
) -> None:
    stage.query("delays")
    shell("start", "delays")
    for what in ("running", "first-commit"):
        assert shell("wait", "delays", "--for", what).out.startswith("delays: RUNNING")
    shell("stop", "delays")
    assert shell("wait", "delays", "--for", "stopped").out.startswith("delays: STOPPED")


def test_what_only_somebody_can_bring_about_is_answered_at_once(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    never = shell("wait", "delays", "--for", "running", code=1)
    assert "is not set to run" in never.err
    assert "headgate start delays" in never.err
    stage.launcher.obliging = False
    stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", NO_SUCH_SOURCE)
    assert stage.phase("delays") == "FAILED"
    failed = shell("wait", "delays", "--for", "running", code=2)
    assert "delays is FAILED" in failed.err
    assert "headgate logs delays" in failed.err


def test_a_restart_that_has_not_begun_is_no_run(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.look("delays")
    shell.meanwhile = None
    shell("restart", "delays")
    assert stage.phase("delays") == "RUNNING"  # of the run before
    done = shell("wait", "delays", "--for", "running", "--timeout", "1s", code=3)
    assert "Not done within 1s: delays: RUNNING" in done.err


def test_an_interrupted_wait_says_that_what_was_begun_goes_on(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    command = [*COMMAND, "wait", "delays", "--for", "stopped"]
    with subprocess.Popen(
        command, env=shell.environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("delays: ")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert err == "Interrupted. Operations in progress continue.\n"


@pytest.mark.parametrize("text", ["0", "25h"])
def test_every_wait_has_a_limit_that_can_be_read(shell: Shell, text: str) -> None:
    done = shell("wait", "delays", "--for", "stopped", f"--timeout={text}", code=64)
    assert "is not a duration up to 24h" in done.err


def test_a_log_has_each_wait_once_though_they_alternate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SOURCE))
    from headgate_cli.following import Progress

    progress = Progress()
    for wait in ("delays: its first commit", "delays: a slot", "delays: its first commit"):
        progress.tell(wait)
    assert capsys.readouterr().err.splitlines() == ["delays: its first commit", "delays: a slot"]
