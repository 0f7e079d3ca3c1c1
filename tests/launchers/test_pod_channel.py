"""The channel between a driver's pod and the control plane, over a real web server."""

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.test import Client
from django.utils import timezone

from controlplane import hosts
from headgate_ground import identities, spool
from headgate_ground.files import replace_file
from queries.domain.protocol import (
    ASSIGNMENT,
    DRIVER_LOG,
    EXIT,
    HOST_SEEN,
    IDENT,
    POOLS,
    SPARK_LOG,
    SPEC,
    STATUS,
    Assignment,
    AssignmentEntry,
    Current,
    DriverSpec,
    DriverStatus,
    ExitReport,
    Ident,
    Want,
)
from queries.domain.states import DriverState, Reason
from queries.driver_folder import DriverFolder, current_file
from queries.launchers.pods import agent, fetch, layout
from queries.launchers.pods.channel import Down, Line, Up
from queries.launchers.pods.driver import DriverInPod
from queries.launchers.pods.layout import ARCHIVES, MADE, PLAN, TERMINATE, Archive, Made, Plan
from queries.models.drivers import Driver, Host
from tests.launchers.web_process import LIMIT_S, Web
from tests.scenarios.stage import Stage
from tests.spark.driver_under_test import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

NAME, EPOCH, UID = "flights", 7, "0c9a-uid"
#: A JVM that never comes up.
HANGS = '#!/bin/sh\ncase "$*" in *-version) exit 1 ;; esac\nexec sleep 600\n'
#: A driver's Python, as far as signals are concerned: it says which it was sent.
STAND_IN = """
import signal, sys, pathlib
signal.signal(signal.SIGUSR1, lambda *_: pathlib.Path(sys.argv[1]).write_text("nudged"))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
while True:
    signal.pause()
"""


@dataclass
class PodOfTest:
    """A pod's mounted folders, and the control plane's copy of its driver's folder."""

    row: Driver
    home: Path
    url: str
    copy: DriverFolder

    @property
    def token(self) -> str:
        """Return the token that the launcher has given to it."""
        return hosts.pod_token(self.row.pk, EPOCH)

    @property
    def headers(self) -> dict[str, str]:
        """Return what proves that a request comes from it."""
        return {"Authorization": f"Bearer {self.token}", layout.UID_HEADER: UID}

    @property
    def folder(self) -> DriverFolder:
        """Return the driver's folder in the pod."""
        return DriverFolder.of(self.home / "work/drivers" / NAME / str(EPOCH))

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of its containers."""
        return {
            **os.environ,
            "JAVA_HOME": str(self.home / "java"),
            "HEADGATE_POD_INTENT": str(self.home / "intent"),
            "HEADGATE_POD_SECRET": str(self.home / "secret"),
            "HEADGATE_POD_WORK": str(self.home / "work"),
            "HEADGATE_POD_JARS": str(self.home / "jars"),
            "HEADGATE_POD_TERMINATION_LOG": str(self.home / "termination-log"),
            layout.POD_UID: UID,
        }

    def plan(self, *archives: Archive, url: str = "") -> None:
        """Write what the launcher mounts into it."""
        plan = Plan(url or self.url, EPOCH, NAME, archives)
        replace_file(self.home / "intent" / PLAN, plan.dumps())

    def line(self) -> Line:
        """Return a connection of its own."""
        return Line(self.url, self.headers, self.home / "none")

    def spec(self) -> DriverSpec:
        """Return the driver's spec."""
        return DriverSpec(
            driver=self.row.pk,
            epoch=EPOCH,
            application=NAME,
            installation="here",
            host="a-cluster",
            master="local[2]",
            memory="512m",
            conf={},
            env={},
            code_roots=(),
            code_sha256="",
            scheduler_mode="FAIR",
            listeners=(),
            redis_url="redis://127.0.0.1:9/0",
            stream="events",
            env_allowlist=("PASSWORD",),
            stop_timeout_s=0.1,
        )

    def assign(self, assignment: Assignment) -> None:
        """Write an assignment as the launcher does."""
        replace_file(self.copy.control / ASSIGNMENT, assignment.dumps())

    def assigned(self) -> Assignment:
        """Return the driver's assignment."""
        return Assignment.loads((self.folder.control / ASSIGNMENT).read_text())


def _entry(want: Want = Want.RUN) -> AssignmentEntry:
    return AssignmentEntry(
        query=1, name="q1", run=7, epoch=7, spec={}, checkpoint="file:///c", pool="", want=want
    )


@pytest.fixture
def web(transactional_db: None) -> Iterator[Web]:
    """Return the web process over an empty database."""
    running = Web()
    running.start()
    yield running
    running.stop()


def _made(home: Path, settings: LazySettings, url: str) -> PodOfTest:
    settings.DRIVERS_DIR = home / "control-plane" / "drivers"
    application = Stage().application(NAME)
    assert application.target_revision is not None
    now = timezone.now()
    row = Driver.objects.create(
        application=application,
        application_revision=application.target_revision,
        epoch=EPOCH,
        host="a-cluster",
        created_at=now,
        state_since=now,
    )
    Host.objects.create(name="a-cluster", seen_at=now)
    copy = DriverFolder.make(settings.DRIVERS_DIR / NAME / str(EPOCH))
    pod = PodOfTest(row, home, f"{url}/pods/{EPOCH}", copy)
    for name in ("intent", "secret", "work", "jars", "java/bin"):
        (home / name).mkdir(parents=True)
    (home / "java/bin/java").write_text(HANGS)
    (home / "java/bin/java").chmod(0o755)
    (home / "termination-log").touch()
    pod.plan()
    replace_file(home / "intent" / ASSIGNMENT, Assignment(1, EPOCH, (_entry(),)).dumps())
    replace_file(home / "intent" / POOLS, "<allocations/>")
    replace_file(home / "secret" / SPEC, pod.spec().dumps())
    replace_file(home / "secret/token", pod.token)
    replace_file(home / "secret/env.PASSWORD", "a password of the cast")
    replace_file(home / "secret/file.key", "a key of the cast")
    replace_file(copy.control / MADE, Made("flights-7", "team", "digest", UID).dumps())
    return pod


@pytest.fixture
def pod(web: Web, tmp_path: Path, settings: LazySettings) -> PodOfTest:
    """Return a pod whose driver has a row, and nothing runs in it."""
    return _made(tmp_path, settings, f"http://127.0.0.1:{web.port}")


@contextmanager
def _running(run: Callable[[], None], over: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(LIMIT_S)


@contextmanager
def _sending(pod: PodOfTest) -> Iterator[Up]:
    """Send the files of a pod's driver, which is not there."""
    DriverFolder.make(pod.folder.root)
    over = threading.Event()
    driver = DriverInPod(pod.folder, pod.spec(), pod.home / "intent")
    up = Up(pod.line(), driver, over)
    with _running(up.run, over):
        yield up


@contextmanager
def _listening(pod: PodOfTest) -> Iterator[DriverInPod]:
    """Ask for the news of a pod's driver."""
    DriverFolder.make(pod.folder.root)
    over = threading.Event()
    driver = DriverInPod(pod.folder, pod.spec(), pod.home / "intent")
    driver.write_intent()
    down = Down(pod.line(), driver, over)
    with _running(down.run, over):
        yield driver


@contextmanager
def _python(pod: PodOfTest) -> Iterator["subprocess.Popen[str]"]:
    """Run a process in place of the driver's Python, and name it in the pod's ident.json."""
    argv = [sys.executable, "-c", STAND_IN, str(pod.home / "nudged")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        started = identities.start_time(process.pid) or 0
        ident = Ident(identities.boot_id(), process.pid, started, 1, 1, "")
        DriverFolder.make(pod.folder.root)
        replace_file(pod.folder.control / IDENT, ident.dumps())
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _agent(pod: PodOfTest, changes: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """Run the pod's container, after a line of Python that changes its agent."""
    argv = [sys.executable, "-P", "-m", "queries.launchers.pods.agent"]
    if changes:
        run = f"from queries.launchers.pods import agent; {changes}; raise SystemExit(agent.main())"
        argv[-2:] = ["-c", run]
    environ = {**pod.environ, "PYTHONPATH": str(Path(agent.__file__).parents[3])}
    process = subprocess.Popen(argv, env=environ)
    try:
        yield process
    finally:
        ident = pod.folder.control / IDENT
        process.kill()
        process.wait()
        if ident.exists():
            known = Ident.loads(ident.read_text())
            identities.kill_and_wait(known.pid, known.start_time, LIMIT_S)
            identities.wait_end(known.shim_pid, known.shim_start_time, LIMIT_S)


def _arrives(file: Path, data: bytes) -> None:
    wait_for(lambda: file.exists() and file.read_bytes() == data, f"{file.name} arrives", LIMIT_S)


def _status(generation: int) -> str:
    return DriverStatus(epoch=EPOCH, applied_generation=generation, at="").dumps()


# --- upwards --------------------------------------------------------------------------


def test_a_status_that_is_written_in_the_pod_appears_in_the_copy(pod: PodOfTest) -> None:
    with _sending(pod):
        for generation in (1, 2):
            replace_file(pod.folder.own / STATUS, _status(generation))
            _arrives(pod.copy.own / STATUS, _status(generation).encode())


def test_a_log_grows_is_emptied_and_goes_on_after_the_web_process_was_away(
    pod: PodOfTest, web: Web
) -> None:
    with _sending(pod):
        log, copy = pod.folder.own / DRIVER_LOG, pod.copy.own / DRIVER_LOG
        text = b"".join(b"line %d of a long log\n" % number for number in range(100_000))
        assert len(text) > layout.MOST_OF_PART
        log.write_bytes(text)
        _arrives(copy, text)
        web.stop()
        with log.open("ab") as file:
            file.write(b"written while nobody listened\n")
        web.start()
        _arrives(copy, text + b"written while nobody listened\n")
        os.truncate(log, 0)
        _arrives(copy, b"")
        log.write_bytes(b"anew\n")
        _arrives(copy, b"anew\n")
        log.rename(log.with_name("driver.log.1"))
        log.write_bytes(b"another file\n")
        _arrives(copy, b"another file\n")


def test_a_log_is_continued_where_the_copy_ends(pod: PodOfTest) -> None:
    with _sending(pod):
        log, copy = pod.folder.own / DRIVER_LOG, pod.copy.own / DRIVER_LOG
        log.write_bytes(b"one\n")
        _arrives(copy, b"one\n")
        os.truncate(copy, 2)  # as after a crash of the control plane's host
        with log.open("ab") as file:
            file.write(b"two\n")
        _arrives(copy, b"one\ntwo\n")


def test_a_link_in_place_of_the_log_is_not_followed(pod: PodOfTest) -> None:
    secret = pod.home / "secret of somebody else"
    secret.write_text("not for this driver")
    with _sending(pod):
        own = pod.folder.own
        (own / DRIVER_LOG).symlink_to(secret)
        (own / SPARK_LOG).write_text("")
        os.mkfifo(own / "last_seq")
        replace_file(own / STATUS, _status(1))
        _arrives(pod.copy.own / STATUS, _status(1).encode())
        _arrives(pod.copy.own / SPARK_LOG, b"")
        replace_file(own / STATUS, _status(2))  # a second round
        _arrives(pod.copy.own / STATUS, _status(2).encode())
    assert not (pod.copy.own / DRIVER_LOG).exists()
    assert not (pod.copy.own / "last_seq").exists()


def test_segments_of_the_spool_arrive_and_go(pod: PodOfTest) -> None:
    with _sending(pod):
        folder = pod.folder.own / spool.FOLDER
        folder.mkdir()
        first, second = (folder / spool.segment_name(seq) for seq in (1, 9))
        first.write_bytes(spool.line(1, b"{}"))
        second.write_bytes(spool.line(9, b"{}"))
        (folder / "not a segment.events").write_text("nothing of ours")
        copy = pod.copy.own / spool.FOLDER
        _arrives(copy / second.name, spool.line(9, b"{}"))
        with first.open("ab") as file:
            file.write(spool.line(2, b"{}"))
        _arrives(copy / first.name, spool.line(1, b"{}") + spool.line(2, b"{}"))
        first.unlink()
        wait_for(lambda: not (copy / first.name).exists(), "the segment is gone", LIMIT_S)
        assert [path.name for path in copy.iterdir()] == [second.name]


def test_the_exit_arrives_after_everything_else(pod: PodOfTest) -> None:
    DriverFolder.make(pod.folder.root)
    text = b"x" * (3 * layout.MOST_OF_PART)
    (pod.folder.own / DRIVER_LOG).write_bytes(text)
    report = ExitReport("0", "0", core=False, oom=False, at="").dumps()
    replace_file(pod.folder.control / EXIT, report)
    replace_file(pod.folder.own / STATUS, _status(3))
    with _sending(pod) as up:
        _arrives(pod.copy.own / EXIT, report.encode())
        assert (pod.copy.own / DRIVER_LOG).read_bytes() == text
        assert (pod.copy.own / STATUS).read_text() == _status(3)
        written = [(pod.copy.own / name).stat().st_mtime_ns for name in (STATUS, DRIVER_LOG, EXIT)]
        assert written == sorted(written)
        assert up.all_sent.wait(LIMIT_S)
    assert not (pod.copy.control / EXIT).exists()


# --- the control plane's end ----------------------------------------------------------


@pytest.fixture
def quiet_pod(transactional_db: None, tmp_path: Path, settings: LazySettings) -> PodOfTest:
    """Return a pod that is only asked about, without a server."""
    return _made(tmp_path, settings, "http://nobody")


#: Each address with a method that it takes.
ADDRESSES = (
    *(("GET", "news"), ("GET", f"archives/{'0' * 64}"), ("PUT", "files/status.json")),
    *(("PUT", "files/driver.log?at=0"), ("PUT", f"files/spool/{spool.segment_name(1)}?at=0")),
    ("DELETE", f"files/spool/{spool.segment_name(1)}"),
)


def _ask(
    pod: PodOfTest,
    method: str,
    address: str,
    body: bytes = b"x",
    epoch: int = EPOCH,
    **changed: str,
) -> Any:
    headers = {**pod.headers, **{name.replace("_", "-"): text for name, text in changed.items()}}
    kind = "application/octet-stream"
    return Client(enforce_csrf_checks=True).generic(
        method, f"/pods/{epoch}/{address}", body, content_type=kind, headers=headers
    )


@pytest.mark.guarantee("G-POD-1")
@pytest.mark.parametrize(("method", "address"), ADDRESSES)
def test_without_its_own_token_and_uid_a_pod_learns_and_changes_nothing(
    quiet_pod: PodOfTest, method: str, address: str
) -> None:
    pod = quiet_pod
    before = sorted(pod.copy.root.rglob("*"))
    of_another_epoch = hosts.pod_token(pod.row.pk, EPOCH - 1)
    of_another_driver = hosts.pod_token(pod.row.pk + 1, EPOCH)
    answers = [
        _ask(pod, method, address, Authorization=f"Bearer {text}")
        for text in ("", "0" * 64, of_another_epoch, of_another_driver, pod.token[:-1])
    ]
    answers += [
        _ask(pod, method, address, Authorization=pod.token),
        _ask(pod, method, address, X_Headgate_Pod="of another pod"),
        _ask(pod, method, address, epoch=EPOCH + 1),
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert sorted(pod.copy.root.rglob("*")) == before


def test_a_pod_is_known_by_its_token_alone_until_the_launcher_has_recorded_its_uid(
    quiet_pod: PodOfTest,
) -> None:
    made = Made.loads((quiet_pod.copy.control / MADE).read_text())
    replace_file(quiet_pod.copy.control / MADE, replace(made, uid="").dumps())
    assert _ask(quiet_pod, "GET", "news", X_Headgate_Pod="any").status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        *("spec.json", "assignment.json", "pod.json", "kill_reason", "shim.lock", ".status.json"),
        *("spool/x.events", "spool/1.events", "spool/..", "..%2Fcontrol%2Fexit.json"),
        *(f"spool/{'0' * 20}.eventsx", f"spool/..%2F{'0' * 20}.events"),
    ],
)
def test_no_other_name_is_accepted(quiet_pod: PodOfTest, name: str) -> None:
    before = sorted(quiet_pod.copy.root.rglob("*"))
    answer = _ask(quiet_pod, "PUT", f"files/{name}?at=0")
    assert answer.status_code in {401, 404}
    assert sorted(quiet_pod.copy.root.rglob("*")) == before


def test_a_part_is_accepted_only_where_the_file_ends(quiet_pod: PodOfTest) -> None:
    pod = quiet_pod
    log = pod.copy.own / DRIVER_LOG
    assert _ask(pod, "PUT", "files/driver.log?at=0", b"one").status_code == 204
    assert _ask(pod, "PUT", "files/driver.log?at=3", b"two").status_code == 204
    other = _ask(pod, "PUT", "files/driver.log?at=3", b"two")
    assert (other.status_code, other.json()) == (409, {"size": 6})
    assert _ask(pod, "PUT", "files/driver.log?at=-1", b"two").status_code == 400
    assert _ask(pod, "PUT", "files/driver.log", b"two").status_code == 400
    assert log.read_bytes() == b"onetwo"
    assert _ask(pod, "PUT", "files/driver.log?at=0", b"new").status_code == 204
    assert log.read_bytes() == b"new"


def test_what_is_too_large_is_rejected(quiet_pod: PodOfTest) -> None:
    pod = quiet_pod
    for address, most in (
        ("files/driver.log?at=0", layout.MOST_OF_PART),
        (f"files/spool/{spool.segment_name(1)}?at=0", layout.MOST_OF_PART),
        ("files/status.json", layout.MOST_OF_WHOLE),
    ):
        assert _ask(pod, "PUT", address, b"x" * (most + 1)).status_code == 413
        assert _ask(pod, "PUT", address, b"x" * most).status_code == 204
    log = pod.copy.own / DRIVER_LOG
    os.truncate(log, layout.MOST_OF_GROWING)
    address = f"files/driver.log?at={layout.MOST_OF_GROWING}"
    assert _ask(pod, "PUT", address, b"x").status_code == 413


def test_a_link_in_the_copy_is_not_followed(quiet_pod: PodOfTest) -> None:
    victim = quiet_pod.home / "victim"
    victim.write_text("ours")
    own = quiet_pod.copy.own
    (own / DRIVER_LOG).symlink_to(victim)
    (own / STATUS).symlink_to(victim)
    assert _ask(quiet_pod, "PUT", "files/driver.log?at=0").status_code == 503
    assert _ask(quiet_pod, "PUT", "files/status.json").status_code == 204
    assert victim.read_text() == "ours"
    assert (own / STATUS).read_text() == "x"


def test_after_its_end_a_driver_gets_no_news_and_its_files_are_accepted_for_some_minutes(
    quiet_pod: PodOfTest,
) -> None:
    pod = quiet_pod
    for changed, files in (
        ({"end_wanted": Reason.HOST_GONE}, 204),
        ({"state": DriverState.ENDED, "ended_at": timezone.now()}, 204),
        ({"ended_at": timezone.now() - timedelta(minutes=11)}, 410),
    ):
        Driver.objects.filter(pk=pod.row.pk).update(**changed)
        assert _ask(pod, "GET", "news").status_code == 410
        assert _ask(pod, "PUT", "files/driver.log?at=0").status_code == files


# --- downwards ------------------------------------------------------------------------


def test_a_newer_assignment_arrives_and_nudges_the_driver_and_an_older_one_does_not(
    pod: PodOfTest,
) -> None:
    with _python(pod), _listening(pod) as driver:
        assert pod.assigned().generation == 1
        pod.assign(Assignment(5, EPOCH, (_entry(),)))
        wait_for(lambda: pod.assigned().generation == 5, "the assignment arrives", LIMIT_S)
        wait_for((pod.home / "nudged").exists, "the driver is nudged", LIMIT_S)
        driver.assign(Assignment(4, EPOCH))
        driver.assign(Assignment(5, EPOCH))
        driver.assign(Assignment(9, EPOCH + 1))
        assert pod.assigned() == Assignment(5, EPOCH, (_entry(),))
        replace_file(pod.home / "intent" / ASSIGNMENT, Assignment(6, EPOCH).dumps())
        driver.look_at_mount()
        assert pod.assigned().generation == 6


def test_a_driver_that_must_exit_is_asked_to(pod: PodOfTest) -> None:
    with _python(pod) as python, _listening(pod):
        (pod.copy.control / TERMINATE).touch()
        assert python.wait(LIMIT_S) == 0


@pytest.mark.guarantee("G-POD-2")
def test_a_driver_sees_that_the_control_plane_responds_while_its_host_sends_heartbeats(
    pod: PodOfTest,
) -> None:
    seen = pod.folder.control / HOST_SEEN
    with _listening(pod):
        wait_for(seen.exists, "the heartbeat is seen", LIMIT_S)
    seen.unlink()
    Host.objects.update(seen_at=timezone.now() - timedelta(minutes=1))
    with _listening(pod):
        pod.assign(Assignment(5, EPOCH))
        wait_for(lambda: pod.assigned().generation == 5, "news arrive", LIMIT_S)
    assert not seen.exists()


def test_a_later_epoch_or_the_end_of_its_row_supersedes_a_driver(pod: PodOfTest) -> None:
    current = current_file(pod.copy.root.parent)
    current.parent.mkdir()
    replace_file(current, Current(EPOCH, "").dumps())
    with _listening(pod) as driver:
        pod.assign(Assignment(5, EPOCH))
        wait_for(lambda: pod.assigned().generation == 5, "news arrive", LIMIT_S)
        assert not driver.superseded.is_set()
        replace_file(current, Current(EPOCH + 1, "").dumps())
        assert driver.superseded.wait(LIMIT_S)
    replace_file(current, Current(EPOCH, "").dumps())
    Driver.objects.update(state=DriverState.ENDED, ended_at=timezone.now())
    with _listening(pod) as driver:
        assert driver.superseded.wait(LIMIT_S)


# --- the agent ------------------------------------------------------------------------


def test_an_agent_starts_the_driver_and_kills_it_once_it_is_superseded(pod: PodOfTest) -> None:
    with _agent(pod) as container:
        wait_for((pod.copy.own / IDENT).exists, "the identity arrives", LIMIT_S)
        spec = DriverSpec.loads((pod.folder.control / SPEC).read_text())
        assert spec.host == f"pod:{UID}"
        assert (Path(spec.secrets_dir) / "key").read_text() == "a key of the cast"
        ident = Ident.loads((pod.copy.own / IDENT).read_text())
        assert identities.environment(ident.pid)["PASSWORD"] == "a password of the cast"
        assert "PASSWORD" not in identities.environment(container.pid)
        current = Current.loads(current_file(pod.folder.root.parent).read_text())
        assert current == Current(EPOCH, str(pod.folder.root))
        Driver.objects.update(end_wanted=Reason.HOST_GONE)
        assert container.wait(LIMIT_S) == 0
        report = ExitReport.loads((pod.copy.own / EXIT).read_text())
        assert report.python == "SIGKILL"
        assert not identities.is_alive(ident.pid, ident.start_time)


def test_a_pod_that_is_deleted_lets_batches_end_before_its_driver_must(pod: PodOfTest) -> None:
    with _agent(pod) as container:
        wait_for((pod.copy.own / IDENT).exists, "the identity arrives", LIMIT_S)
        container.send_signal(signal.SIGTERM)
        wait_for(lambda: pod.assigned().end, "the assignment is changed", LIMIT_S)
        assert pod.assigned() == Assignment(1, EPOCH, (_entry(Want.DRAIN),), end=True)
        pod.assign(Assignment(3, EPOCH, (_entry(),)))
        wait_for(lambda: pod.assigned().generation == 3, "a newer one arrives", LIMIT_S)
        assert pod.assigned() == Assignment(3, EPOCH, (_entry(Want.DRAIN),), end=True)
        assert container.poll() is None
        ident = Ident.loads((pod.folder.control / IDENT).read_text())
        identities.send(ident.pid, ident.start_time, signal.SIGKILL)  # it ends by itself
        assert container.wait(LIMIT_S) == 0
        assert (pod.copy.own / EXIT).exists()


def test_the_driver_of_a_pod_that_is_deleted_is_asked_to_exit_in_time(
    pod: PodOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(agent.GRACE, "11")
    with _agent(pod) as container:
        wait_for((pod.copy.own / IDENT).exists, "the identity arrives", LIMIT_S)
        container.send_signal(signal.SIGTERM)
        assert container.wait(LIMIT_S) == 0
        assert (pod.copy.own / EXIT).exists()


def test_a_pod_that_is_deleted_does_not_wait_for_a_control_plane_that_has_ended(
    pod: PodOfTest, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(agent.GRACE, "11")
    with _agent(pod, "agent.LAST_FILES_S = float('inf')") as container:
        wait_for((pod.copy.own / IDENT).exists, "the identity arrives", LIMIT_S)
        web.stop()
        container.send_signal(signal.SIGTERM)
        container.wait(LIMIT_S)
        assert (pod.folder.control / EXIT).exists()
        assert not (pod.copy.own / EXIT).exists()


def test_an_agent_imports_neither_django_nor_pydantic() -> None:
    code = "import queries.launchers.pods.agent, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"django", "pydantic", "redis", "celery", "pyspark"} & set(done.stdout.split())


# --- archives -------------------------------------------------------------------------


def _fetch(pod: PodOfTest) -> "subprocess.CompletedProcess[str]":
    """Run the init container as Kubernetes does."""
    source = Path(fetch.__file__).read_text()
    environ = {key: text for key, text in pod.environ.items() if key != "PYTHONPATH"}
    argv = [sys.executable, "-I", "-c", source]
    return subprocess.run(
        argv, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def _listed(pod: PodOfTest, *files: Path) -> list[str]:
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    listed = dict(zip(digests, map(str, files), strict=True))
    replace_file(pod.copy.control / ARCHIVES, json.dumps(listed))
    return digests


@pytest.fixture
def files(pod: PodOfTest) -> tuple[Path, Path]:
    """Return a jar and a tar file of the control plane."""
    jar, tar = pod.home / "some.jar", pod.home / "code.tar"
    jar.write_bytes(os.urandom(3_000_000))
    with tarfile.open(tar, "w") as members:
        member = tarfile.TarInfo("package/module.py")
        member.size = len(b"ONE = 1\n")
        members.addfile(member, io.BytesIO(b"ONE = 1\n"))
    return jar, tar


def test_archives_are_fetched_and_unpacked(pod: PodOfTest, files: tuple[Path, Path]) -> None:
    jar, code = _listed(pod, *files)
    pod.plan(Archive(jar, "jars/some.jar", False), Archive(code, "code/0", True))
    done = _fetch(pod)
    assert (done.returncode, done.stderr) == (0, "")
    fetched = pod.home / "work/fetched"
    assert (fetched / "jars/some.jar").read_bytes() == files[0].read_bytes()
    assert (fetched / "code/0/package/module.py").read_text() == "ONE = 1\n"
    assert sorted(path.name for path in fetched.rglob(".*")) == []


def test_a_jar_that_the_image_contains_is_not_fetched(
    pod: PodOfTest, files: tuple[Path, Path]
) -> None:
    (digest, _) = _listed(pod, *files)
    of_image = pod.home / "jars/some.jar"
    of_image.write_bytes(files[0].read_bytes())
    pod.plan(Archive(digest, "jars/some.jar", False))
    assert _fetch(pod).returncode == 0
    assert (pod.home / "work/fetched/jars/some.jar").readlink() == of_image
    of_image.write_bytes(b"another one of the same name")
    assert _fetch(pod).returncode == 0
    assert (pod.home / "work/fetched/jars/some.jar").read_bytes() == files[0].read_bytes()
    assert of_image.read_bytes() == b"another one of the same name"


def test_an_archive_of_another_driver_or_with_another_content_ends_the_start(
    pod: PodOfTest, files: tuple[Path, Path]
) -> None:
    pod.plan(Archive("1" * 64, "jars/some.jar", False))
    done = _fetch(pod)
    assert done.returncode == 1
    assert "answered 404" in done.stderr
    assert (pod.home / "termination-log").read_text() == done.stderr.strip()
    (digest, _) = _listed(pod, *files)
    files[0].write_bytes(b"changed")
    pod.plan(Archive(digest, "jars/some.jar", False))
    done = _fetch(pod)
    assert done.returncode == 1
    assert "has another content" in done.stderr
    assert not (pod.home / "work/fetched/jars/some.jar").exists()


def test_an_archive_never_gets_out_of_its_folder(pod: PodOfTest, files: tuple[Path, Path]) -> None:
    (_, code) = _listed(pod, *files)
    pod.plan(Archive(code, "../../secret/token", False))
    done = _fetch(pod)
    assert done.returncode == 1
    assert "leads out of" in done.stderr
    with tarfile.open(files[1], "w") as members:
        member = tarfile.TarInfo("../escaped")
        members.addfile(member, io.BytesIO())
    (_, code) = _listed(pod, *files)
    pod.plan(Archive(code, "code/0", True))
    done = _fetch(pod)
    assert done.returncode == 1
    assert "not a file or folder below its own" in done.stderr


def test_a_server_in_trouble_is_asked_again(pod: PodOfTest) -> None:
    content = b"a jar"
    digest = hashlib.sha256(content).hexdigest()
    asked: list[str] = []

    class Troubled(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            if len(asked) == 1:
                self.send_error(503)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:2] if len(asked) == 2 else content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Troubled) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        pod.plan(Archive(digest, "jars/some.jar", False), url=url)
        done = _fetch(pod)
        server.shutdown()
    assert (done.returncode, done.stderr) == (0, "")
    assert asked == [f"/archives/{digest} Bearer {pod.token}"] * 3
    assert (pod.home / "work/fetched/jars/some.jar").read_bytes() == content


def test_a_server_that_is_away_ends_the_start_after_the_limit(
    pod: PodOfTest, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.stop()
    monkeypatch.setenv("HEADGATE_POD_FETCH_LIMIT_S", "1")
    pod.plan(Archive("1" * 64, "jars/some.jar", False))
    done = _fetch(pod)
    assert done.returncode == 1
    assert re.search(r"no new byte has arrived; the last reason was: .*refused", done.stderr)


def test_the_init_container_uses_the_names_of_the_layout() -> None:
    assert Path(fetch.INTENT) == layout.INTENT
    assert Path(fetch.SECRET) == layout.SECRET
    assert Path(fetch.WORK) == layout.WORK
    assert Path(fetch.WORK) / fetch.FETCHED == layout.FETCHED
    for name in ("PLAN", "TOKEN", "AUTHORITIES", "POD_UID", "UID_HEADER"):
        assert getattr(fetch, name) == getattr(layout, name)
