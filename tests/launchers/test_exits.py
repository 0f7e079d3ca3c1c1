"""Who ended a driver, from what its shim did and what the kernel counts."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from queries.domain.protocol import Killer
from queries.launchers.process import exits
from queries.launchers.process.exits import OutOfMemory, killer
from queries.launchers.process.isolation import bubblewrap
from queries.launchers.process.isolation.mounts import Mounts

QUIET = OutOfMemory(0, 3)


@pytest.mark.parametrize(
    ("python", "jvm", "by_us", "after", "ended_by"),
    [
        ("0", "0", {}, QUIET, Killer.NOBODY),
        ("1", "SIGSEGV", {}, OutOfMemory(0, 4), Killer.NOBODY),
        ("SIGKILL", "0", {}, QUIET, Killer.STRANGER),
        ("71", "SIGKILL", {}, QUIET, Killer.STRANGER),
        ("SIGKILL", "0", {}, OutOfMemory(0, 4), Killer.MEMORY_OR_STRANGER),
        ("SIGKILL", "0", {}, OutOfMemory(0, None), Killer.NOBODY),
        ("SIGKILL", "SIGKILL", {"jvm": Killer.JVM_LATE}, QUIET, Killer.STRANGER),
        ("1", "SIGKILL", {"jvm": Killer.JVM_LATE}, OutOfMemory(0, 4), Killer.JVM_LATE),
        ("SIGKILL", "143", {"python": Killer.PYTHON_LATE}, QUIET, Killer.PYTHON_LATE),
        ("71", "143", {"python": Killer.PYTHON_LATE}, QUIET, Killer.NOBODY),  # it left meanwhile
        ("SIGKILL", "UNKNOWN", {"python": Killer.ISOLATION_LATE}, QUIET, Killer.ISOLATION_LATE),
        ("1", "UNKNOWN", {"python": Killer.ISOLATION_FAILED}, QUIET, Killer.ISOLATION_FAILED),
    ],
)
def test_who_ended_a_driver(
    python: str, jvm: str, by_us: dict[str, Killer], after: OutOfMemory, ended_by: Killer
) -> None:
    found = killer(python, jvm, by_us=by_us, by_worker=False, before=QUIET, after=after)
    assert found is ended_by


@pytest.mark.parametrize(
    ("python", "jvm", "by_us", "ended_by"),
    [
        ("SIGKILL", "SIGKILL", {}, Killer.WORKER),
        ("71", "SIGKILL", {}, Killer.WORKER),
        ("SIGKILL", "143", {"python": Killer.PYTHON_LATE}, Killer.PYTHON_LATE),
        ("0", "0", {}, Killer.NOBODY),  # it left before the signal
    ],
)
def test_a_worker_that_says_so_first_is_no_stranger(
    python: str, jvm: str, by_us: dict[str, Killer], ended_by: Killer
) -> None:
    after = OutOfMemory(0, 4)
    found = killer(python, jvm, by_us=by_us, by_worker=True, before=QUIET, after=after)
    assert found is ended_by


@pytest.mark.parametrize(
    "text",
    [
        "low 0\nhigh 0\nmax 5\noom 2\noom_kill 2\noom_group_kill 0\n",  # cgroup v2
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",  # v1
        "nr_free_pages 5\noom_kill 2\n",  # of the host
    ],
)
def test_the_kernels_counters_are_read_in_each_of_their_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "counters").write_text(text)
    assert exits._counts(tmp_path / "counters")["oom_kill"] == 2
    assert exits._counts(tmp_path / "none") == {}


def test_this_kernel_counts() -> None:
    counted = OutOfMemory.now()
    assert counted.host is not None
    assert counted.host >= counted.group >= 0


@pytest.mark.parametrize(
    ("does", "killed"),
    [("exec sleep 60", Killer.ISOLATION_LATE), ("exit 1", Killer.ISOLATION_FAILED)],
)
def test_walls_that_are_late_are_told_from_walls_that_cannot_be_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, killed: Killer
) -> None:
    """The stand-in is a bubblewrap that hangs, and one that the kernel refuses."""
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "PROGRAM", str(program))
    monkeypatch.setattr(bubblewrap, "STARTS_WITHIN_S", 0.3)
    monkeypatch.setattr(bubblewrap, "SAYS_WITHIN_S", 0.1)
    walls = bubblewrap.Sandbox.apply(
        ["/bin/true"], env=dict(os.environ), mounts=Mounts([], ()), log=subprocess.DEVNULL
    )
    with pytest.raises(bubblewrap.NotStarted) as late:
        walls.begin()
    assert late.value.killed is killed
    assert walls.process.wait(10) == (-9 if killed is Killer.ISOLATION_LATE else 1)
    os.close(walls.report_pipe)


@pytest.mark.walls
def test_a_slow_bubblewrap_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bubblewrap.STARTS_WITHIN_S >= 300  # an overloaded host needs minutes
    program = tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\nsleep 1\nexec {bubblewrap.PROGRAM} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "PROGRAM", str(program))
    shown = Mounts(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"], ())
    began = time.monotonic()
    walls = bubblewrap.Sandbox.apply(
        ["/bin/true"], env=dict(os.environ), mounts=shown, log=subprocess.DEVNULL
    )
    python = walls.begin()
    assert time.monotonic() - began >= 1
    assert walls.status_of(python) == 0
    walls.process.wait(60)
    os.close(walls.report_pipe)


@pytest.mark.guarantee("G-ISOLATION-9")
@pytest.mark.walls
def test_no_process_within_walls_can_write_what_the_init_reports(tmp_path: Path) -> None:
    forge = "for each in /proc/1/fd/*; do echo end 2 0 > $each && exit 7; done; exit 3"
    shown = Mounts(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"], ())
    with (tmp_path / "log").open("wb") as log:
        walls = bubblewrap.Sandbox.apply(
            ["/bin/sh", "-c", forge], env=dict(os.environ), mounts=shown, log=log.fileno()
        )
    python = walls.begin()
    assert walls.status_of(python) == 3 << 8
    walls.process.wait(60)
    os.close(walls.report_pipe)
