"""An author answers in a shell which query it is that a script starts under another identity."""

import json

import pytest

from queries.models.applications import Script
from tests.cli.conftest import Shell
from tests.scenarios.stage import Stage


@pytest.fixture
def asked(stage: Stage, shell: Shell) -> Stage:
    """Return a stage on which the script of `job` is held: `totals` came, `job/counts` went."""
    script = {"file": "/code/job.py"}
    stage.application("job", kind="script", script=script, python_path=["/code"])
    shell("start", "--application", "job", "--wait")
    stage.launcher.finds("job", "counts")
    stage.look("job")
    stage.launcher.asks("job", "totals", stage.row("job/counts").pk)
    stage.look("job")
    assert Script.objects.get().question
    return stage


def test_it_is_the_one_that_went(shell: Shell, asked: Stage) -> None:
    number = asked.row("job/counts").pk
    told = shell("answer", "application/job", "--same-as", "query/job/counts")
    assert told.out == '"totals" is job/counts. Script job continues.\n'
    assert asked.row("job/totals").pk == number
    assert "is not waiting for an answer" in shell("answer", "job", "--another", code=1).err


def test_it_is_another(shell: Shell, asked: Stage) -> None:
    told = json.loads(shell("answer", "job", "--another", "-o", "json").out)
    assert told["script"]["question"] is None
    assert asked.row("job/counts").name == "job/counts"


def test_the_question_is_asked_where_nothing_is_said(shell: Shell, asked: Stage) -> None:
    for arguments in ((), ("--another", "--same-as", "job/counts")):
        told = shell("answer", "job", *arguments, code=64).err
        assert 'Is "totals" one of job/counts, or another query?' in told
        assert "--another" in told
    assert Script.objects.get().question


def test_what_does_not_fit_is_refused(shell: Shell, asked: Stage) -> None:
    shell("answer", "job", "--same-as", "job/nothing", code=1)
    old = shell("answer", "job", "--another", "--identity", "name:sums", code=1)
    assert "Error" in old.err
    assert Script.objects.get().question
    shell("answer", "job", "--another", "--identity", "name:totals")
