"""An application that runs a script: started, waited for, read and followed."""

from typing import Any

import pytest
from django.utils import timezone

from queries.domain.states import StopMode
from queries.models.applications import Application
from queries.models.drivers import Driver
from queries.services.supervision import application_operations as verbs
from tests.cli.conftest import Shell
from tests.scenarios.stage import NO_SUCH_SOURCE, Stage


@pytest.fixture
def scripts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stage with an application `job` that runs a script, and whose logs are read."""
    monkeypatch.setattr("queries.api.supervision.history.launcher", lambda: stage.launcher)
    script = {"file": "/code/job.py"}
    stage.application("job", kind="script", script=script, python_path=["/code"])
    return stage


def test_it_is_started_restarted_and_stopped_and_the_outcome_is_waited_for(
    shell: Shell, scripts: Stage
) -> None:
    assert "start of job: DONE" in shell("start", "--application", "job", "--wait").err
    waited = ("wait", "--application", "job", "--for")
    assert shell(*waited, "running").out.startswith("job: RUNNING")
    assert "restart of job: DONE" in shell("restart", "--application", "job", "--wait").err
    scripts.launcher.finds("job", "counts")
    scripts.look("job")
    scripts.commit("job/counts")
    assert shell(*waited, "first-commit").out.startswith("job: RUNNING")
    assert "stop of job: DONE" in shell("stop", "--application", "job", "--wait").err
    assert shell(*waited, "stopped").out.startswith("job: STOPPED")


def test_a_first_commit_takes_each_query_of_it(shell: Shell, scripts: Stage) -> None:
    shell("start", "--application", "job", "--wait")
    waited = ("wait", "--application", "job", "--for", "first-commit", "--timeout", "2s")
    assert "Not done within 2s: job: RUNNING" in shell(*waited, code=3).err  # it has no query yet
    for name in ("one", "two"):
        scripts.launcher.finds("job", name)
    scripts.look("job")
    scripts.commit("job/one")
    assert "Not done within 2s" in shell(*waited, code=3).err
    scripts.commit("job/two")
    assert shell(*waited).out.startswith("job: RUNNING")


def test_what_only_somebody_can_bring_about_is_answered_at_once(
    shell: Shell, scripts: Stage
) -> None:
    waited = ("wait", "--application", "job", "--for", "running")
    never = shell(*waited, code=1)
    assert "is not set to run" in never.err
    assert "headgate start --application job" in never.err
    shell("start", "--application", "job", "--wait")
    scripts.launcher.script_fails("job", NO_SUCH_SOURCE)
    scripts.look("job")
    failed = shell(*waited, code=2)
    assert "job is FAILED" in failed.err
    assert "headgate logs --application job" in failed.err
    scripts.query("delays")
    assert (
        "runs queries, not a script"
        in shell("wait", "--application", "delays", "--for", "running", code=1).err
    )
    assert "Name what to wait for" in shell("wait", "--for", "running", code=64).err


def test_it_is_described_with_its_question_its_queries_and_operations(
    shell: Shell, scripts: Stage
) -> None:
    shell("start", "--application", "job", "--wait")
    scripts.launcher.finds("job", "counts")
    scripts.look("job")
    scripts.launcher.asks("job", "totals", scripts.row("job/counts").pk)
    scripts.look("job")
    told = shell("describe", "application", "job").out
    assert "identity: name:totals" in told
    assert "- job/counts" in told
    queries, operations = told.partition("\nQueries:")[2].split("\nOperations:")
    assert "job/counts" in queries
    assert "start" in operations


def test_its_log_is_followed_over_restarts_until_it_runs_no_more(
    shell: Shell, scripts: Stage
) -> None:
    assert "has not run yet" in shell("logs", "--application", "job", code=1).err
    shell("start", "--application", "job", "--wait")
    first = Driver.objects.latest("epoch").epoch
    scripts.launcher.log("job", first, "one\ntwo")
    assert shell("logs", "--application", "job", "--tail", "1").out == "two\n"
    work, rounds = shell.meanwhile, iter(range(10_000))
    job = Application.objects.get(name="job")

    def by() -> dict[str, Any]:
        return {"actor": "olga", "now": timezone.now()}

    def more() -> None:
        assert work is not None
        work()
        passed = next(rounds)
        if passed == 40:
            scripts.launcher.log("job", first, "one\ntwo\nthree")
        if passed == 80:
            verbs.request_application_restart(application=job, **by())
        newest = Driver.objects.latest("epoch").epoch
        if newest != first:
            scripts.launcher.log("job", newest, "four")
        if passed == 200:
            mode = StopMode.GRACEFUL
            verbs.request_application_stop(application=job, mode=mode, **by())

    shell.meanwhile = more
    followed = shell("logs", "--application", "job", "-f", "--timeout", "100s")
    assert followed.out.splitlines() == ["one", "two", "three", "four"]
    assert "(driver " in followed.err


def test_logs_name_one_thing(shell: Shell, scripts: Stage) -> None:
    assert "Exactly one log is required" in shell("logs", code=64).err
    assert (
        "Exactly one log is required"
        in shell("logs", "delays", "--application", "job", code=64).err
    )
