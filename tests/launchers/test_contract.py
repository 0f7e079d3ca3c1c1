"""What every kind of launcher promises (`queries.launchers.base`), said once for all of them.

Drivers that are pods have no process on this host, so a few promises are not theirs: without its
folder a pod is neither seen nor ended, and there are no standbys. What they promise in addition is
in `tests/kubernetes/test_pod_launcher.py`.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from django.utils import timezone

from headgate_ground import spool
from queries.domain.hosts import Mode, choose
from queries.domain.probes.questions import XrayTask
from queries.domain.protocol import (
    DRIVER_LOG,
    EXIT,
    Assignment,
    AssignmentEntry,
    DriverSpec,
    Killer,
    RunState,
    RunStatus,
    Want,
)
from queries.domain.states import DriverState, Reason
from queries.domain.supervision.observation import Liveness, Sighting
from queries.driver_folder import DriverFolder
from queries.launchers.base import Launcher, LaunchRefused
from queries.launchers.pods.launcher import PodLauncher, PodSettings
from queries.launchers.pods.objects import object_name
from queries.launchers.process import sighting
from queries.models.applications import Application
from queries.models.drivers import Driver
from queries.runtime.main import LOOK_S
from tests.launchers.in_memory import InMemoryLauncher
from tests.launchers.kubelet import Kubelet, cluster
from tests.launchers.web_process import Web
from tests.scenarios.stage import Stage
from tests.spark.driver_under_test import rate_query, wait_for

ALIVE = {Liveness.SPAWNING, Liveness.ALIVE}
NAME = "flights"
#: A JVM that never comes up; asked for its version, for which a launch waits, it fails at once.
HANGS = '#!/bin/sh\ncase "$*" in *-version) exit 1 ;; esac\nexec sleep 600\n'


class Ground(ABC):
    """A launcher, and the world around it as far as a launcher can tell."""

    launcher: Launcher
    refusal = "No Java was found"  # begins the sentence of a launch that `refuse` prevents
    tells_beginnings = False  # whether it is told as well that a driver begins to run

    @abstractmethod
    def refuse(self) -> None:
        """Make the next launches impossible."""

    @abstractmethod
    def accept(self) -> None:
        """Make launches possible again."""

    @abstractmethod
    def edit_code(self) -> None:
        """Change a file below the code root."""

    @abstractmethod
    def write_log(self, epoch: int, text: str) -> None:
        """Add to a driver's log."""

    @abstractmethod
    def spool(self, epoch: int, events: dict[int, bytes]) -> None:
        """Let a driver keep events by their numbers."""

    @abstractmethod
    def lose_files(self) -> None:
        """Take the folder of the drivers away, as a mount that flaps does."""

    @abstractmethod
    def find_files(self) -> None:
        """Bring it back."""

    @abstractmethod
    def end(self) -> None:
        """Leave nothing running."""

    def until(self, epoch: int, liveness: Liveness, *, probe: bool = False) -> Sighting:
        """Wait until the driver is seen so."""

        def look() -> Sighting | None:
            seen = self.launcher.sight(NAME, epoch, probe=probe)
            return seen if seen.liveness is liveness else None

        return wait_for(look, f"driver {epoch} is {liveness}")

    def told(self, next_exit: Callable[[float], int | None], epoch: int) -> int | None:
        """Return who was told to have ended, if that was after the end of this driver."""
        return next_exit(1)

    def prune(self, epoch: int, *, probe: bool = False) -> None:
        """Prune until nothing of that driver is left: its shim may be just about to end."""

        def look() -> bool:
            self.launcher.prune(NAME, keep=1)
            return self.launcher.sight(NAME, epoch, probe=probe).liveness is Liveness.ABSENT

        wait_for(look, f"driver {epoch} is pruned")


class InMemory(Ground):
    """The double, whose world is what a test says."""

    def __init__(self, *, obliging: bool = False) -> None:
        self.launcher = self.double = InMemoryLauncher(obliging=obliging)

    def refuse(self) -> None:
        self.double.refusal = "No Java was found. Set JAVA_HOME."

    def accept(self) -> None:
        self.double.refusal = ""

    def edit_code(self) -> None:
        self.double.code_version += "!"

    def write_log(self, epoch: int, text: str) -> None:
        self.double.log(NAME, epoch, text)

    def spool(self, epoch: int, events: dict[int, bytes]) -> None:
        self.double.spools[epoch] = list(events.items())

    def lose_files(self) -> None:
        self.double.files_lost = True

    def find_files(self) -> None:
        self.double.files_lost = False

    def end(self) -> None:
        pass


class Processes(Ground):
    """Real shims and drivers; `java` says which JVM they find, None: the one of this host."""

    def __init__(
        self,
        home: Path,
        patch: pytest.MonkeyPatch,
        java: str | None,
        walls: Mode = Mode.NEITHER,
    ) -> None:
        # The launcher of workers, which has no cluster here.
        self.launcher = self.local = PodLauncher(
            PodSettings(*("", "", "", "", "", home / "archives"), "vm", (), home / "secrets"),
            drivers_dir=home / "drivers",
            code_dir=home / "code",
            isolation=lambda: choose(walls),
        )
        self.drivers = home / "drivers"
        self.code = home / "users_code"
        self.patch = patch
        self.java = os.environ.get("JAVA_HOME", "")
        self.code.mkdir()
        self.edit_code()
        if java is not None:
            program = home / "java/bin/java"
            program.parent.mkdir(parents=True)
            program.write_text(java)
            program.chmod(0o755)
            self.java = str(home / "java")
        self.accept()

    def refuse(self) -> None:
        self.patch.setenv("JAVA_HOME", "/nowhere")

    def accept(self) -> None:
        if self.java:
            self.patch.setenv("JAVA_HOME", self.java)

    def edit_code(self) -> None:
        with (self.code / "module.py").open("a") as file:
            file.write("ONE = 1\n")

    def write_log(self, epoch: int, text: str) -> None:
        with (self.local.directory(NAME, epoch) / "own" / DRIVER_LOG).open("a") as file:
            file.write(text)

    def spool(self, epoch: int, events: dict[int, bytes]) -> None:
        folder = self.local.directory(NAME, epoch) / "own" / spool.FOLDER
        folder.mkdir(exist_ok=True)
        text = b"".join(spool.line(seq, event) for seq, event in events.items())
        (folder / spool.segment_name(min(events))).write_bytes(text)

    def lose_files(self) -> None:
        self.drivers.rename(self.drivers.with_name("away"))

    def find_files(self) -> None:
        self.drivers.with_name("away").rename(self.drivers)

    def end(self) -> None:
        self.launcher.end_probes()
        for _, epoch in self.launcher.living():
            self.until(epoch, Liveness.ALIVE)
            self.launcher.kill(NAME, epoch, Reason.GIVEN_UP)
            self.until(epoch, Liveness.EXITED)


class RecordedLauncher(PodLauncher):
    """The launcher, with the row that supervision writes before each launch: one is open."""

    application: Application

    def launch(self, spec: DriverSpec, assignment: Assignment, pools_xml: str) -> None:
        now = timezone.now()
        about = {
            "application": self.application,
            "application_revision": self.application.target_revision,
            "host": spec.host,
            "created_at": now,
            "state_since": now,
        }
        if Driver.objects.filter(epoch__gt=spec.epoch).exists():
            about |= {"state": DriverState.FENCED, "ended_at": now}
        former = Driver.objects.filter(epoch__lt=spec.epoch)
        former.update(state=DriverState.ENDED, ended_at=now)
        Driver.objects.get_or_create(pk=spec.driver, epoch=spec.epoch, defaults=about)
        super().launch(replace(spec, pod=True), assignment, pools_xml)


class Pods(Ground):
    """Pods on a cluster whose only node is this host, and the web process that serves them."""

    refusal = "The driver is a pod, but neither .* names its image"
    tells_beginnings = True

    def __init__(self, home: Path, kubelet: Kubelet, web: Web) -> None:
        self.kubelet = kubelet
        self.settings = PodSettings(
            kubeconfig=str(kubelet.kubeconfig),
            url=f"http://127.0.0.1:{web.port}",
            redis_url="",
            image="of this host",
            authorities="",
            archives=home / "archives",
            host="vm",
            variables=(),
            secrets=home / "secrets",
        )
        self.launcher = self.pods = RecordedLauncher(
            self.settings,
            drivers_dir=home / "drivers",
            code_dir=home / "code",
            isolation=lambda: choose(Mode.NEITHER),
        )
        self.pods.application = Stage().application(NAME)
        self.code = home / "users_code"
        self.code.mkdir()
        self.edit_code()

    def told(self, next_exit: Callable[[float], int | None], epoch: int) -> int | None:
        """Look at nothing that would record the end: the watch has to."""
        told = next_exit(1)
        exit_file = DriverFolder.of(self.pods.directory(NAME, epoch)).control / EXIT
        return told if exit_file.exists() else None

    def refuse(self) -> None:
        self.pods._pods = replace(self.settings, image="")

    def accept(self) -> None:
        self.pods._pods = self.settings

    def edit_code(self) -> None:
        with (self.code / "module.py").open("a") as file:
            file.write("ONE = 1\n")

    def write_log(self, epoch: int, text: str) -> None:
        with (self._own(epoch) / DRIVER_LOG).open("a") as file:
            file.write(text)
        size = len(text.encode())
        wait_for(lambda: self.launcher.log_size(NAME, epoch) == size, "the log has arrived")

    def spool(self, epoch: int, events: dict[int, bytes]) -> None:
        folder = self._own(epoch) / spool.FOLDER
        folder.mkdir(exist_ok=True)
        text = b"".join(spool.line(seq, event) for seq, event in events.items())
        (folder / spool.segment_name(min(events))).write_bytes(text)
        wait_for(lambda: [*self.launcher.spooled(epoch, 0)], "the spool has arrived")

    def _own(self, epoch: int) -> Path:
        name = object_name(replace(_spec(epoch), pod=True))
        own = self.kubelet.folder(name) / "drivers" / NAME / str(epoch) / "own"
        wait_for(own.exists, f"the folder of driver {epoch} in its pod")
        return own

    def lose_files(self) -> None:
        raise NotImplementedError

    def find_files(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.launcher.end_probes()


@contextmanager
def _pods(request: pytest.FixtureRequest, home: Path) -> Iterator[Pods]:
    settings = request.getfixturevalue("settings")
    settings.DRIVERS_DIR = home / "drivers"
    program = home / "java/bin/java"
    program.parent.mkdir(parents=True)
    program.write_text(HANGS)
    program.chmod(0o755)
    web = Web()
    web.start()
    try:
        with cluster(home, home / "java") as kubelet:
            made = Pods(home, kubelet, web)
            yield made
            made.end()
    finally:
        web.stop()


ON_THIS_HOST = ("in memory", "process", "within walls")
#: Of a test about what pods do not promise.
on_this_host = pytest.mark.parametrize("ground", ON_THIS_HOST, indirect=True)


@pytest.fixture(
    params=[*ON_THIS_HOST, pytest.param("pod", marks=pytest.mark.django_db(transaction=True))]
)
def ground(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ground]:
    """Yield each kind of launcher; its drivers live, and their Spark never comes up."""
    if request.param == "pod":
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))  # probes are processes
        with _pods(request, tmp_path) as pods:
            yield pods
        return
    walls = Mode.BUBBLEWRAP if request.param == "within walls" else Mode.NEITHER
    in_memory = request.param == "in memory"
    made = InMemory() if in_memory else Processes(tmp_path, monkeypatch, HANGS, walls)
    yield made
    made.end()


@pytest.fixture(
    params=[
        "in memory",
        pytest.param("process", marks=pytest.mark.spark),
        pytest.param("within walls", marks=pytest.mark.spark),
    ]
)
def obliging(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ground]:
    """Yield each kind of launcher; its drivers do what they are asked."""
    in_memory = request.param == "in memory"
    if not in_memory:
        request.getfixturevalue("java_home")
    walls = Mode.BUBBLEWRAP if request.param == "within walls" else Mode.NEITHER
    made = InMemory(obliging=True) if in_memory else Processes(tmp_path, monkeypatch, None, walls)
    yield made
    made.end()


def _spec(epoch: int) -> DriverSpec:
    return DriverSpec(
        driver=epoch,
        epoch=epoch,
        application=NAME,
        installation="here",
        host="one",
        master="local[2]",
        memory="512m",
        conf={},
        env={},
        code_roots=(),
        code_sha256="",
        scheduler_mode="FAIR",
        listeners=(),
        redis_url="redis://127.0.0.1:9/0",  # nobody there: it must not matter
        stream="events",
    )


def _entry(folder: Path) -> AssignmentEntry:
    return AssignmentEntry(
        query=1,
        name="q1",
        run=7,
        epoch=7,
        spec=rate_query(),
        checkpoint=f"file://{folder}/checkpoints/q1",
        pool="",
        want=Want.RUN,
    )


def _launch(launcher: Launcher, epoch: int, generation: int = 1) -> None:
    launcher.launch(_spec(epoch), Assignment(generation, epoch), "<allocations/>")


def test_of_a_driver_that_was_never_launched_nothing_is_known(ground: Ground) -> None:
    launcher = ground.launcher
    for probe in (False, True):
        assert launcher.sight(NAME, 1, probe=probe) == Sighting(Liveness.ABSENT)
        assert launcher.log_tail(NAME, 1, probe=probe) == ""
    assert launcher.log_size(NAME, 1) == 0
    assert launcher.log_part(NAME, 1, start=0, size=10) == b""
    assert launcher.files_location(NAME, 1) != launcher.files_location(NAME, 1, probe=True)
    assert launcher.highest_epoch(NAME) == 0
    assert launcher.living() == []
    assert launcher.probe_result(NAME, 1) == ""
    launcher.assign(NAME, Assignment(1, 1))
    launcher.terminate(NAME, 1)
    launcher.kill(NAME, 1, Reason.GIVEN_UP)
    launcher.end_probe(NAME, 1)
    launcher.end_probes()
    launcher.forget_result(NAME, 1)
    launcher.prune(NAME, keep=1)
    assert list(launcher.spooled(1, 0)) == []
    assert launcher.sight(NAME, 1) == Sighting(Liveness.ABSENT)


def test_the_end_of_a_driver_is_told_to_whoever_waits_for_it(ground: Ground) -> None:
    launcher = ground.launcher
    with launcher.exits() as next_exit:
        _launch(launcher, 3)
        ground.until(3, Liveness.ALIVE)
        assert ground.tells_beginnings or next_exit(0) is None
        launcher.kill(NAME, 3, Reason.GIVEN_UP)
        told = wait_for(lambda: ground.told(next_exit, 3), "the end is told")
        assert told == _spec(3).driver
        assert launcher.sight(NAME, 3).liveness is Liveness.EXITED
        assert ground.tells_beginnings or next_exit(0) is None


@pytest.mark.guarantee("G-EXIT-1")
def test_a_driver_lives_until_it_is_killed_and_an_epoch_is_launched_once(ground: Ground) -> None:
    launcher = ground.launcher
    _launch(launcher, 3)
    assert launcher.sight(NAME, 3).liveness in ALIVE
    first = ground.until(3, Liveness.ALIVE)
    if not isinstance(ground, Pods):  # whose processes are not those of this host
        assert first.process
        assert first.cpu_s is not None  # it has not started yet
    assert set(first.process) <= {field.name for field in Driver._meta.get_fields()}
    assert (launcher.living(), launcher.highest_epoch(NAME)) == ([(NAME, 3)], 3)
    _launch(launcher, 3)
    # The identity of its JVM is added once that has started.
    assert first.process.items() <= launcher.sight(NAME, 3).process.items()
    launcher.kill(NAME, 3, Reason.GIVEN_UP)
    ended = ground.until(3, Liveness.EXITED)
    assert ended.exit is not None
    assert ended.exit.python == "SIGKILL"
    assert (ended.exit.killed, ended.exit.kill_reason) == (Killer.WORKER, Reason.GIVEN_UP)
    assert first.process.items() <= ended.process.items()
    launcher.kill(NAME, 3, Reason.GIVEN_UP)
    _launch(launcher, 3)
    assert launcher.sight(NAME, 3).exit == ended.exit
    assert launcher.living() == []


def test_an_assignment_never_goes_back(ground: Ground) -> None:
    _launch(ground.launcher, 1, generation=5)
    assert ground.launcher.sight(NAME, 1).assignment_generation == 5
    ground.launcher.assign(NAME, Assignment(7, 1))
    ground.launcher.assign(NAME, Assignment(6, 1))
    assert ground.launcher.sight(NAME, 1).assignment_generation == 7


def test_an_epoch_below_a_later_one_never_lives_and_is_pruned_first(ground: Ground) -> None:
    launcher = ground.launcher
    _launch(launcher, 9)
    _launch(launcher, 4)
    ended = ground.until(4, Liveness.EXITED)
    assert ended.exit is not None
    assert (ended.exit.python, ended.exit.jvm) == ("FENCED", "FENCED")
    assert (launcher.living(), launcher.highest_epoch(NAME)) == ([(NAME, 9)], 9)
    ground.prune(4)
    assert launcher.sight(NAME, 9).liveness in ALIVE


@on_this_host
def test_a_standby_is_not_the_applications_driver_and_fences_nobody(ground: Ground) -> None:
    launcher = ground.launcher
    _launch(launcher, 3)
    launcher.launch(replace(_spec(5), standby=True), Assignment(0, 5), "<allocations/>")
    ground.until(5, Liveness.ALIVE)
    assert launcher.living() == [(NAME, 3), (NAME, 5)]
    assert launcher.highest_epoch(NAME) == 5
    launcher.kill(NAME, 3, Reason.GIVEN_UP)
    ground.until(3, Liveness.EXITED)
    assert launcher.sight(NAME, 5).liveness is Liveness.ALIVE


@on_this_host
def test_a_standby_below_a_later_driver_never_lives(ground: Ground) -> None:
    launcher = ground.launcher
    _launch(launcher, 9)
    launcher.launch(replace(_spec(4), standby=True), Assignment(0, 4), "<allocations/>")
    ended = ground.until(4, Liveness.EXITED)
    assert ended.exit is not None
    assert ended.exit.python == "FENCED"


@on_this_host
def test_a_driver_whose_files_go_is_seen_and_is_no_second_time_started(ground: Ground) -> None:
    launcher = ground.launcher
    _launch(launcher, 3)
    known = ground.until(3, Liveness.ALIVE).process
    ground.lose_files()
    seen = launcher.sight(NAME, 3, identity=known)
    assert (seen.liveness, seen.process, seen.without_files) == (Liveness.ALIVE, known, True)
    assert (seen.status, seen.assignment_generation) == (None, 0)
    _launch(launcher, 3)
    launcher.assign(NAME, Assignment(2, 3))
    assert (launcher.living(), launcher.highest_epoch(NAME)) == ([(NAME, 3)], 3)
    ground.find_files()
    seen = launcher.sight(NAME, 3, identity=known)
    assert (seen.liveness, seen.without_files) == (Liveness.ALIVE, False)
    assert known.items() <= seen.process.items()  # its JVM may have been added since
    assert seen.assignment_generation == 1


def test_a_driver_without_files_is_ended_while_it_executes_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For that moment, its command line and environment are empty (proc(5))."""
    ground = Processes(tmp_path, monkeypatch, HANGS)
    _launch(ground.launcher, 3)
    known = ground.until(3, Liveness.ALIVE).process
    ground.lose_files()
    listed, looks = sighting.processes_of, iter(range(3))
    monkeypatch.setattr(
        sighting,
        "processes_of",
        lambda directory: [] if next(looks, None) is not None else listed(directory),
    )
    ground.launcher.kill(NAME, 3, Reason.GIVEN_UP)
    assert ground.launcher.sight(NAME, 3, identity=known).liveness is Liveness.GONE
    ground.find_files()
    ground.until(3, Liveness.EXITED)


@on_this_host
def test_a_driver_whose_files_go_can_be_ended(ground: Ground) -> None:
    launcher = ground.launcher
    _launch(launcher, 3)
    known = ground.until(3, Liveness.ALIVE).process
    ground.lose_files()
    launcher.kill(NAME, 3, Reason.GIVEN_UP)
    assert launcher.living() == []
    assert launcher.sight(NAME, 3, identity=known) == Sighting(Liveness.GONE, known)
    assert launcher.sight(NAME, 3).liveness is Liveness.ABSENT
    ground.find_files()
    ended = ground.until(3, Liveness.EXITED).exit
    assert ended is not None
    assert ended.python == "SIGKILL"


def test_a_refused_launch_starts_nothing_and_can_be_completed(ground: Ground) -> None:
    ground.refuse()
    with pytest.raises(LaunchRefused, match=ground.refusal) as refused:
        _launch(ground.launcher, 1)
    assert not refused.value.passing
    assert ground.launcher.sight(NAME, 1).liveness is Liveness.ABSENT
    assert ground.launcher.living() == []
    ground.accept()
    _launch(ground.launcher, 1)
    assert ground.launcher.sight(NAME, 1).liveness in ALIVE


def test_a_sealed_driver_is_never_started(ground: Ground) -> None:
    launcher = ground.launcher
    assert launcher.seal(NAME, 3)
    sealed = launcher.sight(NAME, 3)
    assert sealed.liveness is Liveness.EXITED
    assert sealed.exit is not None
    assert (sealed.exit.python, sealed.exit.jvm, sealed.exit.last_seq) == ("UNKNOWN", "UNKNOWN", 0)
    _launch(launcher, 3)
    assert launcher.seal(NAME, 3)
    assert launcher.sight(NAME, 3) == sealed
    assert launcher.living() == []
    _launch(launcher, 4)
    assert launcher.sight(NAME, 4).liveness in ALIVE


def test_a_refused_driver_can_be_sealed(ground: Ground) -> None:
    ground.refuse()
    with pytest.raises(LaunchRefused):
        _launch(ground.launcher, 1)
    assert ground.launcher.seal(NAME, 1)
    ground.accept()
    _launch(ground.launcher, 1)
    assert ground.launcher.living() == []


def test_what_has_begun_is_not_sealed(ground: Ground) -> None:
    launcher = ground.launcher
    _launch(launcher, 3)
    assert not launcher.seal(NAME, 3)
    ground.until(3, Liveness.ALIVE)
    assert not launcher.seal(NAME, 3)
    launcher.kill(NAME, 3, Reason.GIVEN_UP)
    ended = ground.until(3, Liveness.EXITED).exit
    assert launcher.seal(NAME, 3)
    assert launcher.sight(NAME, 3).exit == ended


def test_code_is_frozen_by_its_content(ground: Ground, tmp_path: Path) -> None:
    launcher, roots = ground.launcher, (str(tmp_path / "users_code"),)
    copies, digest = launcher.freeze_code(roots)
    assert launcher.freeze_code(roots) == (copies, digest)
    assert len(copies) == len(roots)
    assert launcher.frozen_code(1, digest) == copies
    ground.edit_code()
    others, other = launcher.freeze_code(roots)
    assert other != digest
    assert set(others).isdisjoint(copies)
    assert launcher.frozen_code(1, digest) == copies
    assert launcher.freeze_code(()) == ((), "")
    assert launcher.frozen_code(0, "") == ()
    assert launcher.frozen_code(1, "0" * 64) is None


def test_a_log_is_read_from_its_end_and_a_spool_from_a_number_on(ground: Ground) -> None:
    _launch(ground.launcher, 1)
    ground.until(1, Liveness.ALIVE)
    ground.write_log(1, "one\ntwo\nthree\n")
    assert ground.launcher.log_tail(NAME, 1, lines=2) == "two\nthree"
    assert ground.launcher.log_size(NAME, 1) == 14
    assert ground.launcher.log_part(NAME, 1, start=4, size=100) == b"two\nthree\n"
    assert ground.launcher.log_part(NAME, 1, start=4, size=3) == b"two"
    assert ground.launcher.log_part(NAME, 1, start=99, size=3) == b""
    ground.spool(1, {4: b"{}", 5: b'{"a": 1}', 6: b'{"a": 2}'})
    assert list(ground.launcher.spooled(1, 5)) == [(5, b'{"a": 1}'), (6, b'{"a": 2}')]
    assert list(ground.launcher.spooled(2, 0)) == []


def test_a_probe_lives_its_own_life(ground: Ground) -> None:
    launcher = ground.launcher
    task = XrayTask("file:///nowhere", limit_s=600, rows=1).dumps()
    for epoch in (2, 3):
        launcher.launch_probe(replace(_spec(epoch), probe=True), task)
        assert launcher.sight(NAME, epoch, probe=True).liveness in ALIVE
    assert launcher.sight(NAME, 2).liveness is Liveness.ABSENT
    assert (launcher.living(), launcher.highest_epoch(NAME)) == ([], 3)
    ground.until(2, Liveness.ALIVE, probe=True)
    launcher.end_probe(NAME, 2)
    ended = ground.until(2, Liveness.EXITED, probe=True)
    assert ended.exit is not None
    assert ended.exit.python == "SIGKILL"
    launcher.launch_probe(replace(_spec(2), probe=True), task)
    assert launcher.sight(NAME, 2, probe=True).exit == ended.exit
    launcher.forget_result(NAME, 2)
    assert launcher.probe_result(NAME, 2) == ""
    ground.until(3, Liveness.ALIVE, probe=True)
    launcher.end_probes()
    ground.until(3, Liveness.EXITED, probe=True)
    ground.prune(2, probe=True)
    assert launcher.sight(NAME, 3, probe=True).liveness is Liveness.EXITED


@pytest.mark.promise
def test_a_driver_takes_its_runs_keeps_their_ends_and_leaves_when_asked(
    obliging: Ground, tmp_path: Path
) -> None:
    launcher = obliging.launcher
    entry = _entry(tmp_path)

    def until(*states: RunState) -> tuple[RunStatus, ...]:
        def look() -> tuple[tuple[RunStatus, ...]] | None:
            seen = launcher.sight(NAME, 1, locations=(entry.checkpoint,))
            assert seen.liveness in ALIVE, seen
            status = seen.status
            if status is None or not status.ready:
                return None
            return (status.runs,) if tuple(r.state for r in status.runs) == states else None

        return wait_for(look, f"the runs are {states}")[0]

    spec = replace(_spec(1), checkpoints=(entry.checkpoint,))
    launcher.launch(spec, Assignment(1, 1, (entry,)), "<allocations/>")
    until(RunState.RUNNING)
    second = replace(entry, query=2, name="q2", run=8, epoch=8)  # on the same checkpoint
    launcher.assign(NAME, Assignment(2, 1, (entry, second)))
    _, refused = until(RunState.RUNNING, RunState.REFUSED)
    assert refused.error is not None
    jvm = launcher.sight(NAME, 1).status
    assert jvm is not None
    assert (refused.error.refused, refused.error.holder_pid) == ("own", jvm.jvm_pid)
    launcher.assign(NAME, Assignment(3, 1, (replace(entry, want=Want.STOP),)))
    (ended,) = until(RunState.ENDED)
    assert (ended.run, ended.asked_for, ended.error) == (7, Want.STOP, None)
    third = replace(second, run=9, epoch=9)
    launcher.assign(NAME, Assignment(4, 1, (third,)))
    until(RunState.RUNNING)
    launcher.assign(NAME, Assignment(5, 1))
    until()
    assert obliging.until(1, Liveness.ALIVE).assignment_generation == 5
    launcher.terminate(NAME, 1)
    report = obliging.until(1, Liveness.EXITED).exit
    assert report is not None
    assert (report.python, report.jvm, report.oom) == ("0", "0", False)


@pytest.mark.guarantee("G-START-2")
@pytest.mark.promise
def test_a_standby_executes_nothing_before_it_takes_over(obliging: Ground, tmp_path: Path) -> None:
    launcher = obliging.launcher
    entry = _entry(tmp_path)
    spec = replace(_spec(5), checkpoints=(entry.checkpoint,), standby=True)
    launcher.launch(spec, Assignment(0, 5), "<allocations/>")

    def until(states: tuple[RunState, ...]) -> None:
        def look() -> bool:
            status = launcher.sight(NAME, 5).status
            return bool(status and status.ready and tuple(r.state for r in status.runs) == states)

        wait_for(look, f"the runs are {states}")

    until(())
    with pytest.MonkeyPatch.context() as patch:  # what a worker that dies in between leaves
        if isinstance(obliging, Processes):
            patch.setattr(obliging.local, "_make_current", lambda *_: None)
            launcher.assign(NAME, Assignment(1, 5, (entry,)))
            wait_for(lambda: launcher.sight(NAME, 5).assignment_generation == 1, "it is written")
            time.sleep(3 * LOOK_S)  # its absence has no event to wait for
            status = launcher.sight(NAME, 5).status
            assert status is not None
            assert not status.runs
    launcher.assign(NAME, Assignment(2, 5, (entry,)))
    until((RunState.RUNNING,))
    launcher.terminate(NAME, 5)
    obliging.until(5, Liveness.EXITED)
