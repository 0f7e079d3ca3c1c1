"""A real Kubernetes cluster of the tests' own, one for the session, and pods in it."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.servers import port_is_free
from headgate_server.container_images import IMAGE
from installation.machine.kubernetes import PORT, Kubernetes
from installation.machine.kubernetes_keys import NAMESPACE
from installation.machine.kubernetes_nodes import owner
from tests import pieces

#: Seconds for what a busy machine may need; a quiet one needs a few.
PATIENCE_S = 180
_LOOK_EVERY_S = 0.3


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """Return the session's cluster; the test is marked `kubernetes`.

    `kubeconfig` is a driver's, `master` and `host` are for its session, `kubectl` asks as an
    administrator. Another cluster can run on the machine, such as that of `make kubernetes`.
    """
    cluster = Kubernetes(tmp_path_factory.mktemp("k8s"), cluster_port(), built=pieces.kubernetes())
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(cluster.root)  # 5 GB of images, of which pytest would keep three copies


def run_pod(cluster: Kubernetes, name: str, node: str, *command: str) -> None:
    """Create a pod of the image for executors on a node, and wait until it runs."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "main", "image": IMAGE, "args": list(command)}],
        },
    }
    cluster.kubectl("create", "--filename", "-", stdin=json.dumps(pod))
    wait_for(lambda: phase(cluster, name) == "Running", f"{name} runs on {node}")


def phase(cluster: Kubernetes, name: str) -> str:
    """Return a pod's phase: "Running"."""
    return str(get(cluster, "pod", name)["status"]["phase"])


def get(cluster: Kubernetes, *what: str) -> Any:
    """Return an object of the namespace."""
    return json.loads(cluster.kubectl("get", *what, "--namespace", NAMESPACE, "--output", "json"))


def wait_for(found: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(_LOOK_EVERY_S)


def cluster_port() -> int:
    """Return a port that is free like the next two, and whose network no other cluster has."""
    for _ in range(100):
        port = pieces.free_port()
        network = Kubernetes(Path("unused"), port).network
        if port_is_free(port + 2) and owner(network) is None and port != PORT:
            return port
    raise AssertionError("no three ports in a row are free")
