"""The drivers' folder goes while a driver lives, as a flapping mount does, and comes back.

Real shims and drivers whose Spark never comes up. Everything that guards a driver by files is
gone with the folder, so what is asserted here is counted in the kernel's list of processes.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_ground import identities
from headgate_ground.files import read_file
from headgate_server import places
from queries.domain.protocol import (
    EXIT,
    IDENT,
    SPEC,
    Assignment,
    Current,
    ExitReport,
    Ident,
)
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness
from queries.driver_folder import DriverFolder, current_file
from queries.launchers.process import environment, epoch_claims
from queries.launchers.process.launcher import LocalProcessLauncher
from tests.launchers.test_contract import HANGS, Processes, _spec
from tests.spark.driver_under_test import wait_for

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

NAME = "flights"


class Mount:
    """A launcher whose drivers' folder can be taken away and given back."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.ground = Processes(home, patch, HANGS)
        self.launcher: LocalProcessLauncher = self.ground.local
        self.drivers = home / "drivers"
        self.away = home / "drivers-away"

    def launch(self, epoch: int) -> int:
        """Launch a driver, or try to; return its Python once that waits for its JVM."""
        self.launcher.launch(_spec(epoch), Assignment(1, epoch), "<allocations/>")

        def look() -> int | None:
            found = self.pythons(epoch)
            return found[0] if found and identities.descendants(found[0]) else None

        return wait_for(look, "a driver that waits for its JVM")

    def unmount(self) -> None:
        self.drivers.rename(self.away)

    def mount(self) -> None:
        """What was written below the mount point meanwhile is hidden by what comes back."""
        if self.drivers.exists():
            self.drivers.rename(self.home / "below-the-mount-point")
        self.away.rename(self.drivers)

    def pythons(self, epoch: int) -> list[int]:
        """Return the drivers of an epoch that the kernel shows, whatever any file says."""
        word = f"queries.runtime.main {self.drivers}/{NAME}/{epoch}"
        found = [p for p in identities.all_pids() if word in identities.command_line(p)]
        # What a driver starts has its command line until it is something else.
        begun = {child for pid in found for child in identities.descendants(pid)}
        return [pid for pid in found if pid not in begun]

    def end(self) -> None:
        for pid in identities.all_pids():
            inside = str(identities.environment(pid).get(environment.DIRECTORY))
            if str(self.home) in f"{identities.command_line(pid)} {inside}":
                identities.kill_and_wait(pid, identities.start_time(pid), 10)


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    """Yield it, and leave nothing running."""
    made = Mount(tmp_path, monkeypatch)
    yield made
    made.end()


def _fake_driver(directory: Path) -> subprocess.Popen[bytes]:
    """Start a process that the kernel shows as the driver of a directory that is not there."""
    claim = epoch_claims.take(directory)
    assert claim is not None
    with claim:
        return subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()", "queries.runtime.main"],
            env={environment.DIRECTORY: str(directory)},
            pass_fds=(claim.fileno(),),
        )


def test_an_epoch_whose_folder_has_gone_is_not_started_a_second_time(mount: Mount) -> None:
    first = mount.launch(3)
    mount.unmount()
    seen = mount.launcher.sight(NAME, 3)
    assert (seen.liveness, seen.process["pid"]) == (Liveness.ALIVE, first)
    mount.launch(3)
    assert mount.pythons(3) == [first]
    mount.mount()
    mount.launch(3)
    assert mount.pythons(3) == [first]
    assert mount.launcher.sight(NAME, 3).process["pid"] == first


def test_a_driver_without_its_folder_is_found_and_ended(mount: Mount) -> None:
    mount.launch(3)
    mount.unmount()
    assert mount.launcher.living() == [(NAME, 3)]
    mount.launcher.kill(NAME, 3, Reason.GIVEN_UP)
    assert mount.pythons(3) == []
    wait_for(lambda: mount.launcher.living() == [], "what it left behind to end")
    mount.mount()
    ended = mount.ground.until(3, Liveness.EXITED).exit  # its shim has waited for the folder
    assert ended is not None
    assert ended.python == "SIGKILL"


def test_a_jvm_that_outlives_its_python_is_seen_without_any_file(mount: Mount) -> None:
    python = mount.launch(3)
    ident = Ident.loads((mount.drivers / NAME / "3" / "control" / IDENT).read_text())
    mount.unmount()
    identities.kill_and_wait(ident.shim_pid, ident.shim_start_time, 10)  # or it would clean up
    identities.kill_and_wait(python, identities.start_time(python), 10)
    assert mount.launcher.sight(NAME, 3).liveness is Liveness.ORPHANED
    assert mount.launcher.living() == [(NAME, 3)]
    mount.launcher.kill(NAME, 3, Reason.GIVEN_UP)
    assert mount.launcher.sight(NAME, 3).liveness is Liveness.ABSENT


@pytest.mark.guarantee("G-FENCE-2")
def test_the_identity_of_a_row_is_enough_to_see_its_driver(mount: Mount) -> None:
    own: dict[str, str | int] = {"boot_id": identities.boot_id(), "pid": os.getpid()}
    started = identities.start_time(os.getpid())
    assert started is not None
    alive = mount.launcher.sight(NAME, 3, identity={**own, "start_time": started})
    assert (alive.liveness, alive.without_files) == (Liveness.ALIVE, True)
    other = mount.launcher.sight(NAME, 3, identity={**own, "start_time": started + 1})
    assert other.liveness is Liveness.GONE  # it has lived, so it is not to be spawned again
    boot: dict[str, str | int] = {**own, "start_time": started, "boot_id": "another"}
    assert mount.launcher.sight(NAME, 3, identity=boot).liveness is Liveness.GONE


def _shim(directory: Path, epoch: int) -> tuple[int, str]:
    """Run a shim on a directory as the launcher does, its guards in files all there and free.

    Returns the code of its first process, and what was said by then. A driver that it starts all
    the same keeps the log open.
    """
    (DriverFolder.make(directory).control / SPEC).write_text(_spec(epoch).dumps())
    current = current_file(directory.parent)
    current.parent.mkdir()
    current.write_text(Current(epoch, str(directory)).dumps())
    log = directory / "shim.log"
    with log.open("w") as said:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "queries.launchers.process.shim", str(directory)],
            env={**os.environ, "PYTHONPATH": str(places.ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            timeout=60,
            check=False,
        )
    return done.returncode, log.read_text()


@pytest.mark.guarantee("G-FENCE-2")
def test_a_shim_whose_epoch_lives_elsewhere_starts_nothing(mount: Mount) -> None:
    directory = mount.drivers / NAME / "3"
    driver = _fake_driver(directory)
    try:
        code, said = _shim(directory, 3)
        assert (code, "a driver with epoch 3 is running" in said) == (76, True)
        assert mount.pythons(3) == []
        # The one that lives will have its own exit; nothing may be said in its place.
        assert not (directory / "control" / EXIT).exists()
        assert not (directory / "control" / IDENT).exists()
    finally:
        driver.kill()
        driver.wait()


@pytest.mark.guarantee("G-FENCE-2")
def test_a_shim_below_a_living_epoch_is_fenced_whatever_the_files_say(mount: Mount) -> None:
    directory = mount.drivers / NAME / "3"
    later = _fake_driver(directory.with_name("4"))
    try:
        assert _shim(directory, 3)[0] == 0
        wait_for(
            lambda: read_file(directory / "control" / EXIT) or mount.pythons(3),
            "the shim's report or a driver",
        )
        assert mount.pythons(3) == []
        assert ExitReport.loads(read_file(directory / "control" / EXIT) or "").python == "FENCED"
    finally:
        later.kill()
        later.wait()


def test_killing_an_epoch_spares_one_whose_number_begins_with_it(mount: Mount) -> None:
    longer = _fake_driver(mount.drivers / NAME / "12")
    try:
        mount.launcher.kill(NAME, 1, Reason.GIVEN_UP)
        assert longer.poll() is None
        assert mount.launcher.living() == [(NAME, 12)]
    finally:
        longer.kill()
        longer.wait()


def test_stop_names_and_ends_a_driver_without_its_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    driver = _fake_driver(home / "drivers" / NAME / "7")
    try:
        done = subprocess.run(
            [sys.executable, "manage.py", "stop"],
            cwd=places.ROOT,
            env={**os.environ, "HEADGATE_HOME": str(home), "DATABASE_URL": ""},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "1 driver whose directory is gone, by checking processes: flights (epoch 7)." in (
            done.stdout
        ), done.stdout + done.stderr
        assert "Ending 1 driver" in done.stdout
        assert driver.wait(60) == -signal.SIGTERM
        assert "Traceback" not in done.stderr
    finally:
        driver.kill()
        driver.wait()
