"""What a driver within walls may call of the kernel, and how much it may open and start."""

import errno
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from queries.domain.hosts import Mode
from queries.launchers.process.isolation import bubblewrap, limits, self_test, system_calls
from queries.launchers.process.isolation.mounts import Mounts
from queries.launchers.process.isolation.trial import IsolationMissing

#: By their numbers on x86-64, and on each processor since Linux 5.
REFUSED = {
    **{"unshare": 272, "keyctl": 250, "bpf": 321, "mount": 165, "setns": 308, "kexec_load": 246},
    **{"perf_event_open": 298, "userfaultfd": 323, "open_by_handle_at": 304, "init_module": 175},
    **{"io_uring_setup": 425, "clone3": 435, "fsopen": 430, "pidfd_getfd": 438},
}
TRIES = f"""
import ctypes, json, os, resource, socket, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
found = {{}}
for name, number in {REFUSED!r}.items():
    found[name] = [libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno()]
for family in (1, 2, 10, 17, 38, 40):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        found[f"family {{family}}"] = 0
    except OSError as error:
        found[f"family {{family}}"] = error.errno
threading.Thread(target=lambda: found.update(thread=1)).start()
child = [sys.executable, "-c", "print(2)"]
found["child"] = subprocess.run(child, capture_output=True).stdout.decode()
found["files"] = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
found["processes"] = resource.getrlimit(resource.RLIMIT_NPROC)[1]
print(json.dumps(found))
"""

Tried = dict[str, Any]


def _within_bubblewrap(log: Path) -> Tried:
    shown = Mounts(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"], ())
    with log.open("w") as file:
        walls = bubblewrap.Sandbox.apply(
            [sys.executable, "-c", TRIES], env=dict(os.environ), mounts=shown, log=file.fileno()
        )
    assert walls.status_of(walls.begin()) == 0, log.read_text()
    walls.process.wait(60)
    os.close(walls.report_pipe)
    return dict(json.loads(log.read_text()))


@pytest.mark.guarantee("G-ISOLATION-5", "G-ISOLATION-6")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64")
@pytest.mark.walls
def test_a_driver_makes_the_calls_of_the_list_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FILES", 512)
    found = _within_bubblewrap(tmp_path / "log")
    assert {name: found[name] for name in REFUSED if found[name] != [-1, errno.ENOSYS]} == {}
    assert [found[f"family {family}"] for family in (1, 2)] == [0, 0]
    assert [found[f"family {family}"] for family in (17, 38, 40)] == [errno.ENOSYS] * 3
    assert (found["thread"], found["child"]) == (1, "2\n")
    assert 0 < found["files"] <= limits.FILES
    bounded = "RLIMIT_NPROC" in limits.limits()
    assert (0 < found["processes"] <= limits.PROCESSES) is bounded


@pytest.mark.guarantee("G-ISOLATION-5")
@pytest.mark.walls
def test_walls_that_leave_system_calls_unfiltered_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bubblewrap._memory
    monkeypatch.setattr(
        bubblewrap, "_memory", lambda text: whole(re.sub(r"\0--seccomp\0\d+", "", text))
    )
    choice = self_test.prove("auto", tmp_path / "drivers")
    assert choice.mode is Mode.NEITHER
    assert "its system calls are not filtered" in choice.lacks


@pytest.mark.walls
def test_walls_that_leave_a_limit_out_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bubblewrap._memory
    monkeypatch.setattr(
        bubblewrap,
        "_memory",
        lambda text: whole(re.sub(r'"limits": \{.*?\}', '"limits": {}', text)),
    )
    monkeypatch.setattr(limits, "FILES", 512)
    choice = self_test.prove("auto", tmp_path / "drivers")
    assert choice.mode is Mode.NEITHER
    assert "its limit RLIMIT_NOFILE is not 512" in choice.lacks


@pytest.mark.guarantee("G-ISOLATION-5")
@pytest.mark.walls
def test_where_the_library_is_missing_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_calls, "LIBRARY", "libnone.so.2")
    with pytest.raises(IsolationMissing, match="it is in the libseccomp2 package"):
        system_calls.compiled()
    assert self_test.prove("auto", tmp_path / "drivers").mode is Mode.BUBBLEWRAP
    said = limits.sentence(unfiltered=limits.system_call_filter()[1])
    assert said.startswith("System calls are not filtered: libnone.so.2 is not installed")


@pytest.mark.guarantee("G-ISOLATION-6")
def test_what_is_not_limited_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "Processes and memory are not limited." in limits.sentence(unfiltered="")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = limits.sentence(unfiltered="")
    assert "System calls are filtered." in said
    assert "8,192 processes and threads for each driver. Memory is not limited." in said
