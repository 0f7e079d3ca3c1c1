"""`make sabotage`: its guards stand where it says, and only an assertion counts as red."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings

REPOSITORY = Path(settings.BASE_DIR)
sys.path.append(str(REPOSITORY / "bootstrap"))

import sabotage  # noqa: E402
from red import ASSERTION, PASSED  # noqa: E402
from sabotage import Guard, GuardPlan  # noqa: E402

PLAN = sabotage.read()
#: What keeps a second writer out, an event from being lost, and a host from another's drivers.
NEEDED = {
    "lock",
    "lock-release",
    "owner-epoch",
    "exclusive-create",
    "must",
    "list-again",
    "next-number",
    "halting",
    "entry-once",
    "compare-and-set",
    "on-conflict",
    "identity",
    "topic-at-start",
    "culprit",
    "host-filter",
}


def _name(test: str) -> str:
    """Return the name of a test's function."""
    return test.rpartition("::")[2].partition("[")[0]


def _file(test: str) -> str:
    """Return the file that a test is in."""
    return test.partition("::")[0]


def test_no_guard_is_missing_or_named_twice() -> None:
    names = [one.name for one in PLAN.guards]
    assert len(names) == len(set(names))
    assert set(names) >= NEEDED


def test_each_guard_stands_where_the_run_looks_for_it(subtests: pytest.Subtests) -> None:
    for guard in PLAN.guards:
        with subtests.test(guard.name):
            assert guard.moved(REPOSITORY) == ""
            assert guard.old != guard.new
            assert guard.tests
            text = (REPOSITORY / guard.file).read_text()
            if guard.file.endswith(".py"):  # Java is compiled when a driver is launched
                compile(text.replace(guard.old, guard.new), guard.file, "exec")


def test_each_test_that_is_named_is_there() -> None:
    texts = {name: (REPOSITORY / name).read_text() for name in {_file(one) for one in PLAN.tests}}
    missing = [one for one in PLAN.tests if f"\ndef {_name(one)}(" not in texts[_file(one)]]
    assert missing == []


# --- the run itself, on a small program of its own ----------------------------------------

PROGRAM = """
import os

def may_write(holder: int | None) -> bool:
    if holder is not None:
        return False
    return True
"""
TESTS = """
import pytest
from small import program

def test_it_works():
    assert program.may_write(None)

def test_a_second_writer_is_refused():
    assert not program.may_write(4711)

@pytest.mark.parametrize("holder", [1, 2])
def test_a_refusal_is_raised(holder):
    with pytest.raises(PermissionError):
        if not program.may_write(holder):
            raise PermissionError

def test_of_something_else():
    assert program.os

@pytest.mark.skip(reason="of another machine")
def test_that_is_skipped(): ...

def test_that_ends_with_an_error():
    if program.may_write(1):
        raise OSError("no space")

@pytest.fixture
def place():
    assert not program.may_write(1)

def test_whose_fixture_fails(place): ...

def test_whose_helper_fails():
    from small import helper
    helper.wait_for(lambda: not program.may_write(1))
"""
HELPER = """
def wait_for(look):
    if not look():
        raise AssertionError("not within 60 s")
"""
SETTINGS = """
SECRET_KEY = "of a test"
ROOT_URLCONF = "small.settings"
urlpatterns = []
"""
INI = """
[tool.pytest.ini_options]
DJANGO_SETTINGS_MODULE = "small.settings"
timeout = 60
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a repository with a program of one guard, and tests that fail in every way."""
    place = tmp_path / "repository"
    for name, text in {
        "pyproject.toml": INI,
        "bootstrap/red.py": (REPOSITORY / "bootstrap/red.py").read_text(),
        "small/__init__.py": "",
        "small/settings.py": SETTINGS,
        "small/program.py": PROGRAM,
        "small/helper.py": HELPER,
        "tests/test_small.py": TESTS,
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=place, check=True, timeout=60)
    return place


def _guard(name: str, *tests: str, **changes: str) -> Guard:
    about: dict[str, Any] = {
        "holds": "There is one writer.",
        "file": "small/program.py",
        "old": "if holder is not None:",
        "new": "if False:",
        **changes,
    }
    named = tuple(f"tests/test_small.py::test_{test}" for test in tests)
    return Guard(name=name, tests=named, **about)


def _plan(*guards: Guard) -> GuardPlan:
    return GuardPlan(guards, ("tests/test_small.py::test_it_works",), ("small.program",))


def test_a_guard_is_caught_by_assertions_alone_and_a_program_that_is_broken_is_no_proof(
    small: Path, tmp_path: Path
) -> None:
    before = (small / "small/program.py").read_text()
    weak = _guard(
        "weak",
        "a_second_writer_is_refused",
        "a_refusal_is_raised",
        "of_something_else",
        "that_ends_with_an_error",
        "whose_fixture_fails",
        "whose_helper_fails",
    )
    dead = _guard("dead", "a_second_writer_is_refused", old="import os", new="import no_such")
    results = sabotage.sabotage(_plan(weak, dead), tmp_path / "copies", small)
    told = {one.guard.name: one for one in results}
    assert told["weak"].red == 2
    assert [problem.partition(" says: ")[2] for problem in told["weak"].problems] == [
        "passed",
        "call: OSError: no space",
        "setup: AssertionError: assert not True",
        "call: AssertionError: not within 60 s",
    ]
    assert told["dead"].red == 0
    assert told["dead"].problems == (
        "the program does not start: ModuleNotFoundError: No module named 'no_such'",
    )
    assert (small / "small/program.py").read_text() == before


def test_a_guard_that_has_moved_ends_the_run_before_anything_is_taken_out(
    small: Path, tmp_path: Path
) -> None:
    moved = _guard("moved", "it_works", old="holder")
    with pytest.raises(
        SystemExit, match=r"moved: small/program.py contains the guard's text 2 times"
    ):
        sabotage.sabotage(_plan(moved), tmp_path / "copies", small)
    assert not (tmp_path / "copies").exists()


def test_a_test_that_fails_with_every_guard_in_its_place_proves_nothing(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    red = {"tests/test_small.py::test_it_works": ASSERTION}
    monkeypatch.setattr(sabotage.Copy, "test", lambda *_: red)
    with pytest.raises(SystemExit, match="test_it_works says: failed by its assertion"):
        sabotage.sabotage(_plan(_guard("held", "it_works")), tmp_path / "copies", small)


def test_a_guard_whose_test_is_skipped_is_not_caught_and_keeps_no_other_from_being_tried(
    small: Path, tmp_path: Path
) -> None:
    kept = _guard("kept", "a_second_writer_is_refused")
    elsewhere = _guard("elsewhere", "that_is_skipped")
    plan = _plan(elsewhere, kept)
    told = {
        one.guard.name: one.problems for one in sabotage.sabotage(plan, tmp_path / "copies", small)
    }
    [problem] = told["elsewhere"]
    assert problem.startswith("not tested on this machine, which skips")
    assert told["kept"] == ()


def test_a_guard_without_which_nothing_works_is_not_caught() -> None:
    guard = _guard("held", "a_refusal_is_raised")
    cases = {"a_refusal_is_raised[1]": PASSED, "a_refusal_is_raised[2]": ASSERTION}
    verdicts = {f"tests/test_small.py::test_{name}": told for name, told in cases.items()}
    works = "tests/test_small.py::test_it_works"
    assert sabotage.judge(guard, [works], {**verdicts, works: PASSED}) == []
    assert sabotage.judge(guard, [works], {**verdicts, works: ASSERTION}) == [
        f"without the guard, nothing works any more: {works} says: failed by its assertion"
    ]
    assert sabotage.judge(guard, [works], verdicts) == [
        f"without the guard, nothing works any more: {works} was not run"
    ]


def test_nothing_of_this_environment_reaches_a_program_without_a_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = {"HEADGATE_HOME": "/data", "DATABASE_URL": "postgres://real", "REDIS_URL": "redis://r"}
    for name, text in real.items():
        monkeypatch.setenv(name, text)
    copy = sabotage.Copy(tmp_path / "1", ())
    assert set(copy.environment.values()).isdisjoint(real.values())
    assert copy.environment["HEADGATE_HOME"] == str(tmp_path / "1" / "home")
    assert copy.environment["PATH"] == os.environ["PATH"]


def test_what_a_test_leaves_behind_is_ended_and_nothing_else(tmp_path: Path) -> None:
    waits = [sys.executable, "-c", "input()"]
    mine = subprocess.Popen(waits, stdin=subprocess.PIPE, env={"TMPDIR": str(tmp_path / "1" / "t")})
    other = subprocess.Popen(
        waits, stdin=subprocess.PIPE, env={"TMPDIR": str(tmp_path / "10" / "t")}
    )
    try:
        sabotage.end_what_works_in(tmp_path / "1")
        assert not psutil.pid_exists(mine.pid)
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.communicate(timeout=60)


def test_of_an_unknown_guard_it_is_said_which_there_are() -> None:
    with pytest.raises(SystemExit, match=r"There is no guard nothing. There are: lock,"):
        sabotage.main(["--only", "nothing"])


def test_the_list_says_what_each_guard_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert sabotage.main(["--list"]) == 0
    said = capsys.readouterr().out
    assert all(one.name in said and one.holds in said for one in PLAN.guards)
