"""`logs`: the end of a driver's log, and what comes after it."""

import sys

import pytest

from queries.models.drivers import Driver
from tests.cli.conftest import SOURCE, Shell
from tests.scenarios.stage import Stage


@pytest.fixture
def logged(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stage whose query runs, and whose logs the server reads."""
    monkeypatch.setattr("queries.api.supervision.history.launcher", lambda: stage.launcher)
    stage.query("delays")
    stage.start("delays")
    stage.look("delays")
    return stage


def write(stage: Stage, *lines: str) -> None:
    epoch = Driver.objects.latest("epoch").epoch
    stage.launcher.log("delays", epoch, "\n".join(lines))


def test_the_end_of_a_log_is_printed_without_what_a_terminal_would_obey(
    shell: Shell, logged: Stage
) -> None:
    write(logged, "one", "two \x1b]0;owned\x07 password=hunter2hunter2", "three")
    done = shell("logs", "delays", "--tail", "2")
    first, second = done.out.splitlines()
    assert (first[:4], second) == ("two ", "three")
    assert "\x1b" not in done.out
    assert "\x07" not in done.out
    assert "hunter2" not in done.out


def test_a_log_is_followed_until_the_query_runs_no_more(shell: Shell, logged: Stage) -> None:
    write(logged, "one")
    work, rounds = shell.meanwhile, iter(range(10_000))

    def more() -> None:
        assert work is not None
        work()
        passed = next(rounds)
        if passed == 40:
            write(logged, "one", "two")
        if passed == 80:
            logged.stop("delays")

    shell.meanwhile = more
    assert shell("logs", "delays", "-f").out.splitlines() == ["one", "two"]


def test_a_query_that_has_not_run_has_no_log(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    assert "has not run yet" in shell("logs", "delays", code=1).err
    stage.start("delays")
    done = shell("logs", "delays", "-f", "--timeout", "1s", code=3)
    assert "To wait longer, use --timeout" in done.err


@pytest.mark.parametrize(
    ("seen", "lines", "fresh", "gap"),
    [
        ([], ["a"], ["a"], False),
        (["a", "b"], ["a", "b"], [], False),
        (["a", "b"], ["a", "b", "c"], ["c"], False),
        (["a", "a", "b"], ["a", "b", "c"], ["c"], False),  # the window has moved on
        (["a", "b"], ["x", "y"], ["x", "y"], True),  # further than it is long
        (["a", "b"], [], [], False),
    ],
)
def test_what_is_new_is_told_from_what_was_printed(
    monkeypatch: pytest.MonkeyPatch, seen: list[str], lines: list[str], fresh: list[str], gap: bool
) -> None:
    monkeypatch.setattr(sys, "path", [str(SOURCE), *sys.path])
    from headgate_cli.commands.logs import new_lines

    assert new_lines(seen, lines) == (fresh, gap)
