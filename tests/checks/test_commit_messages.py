"""Commit messages: a component, a verb that describes the change, one change, and a reason."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

REPOSITORY = Path(settings.BASE_DIR)
sys.path.append(str(REPOSITORY / "bootstrap"))

import commit_messages  # noqa: E402
import lint  # noqa: E402

WHY = "\n\nA driver that outlives its worker has no lock otherwise."


@pytest.mark.parametrize(
    "message",
    [
        "supervision: hold the lock until the thread is gone" + WHY,
        "live-streams: drop 2 unused headers" + WHY,
        "spark ui: namespace the cookies" + WHY,  # "name" is a verb, not a prefix
        "tests: letter the cases of a table" + WHY,
        "a" * 58 + ": add 12345678" + WHY,  # 72 characters
        "cli: add --since" + WHY + "\n\nSigned-off-by: Ada <ada@example.org>",
    ],
)
def test_a_good_message_has_no_problem(message: str) -> None:
    assert commit_messages.problems(message) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("a" * 58 + ": add 123456789" + WHY, "73 characters"),
        ("hold the lock" + WHY, "component"),
        ("Supervision: hold the lock" + WHY, "component"),
        ("supervision:hold the lock" + WHY, "component"),
        ("supervision: " + WHY, "component"),
        ("alerts: hold one lock; release another" + WHY, '";"'),
        ("alerts: let a rule have two channels" + WHY, "verb"),
        ("alerts: Say which rule fired" + WHY, "verb"),
        ("alerts: name the rule" + WHY, "verb"),
        ("alerts: tell every channel" + WHY, "verb"),
        ("alerts: give rules a name" + WHY, "verb"),
        ("alerts: be quiet at night" + WHY, "verb"),
        ("alerts: hold the lock", "reason"),
        ("alerts: hold the lock\n\n", "reason"),
        ("alerts: hold the lock\n\nSigned-off-by: Ada <ada@example.org>", "reason"),
        ("alerts: hold the lock\nuntil the end", "second line"),
    ],
)
def test_a_bad_message_has_its_problem(message: str, problem: str) -> None:
    [found] = commit_messages.problems(message)
    assert problem in found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("alerts: hold the lock" + WHY + "\n# Please enter …\n", 0),
        ("# Please enter …\nalerts: hold the lock" + WHY, 0),
        ("alerts: hold the lock\n\n# On branch main\n", 1),
        ("alerts: hold the lock\n# ------------------------ >8 ------------------------\nd", 1),
        ("Merge branch 'main' into alerts", 0),
        ("fixup! alerts: hold the lock", 0),
    ],
)
def test_the_hook_reads_the_file_as_git_does(tmp_path: Path, text: str, found: int) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(text)
    assert len(commit_messages.in_file(file)) == found
    assert commit_messages.main([str(file)]) == found


def git(repository: Path, *arguments: str, date: str = "2026-12-01T00:00:00Z") -> None:
    subprocess.run(
        ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *arguments],
        cwd=repository,
        env={"PATH": "/usr/bin:/bin", "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date},
        check=True,
        capture_output=True,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with an old bad message, a good one, and a merge."""
    made = tmp_path / "repository"
    made.mkdir()
    git(made, "init", "-q", "-b", "main")
    commit = ("commit", "-q", "--allow-empty", "-m")
    git(made, *commit, "written by older rules", date="2026-11-29T20:49:59Z")
    git(made, *commit, "alerts: hold the lock" + WHY)
    git(made, "branch", "other", "HEAD~")
    git(made, "merge", "-q", "--no-ff", "-s", "ours", "--allow-unrelated-histories", "other")
    return made


def test_lint_checks_the_commits_since_the_date(repository: Path) -> None:
    assert commit_messages.since(repository)[0] == []
    git(repository, "commit", "-q", "--allow-empty", "-m", "alerts: hold the other lock")
    found, checked = commit_messages.since(repository)
    assert len(found) == 1
    assert re.match(r"[0-9a-f]+ alerts: hold the other lock\n", found[0])
    assert checked.startswith("2 commit messages")


def test_a_folder_without_git_is_not_checked_and_lint_reports_that(tmp_path: Path) -> None:
    found, checked = commit_messages.since(tmp_path)
    assert found == []
    assert "not checked" in checked


def test_a_missing_git_is_reported(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setenv("PATH", "")
    assert "not checked" in commit_messages.since(repository)[1]


def test_a_shallow_clone_is_checked_as_far_as_it_reaches(repository: Path, tmp_path: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "alerts: hold the other lock")
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", repository.as_uri(), str(shallow))
    found, checked = commit_messages.since(shallow)
    assert len(found) == 1
    assert "1 commit" in checked
    assert "shallow" in checked


def test_lint_and_the_hook_run_this_check() -> None:
    assert lint.CHECKS["commit messages"][-1].endswith("commit_messages.py")
    hooks = (REPOSITORY / ".pre-commit-config.yaml").read_text()
    assert "default_install_hook_types: [pre-commit, commit-msg]\n" in hooks
    assert "entry: .venv/bin/python bootstrap/commit_messages.py\n" in hooks
