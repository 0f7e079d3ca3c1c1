"""Run a driver's executors as pods: their configuration, and what Kubernetes reports about them.

The driver stays on its host (client mode), so executors connect to it from their pods. Spark's own
defaults do not fit there: its time-outs of 10 s for the API server end a start on a busy host, and
executors of a restarted driver would have the names of the former ones.
"""

import contextlib
import hashlib
import ipaddress
import logging
import re
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from queries.domain.definitions.kubernetes import MASTER, OUR_LABELS
from queries.domain.pods import ExecutorPod, executor_pods, pod_changes
from queries.domain.protocol import DriverSpec, ExecutorsWanted

logger = logging.getLogger("headgate.driver")

#: Variable with the address at which pods reach this host.
ADDRESS = "HEADGATE_DRIVER_ADDRESS"
#: What a definition can change. Spark's own time-outs are 10 s, and it ends a driver after a number
#: of failed executors, however many months lie between them.
_DEFAULTS = {
    "spark.kubernetes.driver.connectionTimeout": "60000",
    "spark.kubernetes.driver.requestTimeout": "60000",
    "spark.executor.failuresValidityInterval": "10m",
}
#: Seconds for which a request waits for changes of the pods: the client returns an answer only when
#: it is whole. In a start, what is waited for is reported sooner.
_WATCH_S, _WATCH_IN_START_S = 5, 1
#: Seconds between requests, and after one that failed.
_BETWEEN_S, _AFTER_ERROR_S = 0.2, 5.0
#: Spark's limit for `podNamePrefix` is 47 characters, because it appends "-exec-" and a number.
_NAME_LENGTH = 24


class NotReachable(Exception):
    """Pods could not connect to this driver."""


class ExecutorsFailed(Exception):
    """Spark gave a start up because executors ended again and again."""


def executor_conf(spec: DriverSpec, address: str) -> dict[str, str]:
    """Return Spark's configuration for executors as pods; {} with any other master.

    `address` is that of this host as pods see it. Executors are named and labelled by application
    and epoch, so that those of an earlier driver are neither met nor mistaken for its own.
    """
    if not spec.master.startswith(MASTER):
        return {}
    executor = "spark.kubernetes.executor"
    return {
        "spark.driver.host": address,
        # Executors get it as the driver's address (Spark: useDriverPodIP).
        "spark.driver.bindAddress": address,
        f"{executor}.podNamePrefix": _prefix(spec),
        **{f"{executor}.label.{OUR_LABELS}{name}": of for name, of in _labels(spec).items()},
        **{name: spec.conf.get(name, value) for name, value in _DEFAULTS.items()},
    }


def _labels(spec: DriverSpec) -> dict[str, str]:
    """Return the labels of a driver's executors, without our prefix."""
    return {
        "installation": spec.installation,
        "application": spec.application.rstrip("._-"),  # Kubernetes does not allow these at the end
        "epoch": str(spec.epoch),
    }


def _prefix(spec: DriverSpec) -> str:
    """Return a prefix that no other epoch, application or installation has."""
    name = re.sub(r"[^a-z0-9]+", "-", spec.application.lower())[:_NAME_LENGTH].strip("-")
    whole = f"{spec.installation}/{spec.application}".encode()
    return f"hg-{name or 'x'}-{hashlib.sha256(whole).hexdigest()[:6]}-{spec.epoch}"


def own_address(master: str, named: str = "") -> str:
    """Return the address of this host that pods can connect to.

    It is `named` if given, and otherwise this host's address on the route to the API server, for
    which nothing is sent. Raises `NotReachable` if that cannot be right.
    """
    if named:
        return named
    url = urlsplit(master.removeprefix(MASTER))
    if not url.netloc:
        url = urlsplit(f"https://{master.removeprefix(MASTER)}")
    host, port = url.hostname or "", url.port or 443
    try:
        kind, _, _, _, at = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as route:
            route.connect(at)
            address = str(route.getsockname()[0])
    except OSError as error:
        raise NotReachable(f"There is no route to the API server {host}: {error}.") from error
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        raise NotReachable(
            f"The API server {host} is on this host's loopback interface, which pods cannot reach. "
            f"Set {ADDRESS} for this host's worker to an address of the host that pods can reach."
        )
    return address


class PodWatch:
    """Reads the executors' pods from the API server, with Spark's own client and account.

    It begins before there is a session, because Spark waits for executors first.
    """

    def __init__(
        self,
        gateway: Any,
        spec: DriverSpec,
        conf: Mapping[str, str],
        report: Callable[[ExecutorsWanted], object],
    ) -> None:
        """`conf` is the definition's, resolved. `report` gets what is waited for in a start."""
        self._jvm = gateway.jvm
        self._conf = self._jvm.org.apache.spark.SparkConf(False)
        for name, value in {**conf, "spark.master": spec.master}.items():
            self._conf.set(name, value)
        namespace = quote(conf.get("spark.kubernetes.namespace", "default"))
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._labels, self._epoch = _labels(spec), spec.epoch
        self._report = report
        self._since = datetime.now(UTC)
        self._lock = threading.Lock()
        self._pods: dict[str, ExecutorPod] = {}
        self._version = ""  # up to which the pods are known, "" before they have been listed
        self._noted: dict[str, ExecutorPod] = {}  # with the last thing that was to be said
        self._up = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pods", daemon=True)
        self._thread.start()

    def of(self, executor: str) -> ExecutorPod | None:
        """Return an executor's pod when something was last to be said about it; None if never."""
        with self._lock:
            return self._noted.get(executor)

    def reason(self) -> str:
        """Return why the newest pod is waiting or has ended; "" if nothing is known."""
        with self._lock:
            waiting = [(int(number), pod.waits) for number, pod in self._pods.items() if pod.waits]
            ended = [(int(number), pod.ended) for number, pod in self._noted.items() if pod.ended]
        return max(waiting or ended)[1] if waiting or ended else ""

    def session_is_up(self) -> None:
        """Report no longer what is waited for: there is a session."""
        with self._lock:
            self._up.set()

    def end(self) -> None:
        """End the looks; one that is under way ends on its own."""
        self._over.set()
        self._up.set()

    def _run(self) -> None:
        failed, client = "", None
        while not self._over.is_set():
            try:
                if client is None:
                    client = self._client()
                    self._delete_former(client)
                self._look(client)
                failed = ""
            except Exception as error:  # no right to list pods, or an API server that is away
                if failed != (failed := type(error).__name__) and not self._over.is_set():
                    logger.warning("could not watch the executors' pods: %s", error)
                with self._lock:
                    self._version, self._pods = "", {}
                self._over.wait(_AFTER_ERROR_S)
            if not self._up.is_set() and (reason := self.reason()):
                self._report_in_start(self._wanted(reason))
            self._over.wait(_BETWEEN_S)
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()

    def _report_in_start(self, wanted: ExecutorsWanted) -> None:
        with self._lock:  # nothing is reported once there is a session
            if not self._up.is_set():
                self._report(wanted)

    def _look(self, client: Any) -> None:
        """List the pods, or wait for changes; none is missed between two looks."""
        if not self._version:
            pods, version = executor_pods(client.raw(self._address(self._labels)) or "")
            changes = [(True, pod) for pod in pods]
        else:
            within_s = _WATCH_S if self._up.is_set() else _WATCH_IN_START_S
            changes, version = pod_changes(
                client.raw(
                    f"{self._address(self._labels)}&watch=true&timeoutSeconds={within_s}"
                    f"&resourceVersion={self._version}"
                )
                or ""
            )
        with self._lock:
            self._version = version or self._version
            for exists, pod in changes:
                self._pods[pod.executor] = pod
                if not exists:
                    del self._pods[pod.executor]
                if pod:
                    self._noted[pod.executor] = pod

    def _delete_former(self, client: Any) -> None:
        """Delete the executors of the application's former drivers.

        Nobody else does: a driver that was killed leaves them, and they would hold their resources
        until they miss it, and their names for ever.
        """
        ours = {name: of for name, of in self._labels.items() if name != "epoch"}
        pods, _ = executor_pods(client.raw(self._address(ours)) or "")
        former = [pod for pod in pods if 0 < pod.epoch < self._epoch]
        for pod in former:
            client.raw(f"{self._path}/{quote(pod.name)}", "DELETE", None)
        if former:
            logger.info("deleted %s pods of former drivers", len(former))

    def _address(self, labels: Mapping[str, str]) -> str:
        selector = quote(",".join(f"{OUR_LABELS}{name}={of}" for name, of in labels.items()))
        return f"{self._path}?labelSelector={selector}"

    def _wanted(self, reason: str) -> ExecutorsWanted:
        return ExecutorsWanted(
            self._since.isoformat(),
            int(self._conf.getSizeAsMb("spark.executor.memory", "1g")),
            int(self._conf.getInt("spark.executor.cores", 1)),
            pod_reason=reason,
        )

    def _client(self) -> Any:
        """Return a client with the driver's own settings (Spark: KubernetesClusterManager)."""
        jvm, conf = self._jvm, self._conf
        name = "org.apache.spark.deploy.k8s.SparkKubernetesClientFactory"
        kinds = jvm.java.lang.Class.forName(f"{name}$ClientType$").getField("MODULE$").get(None)
        factory = jvm.org.apache.spark.deploy.k8s.SparkKubernetesClientFactory
        return factory.createKubernetesClient(
            conf.get("spark.master").removeprefix(MASTER),
            jvm.scala.Option.apply(conf.get("spark.kubernetes.namespace", "default")),
            "spark.kubernetes.authenticate",
            kinds.Driver(),
            conf,
            jvm.scala.Option.apply(None),
        )
