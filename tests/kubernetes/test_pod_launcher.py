"""The launcher of drivers as pods, with a real cluster and with a stand-in for its API server."""

import json
import os
import re
import socket
import threading
import time
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from headgate_ground.files import replace_file
from headgate_server.container_images import IMAGE
from installation.machine.kubernetes import Kubernetes
from installation.machine.kubernetes_keys import DRIVERS
from queries.domain.definitions.kubernetes import (
    DRIVER_ACCOUNT,
    DRIVER_POD,
    EXECUTOR_TEMPLATE,
    NAMESPACE,
)
from queries.domain.definitions.kubernetes import IMAGE as IMAGE_KEY
from queries.domain.hosts import Mode, choose
from queries.domain.protocol import (
    EXIT,
    SPEC,
    Assignment,
    AssignmentEntry,
    Current,
    DriverSpec,
    ExitReport,
    Killer,
    Want,
)
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness, Sighting
from queries.driver_folder import current_file
from queries.launchers.base import LaunchRefused
from queries.launchers.pods import objects
from queries.launchers.pods.cluster import Cluster, Object
from queries.launchers.pods.launcher import FENCED, PodLauncher, PodSettings
from queries.launchers.pods.layout import ASKED, EXECUTOR, INTENT, MADE, Made
from queries.launchers.process import exits
from tests.kubernetes.clusters import PATIENCE_S, wait_for
from tests.kubernetes.stand_in import ApiServer, StandIn, stand_in, write_kubeconfig

KINDS = ("config_map", "secret", "pod")
#: A label of no node: its pods stay without one, so their deletion takes no time.
NOWHERE = {"spark.kubernetes.node.selector.headgate-tests": "nowhere"}
IN_NAMESPACE = ("--namespace", DRIVERS)
WORKER = "worker-1"
#: A pod that the Pod Security Standard `restricted` admits, and that no node takes.
FOREIGN: Object = {
    "nodeSelector": {"headgate-tests": "nowhere"},
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": IMAGE,
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
}


# --- API servers ----------------------------------------------------------------------


class RealCluster(ApiServer):
    """The session's cluster."""

    def __init__(self, cluster: Kubernetes) -> None:
        self._cluster, self.kubeconfig = cluster, cluster.worker_kubeconfig

    def _pod(self, name: str) -> Object:
        text = self._cluster.kubectl("get", "pod", name, *IN_NAMESPACE, "--output", "json")
        pod: Object = json.loads(text)
        return pod

    def run(self, name: str) -> None:
        def runs() -> bool:
            statuses: Any = self._pod(name)["status"].get("initContainerStatuses") or ({},)
            return "running" in statuses[0].get("state", {})

        wait_for(runs, f"{name} runs")

    def end(self, name: str) -> None:
        short = ("--grace-period=1", "--wait=false")
        self._cluster.kubectl("delete", "pod", name, *short, *IN_NAMESPACE)

    @contextmanager
    def lose(self, name: str) -> Iterator[None]:
        number = int(self._pod(name)["spec"]["nodeName"].rpartition("-")[2])
        self._cluster.stop_kubelet(number)
        try:
            forced = ("--grace-period=0", "--force", "--wait=false")
            self._cluster.kubectl("delete", "pod", name, *forced, *IN_NAMESPACE)
            yield
        finally:
            self._cluster.start_kubelet(number)
            wait_for(lambda: len(self._cluster.ready_nodes()) == 2, "both nodes are ready")


# --- the ground -----------------------------------------------------------------------


@dataclass
class Ground:
    """A launcher with an application of its own."""

    home: Path
    api: ApiServer
    application: str = field(default_factory=lambda: f"app-{uuid.uuid4().hex[:8]}")
    conf: dict[str, str] = field(default_factory=lambda: dict(NOWHERE))
    master: str = "local[2]"

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.api.kubeconfig)
        self.launcher = self.launcher_with(str(self.api.kubeconfig))

    def launcher_with(self, kubeconfig: str) -> PodLauncher:
        """Return a launcher of another worker."""
        settings = PodSettings(
            kubeconfig=kubeconfig,
            url="http://192.0.2.1:1",  # nobody there: the pod tries again
            redis_url="",
            image=IMAGE,
            authorities="",
            archives=self.home / "archives",
            host=WORKER,
            variables=("PASSWORD",),
            secrets=self.home / "secrets",
        )
        return PodLauncher(
            settings,
            drivers_dir=self.home / "drivers",
            code_dir=self.home / "code",
            secrets_dir=self.home / "secrets",
            isolation=lambda: choose(Mode.NEITHER),
        )

    def spec(self, epoch: int) -> DriverSpec:
        """Return what a driver is started with."""
        return DriverSpec(
            driver=epoch,
            epoch=epoch,
            application=self.application,
            installation="here",
            host=WORKER,
            master=self.master,
            memory="64m",
            conf=self.conf,
            env={"KEY": "file:key", "PASSWORD": "env:PASSWORD"},
            code_roots=(),
            code_sha256="",
            scheduler_mode="FAIR",
            listeners=(),
            redis_url="redis://127.0.0.1:9/0",
            stream="events",
            env_allowlist=("PASSWORD",),
            pod=True,
        )

    def launch(self, epoch: int = 1, *entries: AssignmentEntry) -> None:
        """Launch a driver."""
        self.launcher.launch(self.spec(epoch), Assignment(1, epoch, entries), "<allocations/>")

    def name(self, epoch: int = 1) -> str:
        """Return the name of a driver's objects."""
        return objects.object_name(self.spec(epoch))

    def read(self, kind: str = "pod", epoch: int = 1) -> Object | None:
        """Return one of a driver's objects as the worker's account sees it."""
        return self.cluster.read(kind, DRIVERS, self.name(epoch))

    def got(self, kind: str = "pod", epoch: int = 1) -> Object:
        """Return one that exists."""
        found = self.read(kind, epoch)
        assert found is not None, (kind, epoch)
        return found

    def uid(self, epoch: int = 1) -> str:
        """Return the UID of a driver's pod."""
        return str(self.got("pod", epoch)["metadata"]["uid"])

    def delete(self, kind: str, epoch: int = 1) -> None:
        """Delete one of a driver's objects and what it owns, and wait until it is gone."""
        uid = self.got(kind, epoch)["metadata"]["uid"]
        self.cluster.delete(kind, DRIVERS, self.name(epoch), uid)
        wait_for(lambda: self.read(kind, epoch) is None, f"the {kind} is gone")

    def control(self, epoch: int = 1) -> Path:
        """Return the folder with what the launcher has written about a driver."""
        return self.launcher.directory(self.application, epoch) / "control"

    def made(self, epoch: int = 1) -> Made:
        """Return what the launcher has recorded."""
        return Made.loads((self.control(epoch) / MADE).read_text())

    def record(self, epoch: int = 1, **changes: Any) -> None:
        """Change what the launcher has recorded."""
        replace_file(self.control(epoch) / MADE, replace(self.made(epoch), **changes).dumps())

    def sight(self, epoch: int = 1) -> Sighting:
        """Look at a driver once."""
        return self.launcher.sight(self.application, epoch)

    def until(self, liveness: Liveness, epoch: int = 1) -> Sighting:
        """Look at a driver until it is seen so."""
        wait_for(lambda: self.sight(epoch).liveness is liveness, f"driver {epoch} is {liveness}")
        return self.sight(epoch)

    def ended_hosts(self, epoch: int) -> tuple[str, ...]:
        """Return the hosts whose end a driver may count on."""
        return DriverSpec.loads((self.control(epoch) / SPEC).read_text()).ended_hosts

    def run(self, epoch: int = 1) -> Made:
        """Launch a driver; return what is recorded once it runs on a node and was sighted."""
        self.conf = {}
        self.launch(epoch)
        self.api.run(self.name(epoch))
        assert self.sight(epoch).liveness is Liveness.SPAWNING  # its code is being fetched
        return self.made(epoch)

    def leave(self) -> None:
        """Leave no object in the cluster."""
        for folder in self.home.glob(f"drivers/{self.application}/[0-9]*"):
            for kind in reversed(KINDS):
                if (item := self.read(kind, int(folder.name))) is not None:
                    uid = item["metadata"]["uid"]
                    self.cluster.delete(kind, DRIVERS, self.name(int(folder.name)), uid, grace_s=1)


@pytest.fixture(
    params=[
        "stand-in",
        pytest.param("cluster", marks=[pytest.mark.kubernetes, pytest.mark.faults]),
    ]
)
def ground(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ground]:
    """Yield a launcher for each kind of API server, and two secrets."""
    monkeypatch.setenv("PASSWORD", "a password of the cast")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("a key of the cast")
    if request.param == "stand-in":
        with stand_in(tmp_path) as api:
            yield Ground(tmp_path, api)
        return
    made = Ground(tmp_path, RealCluster(request.getfixturevalue("kubernetes")))
    yield made
    made.leave()


# --- launch ---------------------------------------------------------------------------


def test_a_launch_creates_a_config_map_that_owns_a_secret_and_a_pod(ground: Ground) -> None:
    ground.launch()
    owner, secret, pod = (ground.got(kind) for kind in KINDS)
    for owned in (secret, pod):
        ((reference),) = owned["metadata"]["ownerReferences"]
        assert reference["uid"] == owner["metadata"]["uid"]
        assert reference["controller"] is True
    assert ground.made().uid == ground.uid()
    ground.delete("config_map")
    wait_for(lambda: not any(map(ground.read, KINDS)), "all of them are gone")


@pytest.mark.guarantee("G-POD-6")
def test_a_pod_has_no_secret_no_path_of_the_worker_and_no_account(ground: Ground) -> None:
    ground.launch()
    spec = ground.got()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert set().union(*spec["volumes"]) == {"name", "configMap", "secret", "emptyDir"}
    text = json.dumps(spec) + json.dumps(ground.got("config_map"))
    keys = ground.got("secret").get("data") or ground.got("secret")["stringData"]
    assert {"spec.json", "token", "file.key", "env.PASSWORD"} == set(keys)
    for hidden in ("of the cast", str(ground.home), *keys.values()):
        assert hidden not in text
    for secret in ("a key of the cast", "a password of the cast"):
        assert not [path for path in _files(ground.control()) if secret in path.read_text()]


@pytest.mark.guarantee("G-POD-6")
def test_only_a_driver_that_creates_executors_has_an_account_and_it_owns_them(
    ground: Ground,
) -> None:
    ground.master = "k8s://https://192.0.2.1:6443"
    ground.conf[DRIVER_ACCOUNT] = "driver"
    ground.launch()
    pod = ground.got()["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("driver", True)
    secret = ground.got("secret")
    text = (secret.get("stringData") or {}).get(SPEC) or b64decode(secret["data"][SPEC]).decode()
    conf = DriverSpec.loads(text).conf
    assert (conf[DRIVER_POD], conf[NAMESPACE], conf[IMAGE_KEY]) == (ground.name(), DRIVERS, IMAGE)
    assert conf[EXECUTOR_TEMPLATE] == str(INTENT / EXECUTOR)
    template = json.loads(ground.got("config_map")["data"][EXECUTOR])["spec"]
    assert template["automountServiceAccountToken"] is False
    assert template["securityContext"] == pod["securityContext"]
    (executor,), (driver,) = template["containers"], pod["containers"]
    assert executor["securityContext"] == driver["securityContext"]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_an_epoch_that_is_launched_again_has_one_pod(ground: Ground) -> None:
    ground.launch()
    first = ground.uid()
    ground.launch()
    ground.record(uid="")  # the worker died before it recorded the pod
    assert ground.launcher.seal(ground.application, 1) is False
    assert ground.sight().liveness is Liveness.SPAWNING
    assert ground.made().uid == first
    ground.record(uid="")
    ground.launch()
    assert ground.uid() == ground.made().uid == first


@pytest.mark.parametrize("lost", [("pod",), ("pod", "secret"), ("config_map",)])
def test_a_launch_that_was_interrupted_is_completed(ground: Ground, lost: tuple[str, ...]) -> None:
    ground.launch()
    first = ground.uid()
    for kind in lost:
        ground.delete(kind)
    ground.record(uid="")
    if "pod" in lost:  # else the cluster deletes it a moment after its owner, so it may be seen
        assert ground.sight().liveness is Liveness.ABSENT

    def launched() -> bool:
        with suppress(LaunchRefused):  # what the former ConfigMap owned is still being deleted
            ground.launch()
        return bool(ground.made().uid)

    wait_for(launched, "the launch is completed")
    owner = ground.got("config_map")["metadata"]["uid"]
    for kind in ("secret", "pod"):
        assert ground.got(kind)["metadata"]["ownerReferences"][0]["uid"] == owner
    assert ground.uid() == ground.made().uid != first


@pytest.mark.guarantee("G-POD-4")
@pytest.mark.parametrize("other", ["launch", "labels"])
def test_a_foreign_pod_of_the_same_name_is_neither_taken_over_nor_deleted(
    ground: Ground, other: str
) -> None:
    ground.launch()
    pod = ground.got()["metadata"]
    ground.delete("pod")
    ground.record(uid="")
    labels, annotations = pod["labels"], pod["annotations"]
    if other == "labels":
        labels = {"app": "theirs"}
    else:
        annotations = {objects.LAUNCH: "0" * 32}
    metadata = {"name": ground.name(), "labels": labels, "annotations": annotations}
    body: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": FOREIGN}
    assert ground.cluster.create("pod", DRIVERS, body) is not None
    foreign = ground.uid()
    with pytest.raises(LaunchRefused) as error:
        ground.launch()
    assert f"another pod with the name {ground.name()}" in str(error.value)
    assert not error.value.passing
    assert ground.made().uid == ""
    assert ground.launcher.seal(ground.application, 1) is True  # none of ours was made
    if other == "labels":
        ground.launcher.kill(ground.application, 1, Reason.GIVEN_UP)
    assert ground.uid() == foreign


def test_a_driver_whose_files_go_has_one_pod_and_is_seen_again_with_them(ground: Ground) -> None:
    ground.launch()
    uid, drivers = ground.uid(), ground.home / "drivers"
    drivers.rename(ground.home / "away")
    assert ground.sight().liveness is Liveness.ABSENT
    with pytest.raises(LaunchRefused, match="another config map with the name"):
        ground.launch()
    assert ground.uid() == uid
    drivers.rename(ground.home / "made meanwhile")
    (ground.home / "away").rename(drivers)
    assert ground.sight().liveness is Liveness.SPAWNING
    assert ground.uid() == ground.made().uid == uid


def test_an_epoch_below_the_current_one_is_fenced(ground: Ground) -> None:
    current = current_file(ground.launcher.directory(ground.application, 1).parent)
    current.parent.mkdir(parents=True)
    replace_file(current, Current(9, "").dumps())
    ground.launch(4)
    seen = ground.sight(4)
    assert (seen.liveness, seen.exit and seen.exit.python) == (Liveness.EXITED, FENCED)
    assert not any(ground.read(kind, 4) for kind in KINDS)


def test_a_sealed_epoch_never_gets_a_pod_and_one_with_a_pod_is_not_sealed(ground: Ground) -> None:
    seal = ground.launcher.seal
    assert seal(ground.application, 1)
    ground.launch(1)
    assert ground.sight(1).liveness is Liveness.EXITED
    assert not any(map(ground.read, KINDS))
    ground.launch(2)
    assert not seal(ground.application, 2)
    ground.record(2, uid="")
    assert not seal(ground.application, 2)  # nobody knows of the pod but the API server
    ground.delete("pod", 2)
    assert seal(ground.application, 2)
    ground.launch(2)
    assert ground.read("pod", 2) is None


def test_an_epoch_that_is_sealed_while_a_launch_prepares_its_pod_gets_none(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    launching, sealed = threading.Event(), threading.Event()
    answers: list[bool] = []

    def wait(_: str) -> str:
        launching.set()
        assert sealed.wait(PATIENCE_S)
        return "token"

    def seal() -> None:
        launching.wait(PATIENCE_S)
        with suppress(LaunchRefused):
            answers.append(ground.launcher.seal(ground.application, 1))
        sealed.set()

    monkeypatch.setattr("queries.launchers.pods.archives.fetched", _slow(wait))
    monkeypatch.setattr("headgate_ground.files.WRITERS_LOCK_S", 0.2)
    thread = threading.Thread(target=seal)
    thread.start()
    ground.launch()
    thread.join()
    assert answers == [True]
    assert ground.read("pod") is None
    assert ground.sight().liveness is Liveness.EXITED


def _slow(wait: Callable[[str], str]) -> Callable[..., Any]:
    """Return the packing of archives that waits before it begins."""
    from queries.launchers.pods import archives

    usual = archives.fetched

    def fetched(spec: DriverSpec, folder: Path) -> Any:
        wait(spec.application)
        return usual(spec, folder)

    return fetched


@pytest.mark.parametrize("what", ["definition", "secrets"])
def test_what_does_not_fit_into_a_pod_is_rejected_before_anything_is_created(
    ground: Ground, what: str
) -> None:
    entry = AssignmentEntry(
        query=1, name="q", run=1, epoch=1, spec={}, checkpoint="", pool="", want=Want.RUN
    )
    if what == "definition":
        entry = replace(entry, spec={"sql": "x" * 1_100_000})
    else:
        (ground.home / "secrets/key").write_text("x" * 1_100_000)
    said = re.escape(f"The {what} of the application")
    with pytest.raises(LaunchRefused, match=f"{said}.* has 1.1 MB, but .* at most 1 MiB") as error:
        ground.launch(1, entry)
    assert not error.value.passing
    assert not any(map(ground.read, KINDS))


# --- ends -----------------------------------------------------------------------------


@pytest.mark.guarantee("G-POD-3")
def test_a_pod_that_is_gone_is_not_dead_and_its_successor_avoids_its_node(ground: Ground) -> None:
    made = ground.run()
    assert made.node
    with ground.api.lose(made.name):
        wait_for(lambda: ground.read() is None, "the pod is gone")
        seen = ground.sight()
        assert seen.liveness is Liveness.GONE
        assert "its node has not reported its end" in seen.ended
        assert not (ground.control() / EXIT).exists()
        ground.conf, ground.master = dict(NOWHERE), "k8s://https://192.0.2.1:6443"
        ground.launch(2)
    assert ground.ended_hosts(2) == (WORKER,)
    affinity = ground.got("pod", 2)["spec"]["affinity"]
    for text in ("NotIn", f'["{made.node}"]'):
        assert text in json.dumps(affinity)
    executors = ground.got("config_map", 2)["data"][EXECUTOR]
    assert json.loads(executors)["spec"]["affinity"] == affinity


@pytest.mark.parametrize("ground", ["stand-in"], indirect=True)
def test_a_node_that_has_reported_the_end_of_a_later_pod_is_not_avoided(ground: Ground) -> None:
    lost = ground.run()
    with ground.api.lose(lost.name):
        assert ground.sight().liveness is Liveness.GONE
    later = ground.run(2)
    assert later.node == lost.node
    assert ground.got("pod", 2)["spec"]["affinity"]
    ground.api.end(later.name)
    ground.until(Liveness.EXITED, 2)
    ground.launch(3)
    assert not ground.got("pod", 3)["spec"].get("affinity")


@pytest.mark.parametrize("ground", ["stand-in"], indirect=True)
def test_only_the_node_that_was_lost_last_is_avoided(ground: Ground) -> None:
    assert isinstance(ground.api, StandIn)
    first = ground.run()
    with ground.api.lose(first.name):
        ground.sight()
    ground.launch(2)
    ground.api.stored["pods", ground.name(2)]["spec"]["nodeName"] = "node-2"
    ground.sight(2)
    with ground.api.lose(ground.name(2)):
        ground.launch(3)
    affinity = json.dumps(ground.got("pod", 3)["spec"]["affinity"])
    assert '["node-2"]' in affinity


@pytest.mark.guarantee("G-POD-3")
def test_a_pod_whose_end_its_node_reports_is_recorded_once_and_its_objects_go(
    ground: Ground,
) -> None:
    made = ground.run()
    with ground.launcher.exits():  # it watches the pods
        ground.api.end(made.name)
        seen = ground.until(Liveness.EXITED)
    assert seen.exit is not None
    assert (seen.exit.killed, seen.exit.kill_reason) == (Killer.NOBODY, "")
    assert seen.ended
    wait_for(lambda: not any(map(ground.read, KINDS)), "its objects are gone")
    assert ground.sight().exit == seen.exit
    ground.launch()
    assert not any(map(ground.read, KINDS))
    ground.conf = dict(NOWHERE)
    ground.launch(2)
    assert ground.ended_hosts(2) == (f"pod:{made.uid}", WORKER)
    assert not ground.got("pod", 2)["spec"].get("affinity")


@pytest.mark.guarantee("G-POD-4")
def test_a_kill_deletes_only_the_pod_that_was_recorded(ground: Ground) -> None:
    ground.launch()
    uid = ground.uid()
    ground.record(uid=str(uuid.uuid4()))
    ground.launcher.kill(ground.application, 1, Reason.GIVEN_UP)
    assert ground.uid() == uid
    assert not ground.got()["metadata"].get("deletionTimestamp")
    ground.record(uid=uid)
    ground.launcher.kill(ground.application, 1, Reason.GIVEN_UP)
    wait_for(lambda: ground.read() is None, "the pod is deleted")


@pytest.mark.parametrize("ground", ["stand-in"], indirect=True)
@pytest.mark.parametrize("namespace", [DRIVERS, "team"])
def test_the_end_of_a_pod_is_recorded_without_a_look_in_each_namespace_that_has_one(
    ground: Ground, namespace: str
) -> None:
    ground.conf["spark.kubernetes.namespace"] = namespace
    ground.launch()
    ground.api.run(ground.name())
    with ground.launcher.exits() as heard:
        assert heard(PATIENCE_S) == ground.spec(1).driver
        ground.api.end(ground.name())
        wait_for((ground.control() / EXIT).exists, "its exit is recorded")


@pytest.mark.parametrize("ground", ["stand-in"], indirect=True)
def test_a_pod_that_must_exit_is_deleted_once_it_does_not_ask_for_news(ground: Ground) -> None:
    made = ground.run()
    asked, later = ground.control() / ASKED, time.time() + 3600
    asked.touch()
    os.utime(asked, (later, later))  # however busy this host is
    ground.launcher.terminate(ground.application, 1)
    assert ground.sight().liveness is Liveness.SPAWNING
    assert ground.uid() == made.uid
    os.utime(asked, (0, 0))  # the web process has ended
    own = ground.control().parent / "own"
    (own / EXIT).touch()  # it is about to end by itself
    ground.sight()
    assert ground.uid() == made.uid
    (own / EXIT).unlink()
    ground.sight()
    assert ground.read() is None


@pytest.mark.kubernetes
@pytest.mark.faults
@pytest.mark.parametrize("ground", ["cluster"], indirect=True)
def test_a_kill_of_a_running_pod_is_seen_with_its_reason(ground: Ground) -> None:
    ground.run()
    with ground.launcher.exits() as heard:
        ground.launcher.kill(ground.application, 1, Reason.GIVEN_UP)
        seen = ground.until(Liveness.EXITED)
        assert heard(PATIENCE_S) == ground.spec(1).driver
    report = ExitReport.loads((ground.control() / EXIT).read_text())
    assert report == seen.exit
    assert (report.killed, report.kill_reason) == (Killer.WORKER, Reason.GIVEN_UP)


@pytest.mark.parametrize("ground", ["stand-in"], indirect=True)
def test_what_is_left_of_a_pod_whose_end_was_recorded_goes_once_that_is_possible(
    ground: Ground,
) -> None:
    ground.run()
    replace_file(ground.control() / EXIT, exits.never_started().dumps())
    with ground.launcher.exits():  # of a worker that was started again
        wait_for(lambda: not any(map(ground.read, KINDS)), "its objects are gone")


@pytest.mark.parametrize("ground", ["stand-in"], indirect=True)
def test_what_users_code_reports_as_its_end_decides_nothing(ground: Ground) -> None:
    made = ground.run()
    own = ground.control().parent / "own"
    forged = {"python": 5, "jvm": [1], "core": True, "oom": "yes", "at": 1, "killed": "worker"}
    replace_file(own / EXIT, json.dumps({**forged, "last_seq": 10**30, "log_tail": 5}))
    ground.api.end(made.name)
    report = ground.sight().exit
    assert report is not None
    assert (report.python, report.jvm, report.last_seq) == ("UNKNOWN", "UNKNOWN", None)
    assert (report.oom, report.killed, report.log_tail) == (False, Killer.NOBODY, "")


@pytest.mark.parametrize("ground", ["stand-in"], indirect=True)
def test_an_end_that_two_threads_see_at_once_is_recorded_once(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ground.run()
    ground.api.end(made.name)
    both = threading.Barrier(2)
    build = exits.build

    def together(*given: Any, **named: Any) -> ExitReport:
        report = build(*given, **named)
        both.wait(PATIENCE_S)
        return report

    monkeypatch.setattr("queries.launchers.process.exits.build", together)
    written: list[str] = []

    def write(path: Path, text: str) -> None:
        written.append(path.name)
        replace_file(path, text)

    monkeypatch.setattr("queries.launchers.pods.launcher.replace_file", write)
    threads = [threading.Thread(target=ground.sight) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written.count(EXIT) == 1


@pytest.mark.parametrize("ground", ["stand-in"], indirect=True)
def test_a_launch_that_a_quota_rejects_says_so_and_succeeds_once_there_is_room(
    ground: Ground,
) -> None:
    assert isinstance(ground.api, StandIn)
    ground.api.quota = "exceeded quota: drivers"
    with pytest.raises(LaunchRefused, match="exceeded quota: drivers") as error:
        ground.launch()
    assert error.value.passing
    seen = ground.sight()
    assert (seen.liveness, seen.pending) == (Liveness.ABSENT, str(error.value))
    ground.api.quota = ""
    ground.launch()
    seen = ground.sight()
    assert (seen.liveness, seen.pending) == (Liveness.SPAWNING, "")


# --- without an API server ------------------------------------------------------------


@pytest.mark.parametrize("silent", [False, True])
def test_without_an_api_server_a_pod_is_not_gone_and_a_launch_waits(
    tmp_path: Path, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queries.launchers.pods.cluster._CONNECT_S", 0.5)
    with stand_in(tmp_path) as api:
        ground = Ground(tmp_path, api)
        ground.launch()
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
        if not silent:
            nobody.close()
        away = tmp_path / "away"
        write_kubeconfig(away, port, "https")
        ground.launcher = ground.launcher_with(str(away))
        began = time.monotonic()
        assert ground.sight().liveness is Liveness.ALIVE
        assert ground.launcher.living() == [(ground.application, 1)]
        with pytest.raises(LaunchRefused, match="The Kubernetes API server did not") as error:
            ground.launch(2)
        assert error.value.passing
        with pytest.raises(LaunchRefused, match="cannot be made sure") as error:
            ground.launcher.seal(ground.application, 2)
        assert error.value.passing
        ground.launcher.kill(ground.application, 1, Reason.GIVEN_UP)
        assert time.monotonic() - began < 20
    assert not (ground.control(1) / EXIT).exists()
    assert not (ground.control(2) / EXIT).exists()


def test_without_a_setting_a_launch_says_which_and_a_pod_is_not_sealed(tmp_path: Path) -> None:
    with stand_in(tmp_path) as api:
        ground = Ground(tmp_path, api)
        ground.launch()
    ground.record(uid="")
    ground.launcher = ground.launcher_with("")
    with pytest.raises(LaunchRefused, match="HEADGATE_POD_KUBECONFIG is not set on host"):
        ground.launch(2)
    with pytest.raises(LaunchRefused, match="cannot be made sure"):
        ground.launcher.seal(ground.application, 1)
