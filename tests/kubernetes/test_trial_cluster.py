"""`make kubernetes`: two nodes that run pods, heal, and leave nothing behind."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from controlplane.home import StartProblem
from headgate_ground import identities
from headgate_server.container_images import USER
from installation.machine.kubernetes import Kubernetes
from installation.machine.kubernetes_keys import NAMESPACE
from tests.kubernetes.clusters import cluster_port, get, phase, run_pod, wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.faults]

PYTHON = f"/usr/bin/python3.{sys.version_info[1]}"
#: How a bridge got its address (linux/netdevice.h): by whoever made it, so that no pod changes it.
NET_ADDR_SET = 3
#: Prints its account after it has imported what executors import, and stays.
_STAY = """
import os, pwd, time
import headgate_async, numpy, pandas, pyarrow, pyspark.sql
assert os.access(".", os.W_OK)
print(os.getuid(), pwd.getpwuid(os.getuid()).pw_name, flush=True)
time.sleep({})
"""


def stay(seconds: int = 3600) -> tuple[str, ...]:
    return (PYTHON, "-c", _STAY.format(seconds))


def test_each_node_runs_pods_as_the_images_account(kubernetes: Kubernetes) -> None:
    assert kubernetes.ready_nodes() == ["node-1", "node-2"]
    for node in kubernetes.nodes:
        name = f"account-{node.number}"
        run_pod(kubernetes, name, node.name, *stay())
        wait_for(partial(log, kubernetes, name), f"{name} prints")
        assert log(kubernetes, name) == f"{USER} spark\n"
        assert get(kubernetes, "pod", name)["status"]["podIP"].startswith(node.address[:-1])


def log(cluster: Kubernetes, name: str) -> str:
    return cluster.kubectl("logs", name, "--namespace", NAMESPACE)


def test_pods_of_both_nodes_reach_the_host(kubernetes: Kubernetes) -> None:
    connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)"
    for node in kubernetes.nodes:
        bridge = Path("/sys/class/net") / node.bridge
        assert int((bridge / "addr_assign_type").read_text()) == NET_ADDR_SET
        name = f"reach-{node.number}"
        run_pod(kubernetes, name, node.name, *stay())
        kubernetes.kubectl(
            *("exec", name, "--namespace", NAMESPACE, "--", PYTHON, "-c", connect),
            *(kubernetes.host, str(kubernetes.port)),
        )


def test_a_second_start_starts_nothing(kubernetes: Kubernetes) -> None:
    before = kubernetes.running()
    assert not kubernetes.start()
    assert kubernetes.running() == before


def test_a_drivers_account_manages_pods_of_its_namespace_alone(kubernetes: Kubernetes) -> None:
    def can(verb: str, what: str, *part: str, namespace: str = NAMESPACE) -> bool:
        asked = ("auth", "can-i", verb, what, *part, "--namespace", namespace)
        program = str(kubernetes.built / "bin" / "kubectl")
        command = [program, "--kubeconfig", str(kubernetes.kubeconfig), *asked]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout.strip() == "yes"

    assert can("create", "pods")
    assert can("deletecollection", "configmaps")
    assert not can("create", "pods", namespace="default")
    assert not can("get", "secrets")
    assert not can("create", "pods", "--subresource", "exec")
    assert not can("list", "nodes")
    assert oct(kubernetes.kubeconfig.stat().st_mode & 0o777) == "0o600"


def test_a_node_whose_kubelet_is_stopped_is_lost_and_the_other_runs_new_pods(
    kubernetes: Kubernetes,
) -> None:
    kubernetes.stop_kubelet(2)
    try:
        wait_for(lambda: kubernetes.ready_nodes() == ["node-1"], "node-2 is lost")
        run_pod(kubernetes, "elsewhere", "node-1", *stay())
    finally:
        kubernetes.start_kubelet(2)
    wait_for(lambda: len(kubernetes.ready_nodes()) == 2, "node-2 is back")


def test_killed_components_come_back_and_pods_outlive_them(kubernetes: Kubernetes) -> None:
    run_pod(kubernetes, "outlives", "node-1", *stay())
    before = get(kubernetes, "pod", "outlives")["status"]["containerStatuses"]
    killed = {process.name: process for process in kubernetes.running()}
    for name in ("etcd", "apiserver", "containerd-1", "kubelet-1"):
        os.kill(killed[name].pid, signal.SIGKILL)
    wait_for(
        lambda: (
            {"etcd", "apiserver", "containerd-1", "kubelet-1"}
            <= {one.name for one in kubernetes.running() if one != killed.get(one.name)}
        ),
        "the killed ones are replaced",
    )
    wait_for(lambda: kubernetes.ready_nodes() == ["node-1", "node-2"], "both nodes are ready")
    run_pod(kubernetes, "after", "node-1", *stay())
    assert phase(kubernetes, "outlives") == "Running"
    assert get(kubernetes, "pod", "outlives")["status"]["containerStatuses"] == before


def test_a_stop_leaves_nothing_even_after_a_crash(kubernetes: Kubernetes) -> None:
    run_pod(kubernetes, "left", "node-2", *stay(4242))
    for process in kubernetes.running():  # the supervisor first, so nothing is restarted
        identities.kill_and_wait(process.pid, process.start_time, 30)
    assert kubernetes.exists()
    assert remains(kubernetes)
    tasks = kubernetes.root.glob("node-*/runtime/io.containerd.runtime.v2.task/k8s.io/*")
    pods = [task.name for task in tasks]
    assert pods
    assert kubernetes.stop()
    assert remains(kubernetes) == []
    records = [record.name for record in Path("/var/lib/cni/results").iterdir()]
    assert not [one for one in records if any(pod in one for pod in pods)]
    assert not kubernetes.exists()
    assert not kubernetes.stop()
    assert kubernetes.start()
    assert kubernetes.ready_nodes() == ["node-1", "node-2"]
    run_pod(kubernetes, "left", "node-2", *stay())  # all objects are gone, so the name is free


def test_a_supervisor_that_was_killed_is_started_again(kubernetes: Kubernetes) -> None:
    supervisor = kubernetes.running()[0]
    identities.kill_and_wait(supervisor.pid, supervisor.start_time, 30)
    assert kubernetes.start()
    run_pod(kubernetes, "again", "node-1", *stay())


def test_with_another_port_the_former_cluster_is_ended_and_its_keys_replaced(
    kubernetes: Kubernetes,
) -> None:
    other = Kubernetes(kubernetes.root, cluster_port(), built=kubernetes.built)
    assert other.network != kubernetes.network
    with pytest.raises(StartProblem, match="another HEADGATE_KUBERNETES_PORT"):
        other.start()
    assert other.stop()
    assert remains(kubernetes) == []
    assert other.start()
    assert other.ready_nodes() == ["node-1", "node-2"]
    assert kubernetes.stop()
    assert remains(other) == []
    assert kubernetes.start()


def remains(cluster: Kubernetes) -> list[str]:
    """Return what is left of a cluster: processes, mounts, interfaces, cgroups, network records."""
    root, name = str(cluster.root), f"headgate{cluster.network}"
    processes = [
        " ".join(one.info["cmdline"])
        for one in psutil.process_iter(["cmdline"])
        if one.info["cmdline"]
    ]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return [
        *(one for one in processes if f"{root}/" in one or "sleep(4242)" in one),
        *(one for one in mounts if f" {root}/" in one),
        *map(str, Path("/sys/class/net").glob(f"{name}-*")),
        *map(str, Path("/sys/fs/cgroup").glob(f"{name}")),
        *map(str, Path("/sys/fs/cgroup").glob(f"*/{name}")),
        *map(str, Path("/var/lib/cni/results").glob(f"{name}-*")),
    ]
