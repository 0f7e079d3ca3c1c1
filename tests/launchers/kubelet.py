"""A cluster whose only node is this host: its pods' containers are processes.

It is the stand-in for an API server with a kubelet. The init container and the driver's are run as
the launcher has described them, in folders of the pod's own in place of mounted ones. There are no
images, limits and namespaces: a container that is killed takes all descendants of its first process
with it, but one that ends by itself does not.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headgate_ground import identities
from queries.launchers.pods import layout, objects
from queries.launchers.pods.cluster import Object
from tests.kubernetes.stand_in import StandIn, served

LIMIT_S = 60.0
NODE = "this-host"
#: The first process of a PID namespace gets no signal that it does not handle.
_AS_FIRST = ("/bin/sh", "-c", "trap '' TERM; exec \"$@\"", "container")
_INITIALIZING: Object = {"waiting": {"reason": "PodInitializing"}}


@dataclass
class Kubelet(StandIn):
    """The stand-in, whose pods run."""

    home: Path = field(kw_only=True)  # below it, each pod has a folder
    java: Path = field(kw_only=True)  # the image's
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _pods: dict[str, "_Pod"] = field(default_factory=dict)  # by UID

    def answer(self, method: str, path: str, body: Object) -> tuple[int, Object]:
        """Answer one request after the other."""
        with self._lock:
            return super().answer(method, path, body)

    def created(self, kind: str, item: Object) -> None:
        """Start a pod."""
        if kind != "pods":
            return
        volumes = {
            "intent": self.stored["configmaps", item["metadata"]["name"]]["data"],
            "secret": self.stored["secrets", item["metadata"]["name"]]["stringData"],
        }
        pod = self._pods[item["metadata"]["uid"]] = _Pod(item, self.home, self.java, volumes)
        pod.start()

    def delete(self, kind: str, item: Object, *, grace_s: int) -> None:
        """Have a pod's containers end before it goes; everything else goes at once."""
        pod = self._pods.get(item["metadata"]["uid"])
        if pod is None or pod.has_ended:
            super().delete(kind, item, grace_s=grace_s)
            return
        item["metadata"]["deletionTimestamp"] = _now()
        pod.end(grace_s)

    def folder(self, name: str) -> Path:
        """Return what a pod of this name has in place of its `emptyDir`."""
        return self._pods[self.stored["pods", name]["metadata"]["uid"]].work

    def close(self) -> None:
        """End every pod."""
        for pod in self._pods.values():
            pod.end(0)
        for pod in self._pods.values():
            pod.join()


class _Pod:
    """One pod, and the thread that runs its containers."""

    def __init__(
        self, item: Object, home: Path, java: Path, volumes: dict[str, dict[str, str]]
    ) -> None:
        self._item = item
        self._folder = home / str(item["metadata"]["uid"])
        self._java = java
        self.work = self._folder / "work"
        for volume, files in {**volumes, "work": {}, "jars": {}}.items():
            (self._folder / volume).mkdir(parents=True)
            for name, text in files.items():
                (self._folder / volume / name).write_text(text)
        self._thread = threading.Thread(target=self._run, name=f"pod {item['metadata']['name']}")
        self._changing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ending = False

    @property
    def has_ended(self) -> bool:
        """Whether its end is reported."""
        return not self._thread.is_alive()

    def start(self) -> None:
        """Run its containers, one after the other."""
        self._item["spec"]["nodeName"] = NODE
        self._report("Pending", {"running": {"startedAt": _now()}}, _INITIALIZING)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join(LIMIT_S)
        assert self.has_ended

    def end(self, grace_s: int) -> None:
        """Ask its container's first process to end, and kill all of them after `grace_s`."""
        with self._changing:
            self._is_ending = True
            if self._process is None or self._process.poll() is not None:
                return
            self._process.send_signal(signal.SIGTERM)
        threading.Thread(target=self._kill_after, args=(self._process, grace_s)).start()

    def _kill_after(self, process: "subprocess.Popen[bytes]", grace_s: int) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
        _kill(process)

    def _run(self) -> None:
        spec = self._item["spec"]
        fetched = self._container(spec["initContainers"][0])
        ended: Object = {"terminated": {"exitCode": fetched}}
        if fetched != 0:
            self._report("Failed", ended, _INITIALIZING)
            return
        began = _now()
        code = self._container(
            spec["containers"][0],
            lambda: self._report("Running", ended, {"running": {"startedAt": began}}),
        )
        phase = "Succeeded" if code == 0 else "Failed"
        self._report(phase, ended, {"terminated": {"exitCode": code, "startedAt": began}})

    def _container(self, container: Object, began: Any = lambda: None) -> int:
        """Run a container; return its exit code, as Kubernetes shows it."""
        with self._changing:
            if self._is_ending:
                return 128 + signal.SIGKILL
            argv = [*_AS_FIRST, sys.executable, *container["command"][1:]]
            process = self._process = subprocess.Popen(argv, env=self._environment(container))
        began()
        code = process.wait()
        return code if code >= 0 else 128 - code

    def _environment(self, container: Object) -> dict[str, str]:
        """Return a container's variables, and those that lead to the pod's folders."""
        own = {
            one["name"]: one.get("value", self._item["metadata"]["uid"]) for one in container["env"]
        }
        code = own.get("PYTHONPATH", "").replace(str(layout.WORK), str(self.work))
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "JAVA_HOME": str(self._java),
            **own,
            **({"PYTHONPATH": code} if code else {}),
            "HEADGATE_POD_INTENT": str(self._folder / "intent"),
            "HEADGATE_POD_SECRET": str(self._folder / "secret"),
            "HEADGATE_POD_WORK": str(self.work),
            "HEADGATE_POD_JARS": str(self._folder / "jars"),
            "HEADGATE_POD_TERMINATION_LOG": str(self._folder / "termination-log"),
        }

    def _report(self, phase: str, fetch: Object, driver: Object) -> None:
        self._item["status"] = {
            "phase": phase,
            "initContainerStatuses": [{"name": "fetch", "state": fetch}],
            "containerStatuses": [{"name": objects.CONTAINER, "state": driver}],
        }


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a first process and all below it at once, as the end of a PID namespace does."""
    known: dict[int, int | None] = {}
    while new := [pid for pid in identities.descendants(process.pid) if pid not in known]:
        for pid in new:
            known[pid] = identities.start_time(pid)
            identities.send(pid, known[pid], signal.SIGSTOP)
    if process.poll() is None:
        process.kill()
    for pid, started in known.items():
        identities.send(pid, started, signal.SIGKILL)
    for pid, started in known.items():
        identities.wait_end(pid, started, LIMIT_S)


def _now() -> str:
    return datetime.now(UTC).isoformat()


@contextmanager
def cluster(home: Path, java: Path) -> Iterator[Kubelet]:
    """Serve the cluster; its pods end with the block."""
    with served(Kubelet(home / "kubeconfig", home=home / "pods", java=java)) as made:
        try:
            yield made
        finally:
            made.close()
