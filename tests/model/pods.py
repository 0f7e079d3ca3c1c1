"""The pods of the model's world: the real launcher, on an API server and nodes in memory.

A pod whose node is lost, or that was deleted by force, is gone for the launcher and may run on.
"""

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

from django.conf import settings
from kubernetes import client

from headgate_ground.files import replace_file
from installation.machine.kubernetes_keys import DRIVERS
from queries.domain.hosts import Mode, choose
from queries.domain.protocol import ASSIGNMENT, EXIT, Assignment, DriverSpec, ExitReport
from queries.domain.supervision.observation import LIVING
from queries.driver_folder import DriverFolder
from queries.launchers.pods import objects
from queries.launchers.pods.cluster import Cluster, Object
from queries.launchers.pods.launcher import HOST, PodLauncher, PodSettings
from queries.launchers.pods.layout import SPEC_KEY
from tests.kubernetes.stand_in import StandIn
from tests.launchers.in_memory import Crash

Key = tuple[str, int]  # application and epoch of a driver

_METHODS = {"create": "POST", "read": "GET", "patch": "PATCH", "delete": "DELETE"}
_KINDS = {"pod": "pods", "config_map": "configmaps", "secret": "secrets"}
_SIGKILL = 137


@dataclass
class Api(StandIn):
    """The API server; it keeps a deleted pod until its node has reported its end."""

    kubeconfig: Path = Path()
    away: bool = False
    half: str = ""  # "intent" | "spawning": the worker dies before or after it creates the next pod
    new: list[str] = field(default_factory=list)  # names of pods that no node knows yet

    def answer(self, method: str, path: str, body: Object) -> tuple[int, Object]:
        """Answer, unless nobody is there, or the worker dies meanwhile."""
        if self.away:
            return 503, {"message": "nobody is there"}
        half = self.half if method == "POST" and path.endswith("/pods") else ""
        if half == "intent":
            raise Crash("between ConfigMap and pod")
        answer = super().answer(method, path, body)
        if half == "spawning":
            raise Crash("before the pod's UID is recorded")
        return answer

    def created(self, kind: str, item: Object) -> None:
        """Note a pod."""
        if kind == "pods":
            self.new.append(item["metadata"]["name"])

    def delete(self, kind: str, item: Object, *, grace_s: int) -> None:
        """Delete an object at once, unless it is a pod with containers on a node."""
        if kind == "pods" and item["spec"].get("nodeName") and not _has_ended(item):
            item["metadata"]["deletionTimestamp"] = "2026-01-05T03:00:00Z"
            item["metadata"]["deletionGracePeriodSeconds"] = grace_s
            return
        super().delete(kind, item, grace_s=grace_s)


class _Calls:
    """The calls of the official client, without a network."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def __getattr__(self, name: str) -> Any:
        verb, _, kind = name.partition("_namespaced_")
        return partial(self._call, _METHODS[verb], _KINDS[kind])

    def _call(
        self, method: str, kind: str, *given: Any, body: Object | None = None, **_: Any
    ) -> Any:
        name, namespace, *rest = ("", *given) if method == "POST" else given
        path = f"/api/v1/namespaces/{namespace}/{kind}/{name}".rstrip("/")
        sent = deepcopy(rest[0] if rest else body or {})
        status, answer = self._api.answer(method, path, sent)
        if status >= 300:
            error = client.ApiException(status=status)
            error.body = json.dumps(answer)
            raise error
        return SimpleNamespace(data=json.dumps(answer))


class InMemoryCluster(Cluster):
    """A cluster as a worker's account sees it, through the launcher's own code."""

    def __init__(self, api: Api) -> None:
        super().__init__(Path())
        self.__dict__ |= {"namespace": DRIVERS, "_api": _Calls(api)}


@dataclass(frozen=True, slots=True)
class Born:
    """What a new pod's containers find there."""

    spec: DriverSpec
    assignment: Assignment


class Pods:
    """A cluster, and the real launcher of each host's worker."""

    def __init__(self) -> None:
        self.api = Api()
        self.names: dict[Key, str] = {}  # of the pods that were ever created
        self.uids: dict[Key, str] = {}
        self._home = Path()
        self._archives = Path()
        self._launchers: dict[str, PodLauncher] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Let histories go on from a copy; their folders are copied by `use`."""
        return {**self.__dict__, "_launchers": {}}

    def use(self, home: Path, archives: Path) -> None:
        """Keep the launchers' files below another folder from now on, those of before included."""
        if self._home != Path():
            copytree(self._home, home, dirs_exist_ok=True)
        self._home, self._archives = home, archives

    def launcher(self, host: str = "") -> PodLauncher:
        """Return the launcher of a host's worker; "": the host whose worker acts now."""
        host = host or settings.HEADGATE_HOST
        if host not in self._launchers:
            home = self._home / host
            given = PodSettings(
                kubeconfig="",
                url="http://web",
                redis_url="",
                image="image",
                authorities="",
                archives=self._archives,
                host=host,
                variables=(),
                secrets=home / "secrets",
            )
            made = PodLauncher(
                given,
                drivers_dir=home / "drivers",
                code_dir=home / "code",
                isolation=lambda: choose(Mode.NEITHER),
            )
            made._cluster = InMemoryCluster(self.api)
            self._launchers[host] = made
        return self._launchers[host]

    def _all(self) -> list[PodLauncher]:
        return [self.launcher(home.name) for home in sorted(self._home.iterdir())]

    def living(self) -> list[Key]:
        """Return the drivers that a host's launcher sees as living."""
        return [
            key
            for key in sorted(self.names)
            if any(launcher.sight(*key).liveness in LIVING for launcher in self._all())
        ]

    def has_exit(self, key: Key) -> bool:
        """Whether a host has recorded how a driver ended."""
        folders = [DriverFolder.of(launcher.directory(*key)) for launcher in self._all()]
        return any((folder.control / EXIT).exists() for folder in folders)

    # --- what nodes do ------------------------------------------------------------------

    def born(self) -> list[Born]:
        """Return what the containers of new pods find in their volumes."""
        found = []
        while self.api.new:
            name = self.api.new.pop()
            secret = self.api.stored["secrets", name]["stringData"]
            intent = self.api.stored["configmaps", name]["data"]
            born = Born(DriverSpec.loads(secret[SPEC_KEY]), Assignment.loads(intent[ASSIGNMENT]))
            key = (born.spec.application, born.spec.epoch)
            assert key not in self.names, f"I1: driver {key} has a second pod"
            self.names[key] = name
            self.uids[key] = str(self.api.stored["pods", name]["metadata"]["uid"])
            found.append(born)
        return found

    def host_of(self, key: Key) -> str:
        """Return the host that a driver's owner objects name."""
        return HOST.format(self.uids[key])

    def found(self, key: Key) -> Object | None:
        """Return a driver's pod, as long as the API server has it."""
        return self.api.stored.get(("pods", self.names[key]))

    def forget(self, key: Key) -> None:
        """Remove a pod from the API server: by force, or because all of it has ended."""
        self.api.stored.pop(("pods", self.names[key]), None)

    def is_being_killed(self, key: Key) -> bool:
        """Whether a pod's containers have hardly any time to end."""
        pod = self.found(key)
        return pod is not None and pod["metadata"].get("deletionGracePeriodSeconds", 60) <= 1

    def lose(self, key: Key) -> None:
        """A pod's node is found not to respond."""
        if (pod := self.found(key)) is not None:
            lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
            pod["status"]["conditions"] = [lost]

    def report(self, key: Key, *, since: datetime | None, end: ExitReport | None) -> None:
        """A node reports a pod's containers, and the channel how the driver ended.

        `since`: when the containers began to run; None: no node has taken the pod.
        """
        pod = self.found(key)
        if pod is None or since is None:
            return
        pod["spec"]["nodeName"] = f"node-{key[1]}"
        state: Object = {"running": {"startedAt": since.isoformat()}}
        if end is not None:
            code = int(end.python) if end.python.isdecimal() else _SIGKILL
            state = {"terminated": {"exitCode": code, "startedAt": since.isoformat()}}
            self._send_exit(key, end)
        phase = "Running" if end is None else "Failed"
        status = {"name": objects.CONTAINER, "state": state}
        pod["status"] = {"phase": phase, "containerStatuses": [status]}

    def _send_exit(self, key: Key, end: ExitReport) -> None:
        for launcher in self._all():
            own = DriverFolder.of(launcher.directory(*key)).own
            if own.exists() and end.python != "UNKNOWN":
                replace_file(own / EXIT, end.dumps())


def _has_ended(pod: Object) -> bool:
    statuses: Sequence[Object] = pod["status"].get("containerStatuses") or ({},)
    return all("terminated" in status.get("state", {}) for status in statuses)
