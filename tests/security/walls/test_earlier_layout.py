"""A driver that an earlier release started has all its files in one folder, and is not lost."""

import os
from pathlib import Path

import pytest

from queries.domain.protocol import (
    ASSIGNMENT,
    CURRENT,
    DRIVER_LOG,
    EXIT,
    IDENT,
    SPEC,
    STATUS,
    Assignment,
    Current,
    ExitReport,
    Ident,
    Status,
)
from queries.domain.supervision.observation import Liveness
from queries.launchers.process import identities
from queries.launchers.process.launcher import LocalProcessLauncher

NAME = "flights"


@pytest.fixture
def launcher(tmp_path: Path) -> LocalProcessLauncher:
    return LocalProcessLauncher(tmp_path / "drivers", tmp_path / "code")


@pytest.fixture
def directory(launcher: LocalProcessLauncher) -> Path:
    """Return the directory of a driver whose Python is this process."""
    directory = launcher.directory(NAME, 3)
    directory.mkdir(parents=True)
    started = identities.start_time(os.getpid()) or 0
    ident = Ident(identities.boot_id(), os.getpid(), started, os.getpid(), started, "then")
    (directory / SPEC).write_text("{}")
    (directory / IDENT).write_text(ident.dumps())
    (directory / STATUS).write_text(Status(3, 1, "then", ready=True).dumps())
    (directory / ASSIGNMENT).write_text(Assignment(4, 3).dumps())
    (directory / DRIVER_LOG).write_text("as before\n")
    (directory.parent / CURRENT).write_text(Current(3, str(directory)).dumps())
    return directory


def test_it_is_adopted_read_and_directed_where_its_files_are(
    launcher: LocalProcessLauncher, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = launcher.sight(NAME, 3)
    assert (seen.liveness, seen.process["pid"]) == (Liveness.ALIVE, os.getpid())
    assert seen.status is not None
    assert seen.status.ready
    assert (launcher.log_tail(NAME, 3), launcher.highest_epoch(NAME)) == ("as before", 3)
    monkeypatch.setattr(identities, "send", lambda *_: True)  # this process is no driver
    launcher.assign(NAME, Assignment(5, 3))
    assert Assignment.loads((directory / ASSIGNMENT).read_text()).generation == 5
    assert launcher.sight(NAME, 3).assignment_generation == 5


def test_its_end_is_seen_and_it_is_pruned(launcher: LocalProcessLauncher, directory: Path) -> None:
    report = ExitReport("0", "0", core=False, oom=False, at="now", last_seq=7)
    (directory / EXIT).write_text(report.dumps())
    assert launcher.sight(NAME, 3).exit == report
    assert launcher.seal(NAME, 3)
    launcher.seal(NAME, 4)
    launcher.prune(NAME, keep=1)
    assert launcher.sight(NAME, 3).liveness is Liveness.ABSENT
    assert not directory.exists()
