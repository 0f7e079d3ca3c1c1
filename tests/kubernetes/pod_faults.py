"""What can happen to a driver's pod, done for real, and how long its query takes to go on."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from installation.machine.kubernetes_keys import DRIVERS
from tests import pieces
from tests.kubernetes.pod_system import QUERY, PodSystem

IN_NAMESPACE = ("--namespace", DRIVERS)
LOOK_EVERY_S = 0.1
#: Generous: a query that does not go on at all is what is looked for.
LIMIT_S = 400
#: Takes memory until the kernel ends a process of the container.
EATS = (
    "open('/proc/self/oom_score_adj', 'w').write('0')\n"
    "rows = []\nwhile True: rows.append(bytearray(b'x' * 4_000_000))"
)


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a query went on after a fault."""

    commit_s: float  # from the fault to the first commit of the driver that goes on
    written_s: float  # … to the last commit of the former one
    executors_s: float = 0.0  # … until its executors had ended, and so wrote nothing any more


def measured(system: PodSystem, fault: Callable[[PodSystem], None]) -> Recovery:
    """Do something to the pod of a running query; return how the query went on."""
    former, last = owner_epoch(system), system.committed()
    executors = list(executor_processes(system))
    began = last_at = time.monotonic()
    commit_s = executors_s = 0.0
    fault(system)
    while time.monotonic() - began < LIMIT_S:
        if executors and not (executors := [one for one in executors if one.is_running()]):
            executors_s = time.monotonic() - began
        committed = system.committed()
        if committed > last and not commit_s:
            if owner_epoch(system) == former:
                last, last_at = committed, time.monotonic()
            else:
                commit_s = time.monotonic() - began
        if commit_s and not executors:
            return Recovery(commit_s, last_at - began, executors_s)
        time.sleep(LOOK_EVERY_S)
    raise AssertionError(f"no commit of another driver, or executors run, after {LIMIT_S} s")


def owner_epoch(system: PodSystem) -> int:
    """Return the epoch of the checkpoint's newest owner, 0 without any."""
    owners = system.owners()
    return int(owners[-1]["epoch"]) if owners else 0


# --- faults ---------------------------------------------------------------------------


def delete(system: PodSystem) -> None:
    """Delete the pod, as a user or a drain does."""
    system.cluster.kubectl("delete", "pod", system.name(), "--wait=false", *IN_NAMESPACE)


def force_delete(system: PodSystem) -> None:
    """Delete the pod from the API server alone; its node must not respond at that time."""
    forced = ("--grace-period=0", "--force", "--wait=false")
    system.cluster.kubectl("delete", "pod", system.name(), *forced, *IN_NAMESPACE)


@contextmanager
def lost_node(system: PodSystem) -> Iterator[None]:
    """Stop the kubelet of the pod's node, and start it again."""
    number = int(system.pod()["spec"]["nodeName"].rpartition("-")[2])
    system.cluster.stop_kubelet(number)
    try:
        yield
    finally:
        system.cluster.start_kubelet(number)


def kill_python(system: PodSystem) -> None:
    """SIGKILL the driver's Python from outside the container."""
    _process(system, lambda line: "queries.runtime.entry" in line and "java" not in line).kill()


def kill_jvm(system: PodSystem) -> None:
    """SIGKILL the driver's JVM from outside the container."""
    _process(system, _is_jvm).kill()


def kill_jvm_of_process(system: PodSystem) -> None:
    """SIGKILL the JVM of a driver that is a process on this host."""
    os.kill(int(system.query(QUERY)["current_run"]["jvm_pid"]), signal.SIGKILL)


def out_of_memory(system: PodSystem) -> None:
    """Use more memory in the container than its limit."""
    _eat(system, system.name())


def executor_out_of_memory(system: PodSystem) -> None:
    """Use more memory in an executor's container than its limit."""
    (executor, *_) = system.executors()
    _eat(system, executor["metadata"]["name"])


def _eat(system: PodSystem, pod: str) -> None:
    command = ("exec", pod, *IN_NAMESPACE, "--", "python3", "-c", EATS)
    try:
        system.cluster.kubectl(*command)
    except subprocess.SubprocessError:
        return  # it is killed itself, or with the container


def drain(system: PodSystem) -> None:
    """Evict the pod through the API, as `kubectl drain` does."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": system.name(), "namespace": DRIVERS},
    }
    path = f"/api/v1/namespaces/{DRIVERS}/pods/{system.name()}/eviction"
    system.cluster.kubectl("create", "--raw", path, "--filename", "-", stdin=json.dumps(eviction))


@contextmanager
def without_api(system: PodSystem) -> Iterator[None]:
    """Stop the API server, and start it again."""
    system.cluster.stop_api()
    try:
        yield
    finally:
        system.cluster.start_api()


@contextmanager
def without_store(system: PodSystem) -> Iterator[None]:
    """Stop the S3 gateway, and start it again."""
    gateway = system.store.server
    gateway.stop()
    try:
        yield
    finally:
        gateway.start(pieces.java().home)


def kill_worker(system: PodSystem) -> None:
    """SIGKILL the worker, which is started again."""
    system.program("celery").send_signal(signal.SIGKILL)


class Gaps:
    """The times between two commits of a query, while it is watched."""

    def __init__(self, system: PodSystem) -> None:
        self._system = system
        self._committed, self._at = system.committed(), time.monotonic()
        self.longest_s = 0.0

    def watch(self, seconds: float) -> None:
        """Watch the query for this time; the commit before may have been in an earlier watch."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self.longest_s = max(self.longest_s, now - self._at)
            if (newest := self._system.committed()) > self._committed:
                self._committed, self._at = newest, now
            time.sleep(LOOK_EVERY_S)


def files_of_jvm(system: PodSystem) -> str:
    """Return what the driver's JVM has mapped, as Linux lists it."""
    process = _process(system, _is_jvm)
    with open(f"/proc/{process.pid}/maps", encoding="utf-8") as maps:
        return maps.read()


def executor_processes(system: PodSystem) -> Iterator[psutil.Process]:
    """Yield the JVMs of the executors that are running pods."""
    names = {one["metadata"]["name"] for one in system.executors()}
    for process in psutil.process_iter(["cmdline"]) if names else ():
        if names & set(process.info["cmdline"] or ()):
            yield process


def _process(system: PodSystem, wanted: Callable[[str], bool]) -> psutil.Process:
    """Return a process of the newest driver's pod: its own, and no other of this host."""
    folder = f"/headgate/work/drivers/{system.application}/{_driver_epoch(system)}"
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if folder in line and wanted(line):
            return process
    raise AssertionError(f"no process of {folder}")


def _is_jvm(line: str) -> bool:
    return "java" in line and "org.apache.spark" in line


def _driver_epoch(system: PodSystem) -> str:
    return str(system.pod()["metadata"]["labels"]["headgate/epoch"])
