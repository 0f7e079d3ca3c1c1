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
from typing import Any
from urllib.parse import quote, urlsplit

from queries.domain.definitions.kubernetes import MASTER, OUR_LABELS
from queries.domain.pods import ExecutorPod, executor_pods
from queries.domain.protocol import DriverSpec

logger = logging.getLogger("headgate.driver")

#: Variable with the address at which pods reach this host.
ADDRESS = "HEADGATE_DRIVER_ADDRESS"
#: Milliseconds that a request of Spark's to the API server may take.
_TIME_OUT_MS = 60_000
#: Seconds between looks at the pods; the API server answers from its cache.
LOOK_EVERY_S = 5.0
#: Spark's limit for `podNamePrefix` is 47 characters, because it appends "-exec-" and a number.
_NAME_LENGTH = 24


class NotReachable(Exception):
    """Pods could not connect to this driver."""


def executor_conf(spec: DriverSpec, address: str) -> dict[str, str]:
    """Return Spark's configuration for executors as pods; {} with any other master.

    `address` is that of this host as pods see it. Executors are named and labelled by application
    and epoch, so that those of an earlier driver are neither met nor mistaken for its own.
    """
    if not spec.master.startswith(MASTER):
        return {}
    labels = {
        "installation": spec.installation,
        "application": spec.application,
        "epoch": str(spec.epoch),
    }
    executor = "spark.kubernetes.executor"
    return {
        "spark.driver.host": address,
        # Executors get it as the driver's address (Spark: useDriverPodIP).
        "spark.driver.bindAddress": address,
        f"{executor}.podNamePrefix": _prefix(spec),
        **{
            f"{executor}.label.{OUR_LABELS}{name}": value.rstrip("._-")  # as Kubernetes demands
            for name, value in labels.items()
        },
        **{
            name: spec.conf.get(name, str(_TIME_OUT_MS))
            for name in (
                "spark.kubernetes.driver.connectionTimeout",
                "spark.kubernetes.driver.requestTimeout",
            )
        },
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
    """Reads the executors' pods from the API server, with Spark's own client and account."""

    def __init__(self, jvm: Any, context: Any) -> None:
        """`context` is the JVM's SparkContext."""
        self._jvm, self._context = jvm, context
        self._lock = threading.Lock()
        self._pods: dict[str, ExecutorPod] = {}
        self._noted: dict[str, ExecutorPod] = {}  # with the last thing that was to be said
        self._thread = threading.Thread(target=self._run, name="pods", daemon=True)
        self._over = threading.Event()
        self._thread.start()

    def of(self, executor: str) -> ExecutorPod | None:
        """Return an executor's pod when something was last to be said about it; None if never."""
        with self._lock:
            return self._noted.get(executor)

    def waiting(self) -> str:
        """Return why the newest pod that has not started is waiting; "" if none is."""
        with self._lock:
            waiting = [(int(pod.executor), pod.waits) for pod in self._pods.values() if pod.waits]
        return max(waiting)[1] if waiting else ""

    def end(self) -> None:
        """End the looks; one that is under way ends on its own."""
        self._over.set()

    def _run(self) -> None:
        failed = ""
        client = None
        while not self._over.wait(LOOK_EVERY_S):
            try:
                client = client or self._client()
                self._look(client)
                failed = ""
            except Exception as error:  # no right to list pods, or an API server that is away
                if failed != (failed := type(error).__name__):
                    logger.warning("could not list the executors' pods: %s", error)
                with self._lock:
                    self._pods = {}
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()

    def _look(self, client: Any) -> None:
        namespace = client.getNamespace() or "default"
        selector = quote(f"spark-app-selector={self._context.applicationId()},spark-role=executor")
        path = f"/api/v1/namespaces/{quote(namespace)}/pods"
        listed = client.raw(f"{path}?labelSelector={selector}&resourceVersion=0")
        pods = executor_pods(listed or "")
        with self._lock:
            self._pods = pods
            self._noted |= {number: pod for number, pod in pods.items() if pod}

    def _client(self) -> Any:
        """Return a client with the driver's own settings (Spark: KubernetesClusterManager)."""
        jvm, conf = self._jvm, self._context.conf()
        names = "org.apache.spark.deploy.k8s.SparkKubernetesClientFactory"
        kinds = jvm.java.lang.Class.forName(f"{names}$ClientType$").getField("MODULE$").get(None)
        factory = jvm.org.apache.spark.deploy.k8s.SparkKubernetesClientFactory
        return factory.createKubernetesClient(
            conf.get("spark.master").removeprefix(MASTER),
            jvm.scala.Option.apply(conf.get("spark.kubernetes.namespace", "default")),
            "spark.kubernetes.authenticate",
            kinds.Driver(),
            conf,
            jvm.scala.Option.apply(None),
        )
