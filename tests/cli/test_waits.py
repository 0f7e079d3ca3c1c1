"""`wait`: an outcome that is known is answered at once, others at their limit."""

import signal
import subprocess

import pytest

from queries.domain.protocol import RunError
from queries.models.drivers import Run
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
    assert "in the background" not in done.err


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
    from headgate_cli.following import ProgressLine

    progress = ProgressLine()
    for wait in ("delays: its first commit", "delays: a slot", "delays: its first commit"):
        progress.report(wait)
    assert capsys.readouterr().err.splitlines() == ["delays: its first commit", "delays: a slot"]


def test_a_run_with_a_parameter_reads_it_as_the_type_of_its_default(
    shell: Shell, stage: Stage
) -> None:
    stage.query("delays", sql="SELECT value FROM flights WHERE value > :low", params={"low": 1})
    assert (
        "has a different type than the default"
        in shell("run", "delays", "--param", "low=x", code=1).err
    )
    assert "no value" in shell("run", "delays", "--param", "low", code=64).err
    assert "requested" in shell("run", "delays", "--param", "low=5").out
    assert stage.row("delays").params == {"low": 5}


def test_a_run_that_goes_on_after_the_limit_ends_with_code_3(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    late = shell("run", "delays", "--follow", "--timeout", "1s", code=3)
    assert "Not done within 1s" in late.err


@pytest.mark.parametrize(
    ("error", "code", "end"), [(None, 0, "COMPLETED"), (NO_SUCH_SOURCE, 2, "FAILED")]
)
def test_a_run_is_followed_to_its_end(
    shell: Shell, stage: Stage, error: RunError | None, code: int, end: str
) -> None:
    stage.query("backfill", trigger={"kind": "available_now"})
    work = shell.meanwhile
    assert work is not None

    def work_to_the_end() -> None:
        work()
        for run in Run.objects.filter(outcome="", first_commit_at__isnull=False):
            if error is not None:
                stage.launcher.fail_run(run.pk, error)
            else:
                stage.launcher.end_run(run.pk)
            stage.look()

    shell.meanwhile = work_to_the_end
    done = shell("run", "backfill", "--follow", code=code)
    assert done.out.startswith(f"backfill: {end}. ")
