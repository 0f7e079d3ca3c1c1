"""Measure how long a query takes to go on after each fault of its driver's pod, and of a process.

- ours: from SIGKILL of the JVM of a driver that is a pod, to the first commit of the next pod;
- baseline: the same kill of the same query's driver as a process on the host.

Both arms take turns on one running system, with a trial Kubernetes cluster of two nodes, and with
checkpoints, state and sink on S3. Then each other fault of a pod is done; a restart between two
faults makes each a first failure. A node whose kubelet is stopped goes on running the former pod:
its last commit is told. At the end, the sink must have each window once, as a batch computation
has it. The last line is JSON.
"""

import argparse
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks._measuring import ratios, report, spread, workplace
from examples.flights import s3_definitions
from installation.machine import trial_servers
from installation.machine.kubernetes import Kubernetes
from tests import pieces
from tests.kubernetes import pod_faults
from tests.kubernetes.pod_faults import Recovery
from tests.kubernetes.pod_system import QUERY, PodSystem, streaming
from tests.storage.stores import S3Store

TAKES = "35 minutes"

#: Batches without a fault before one.
CALM = 3
OFTEN, SELDOM = 5, 2
LOST = "force-deleted, node lost"
GAPS = ("api_away", "kubelet", "worker", "store_away")
AWAY_S = {"api_away": 120.0, "store_away": 60.0}


def main() -> None:
    """Start cluster, store and system; do the faults; judge the sink; stop everything."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=OFTEN)
    rounds = max(OFTEN, options.parse_args().rounds)
    with workplace("pods") as folder, ExitStack() as stack:
        system = start_system(folder, stack)
        found: dict[str, list[Recovery]] = {}
        for _ in range(rounds):
            for name, driver in (("pod", "pod"), ("process", "process")):
                system.place(driver)
                fault = pod_faults.kill_jvm if driver == "pod" else pod_faults.kill_jvm_of_process
                run_fault(system, f"JVM killed, {name}", fault, found)
        system.place("pod")
        for _ in range(rounds):
            run_fault(system, "Python killed", pod_faults.kill_python, found)
            run_fault(system, "out of memory", pod_faults.out_of_memory, found)
            restart(system)
            with pod_faults.lost_node(system):
                run_fault(system, LOST, pod_faults.force_delete, found)
        for _ in range(SELDOM):
            run_fault(system, "deleted", pod_faults.delete, found)
            run_fault(system, "drained", pod_faults.drain, found)
        gaps = {name: gaps_of(system, name) for name in GAPS}
        windows = system.check_rows()
    table = {name: summary(recoveries) for name, recoveries in found.items()}
    ours = [one.commit_s for one in found["JVM killed, pod"]]
    baseline = [one.commit_s for one in found["JVM killed, process"]]
    for name, seconds in table.items():
        print(f"{name}: {seconds}")
    for name, longest in gaps.items():
        print(f"{name}: longest time between two commits {spread(longest)} s")
    print(f"{windows} windows, each once")
    report(
        "pods",
        ours=round(statistics.median(ours), 1),
        baseline=round(statistics.median(baseline), 1),
        ratio=round(statistics.median(ratios(ours, baseline)), 2),
        faults=table,
        gaps={name: spread(longest) for name, longest in gaps.items()},
        windows=windows,
    )


def start_system(folder: Path, stack: ExitStack) -> PodSystem:
    """Start a cluster, a store and a system on them; the stack ends them."""
    cluster = Kubernetes(folder / "k8s", built=pieces.kubernetes())
    stack.callback(cluster.stop)
    cluster.start()
    gateway = trial_servers.Gateway(folder / "s3", program=pieces.versitygw(), usual_port=None)
    stack.callback(gateway.stop)
    gateway.start(pieces.java().home)
    keys = gateway.address().access_key, gateway.address().secret_key
    store = S3Store(
        s3_definitions.BUCKET,
        gateway,
        s3_definitions.store(gateway.place, *keys),
        gateway.place,
        *keys,
        folder=gateway.data / trial_servers.BUCKET,
    )
    return stack.enter_context(streaming(folder, cluster, store))


def restart(system: PodSystem) -> None:
    """Restart the query, so that the next failure is the first, and let it commit."""
    system.verb(QUERY, "restart")
    before = system.committed()
    system.wait("the restart", lambda: system.query(QUERY)["phase"] != "RUNNING")
    system.running(QUERY)
    system.past(max(before, system.committed()) + CALM)


def run_fault(
    system: PodSystem,
    name: str,
    fault: Callable[[PodSystem], None],
    found: dict[str, list[Recovery]],
) -> None:
    if name != LOST:  # that node must be lost before
        restart(system)
    found.setdefault(name, []).append(pod_faults.measured(system, fault))
    print(f"{name}: {found[name][-1]}", flush=True)
    system.running(QUERY)


def gaps_of(system: PodSystem, name: str) -> list[float]:
    """Do what a driver should outlive; return each round's longest time between two commits."""
    longest = []
    for _ in range(SELDOM):
        restart(system)
        gaps = pod_faults.Gaps(system)
        with ExitStack() as stack:
            if name == "api_away":
                stack.enter_context(pod_faults.without_api(system))
            elif name == "store_away":
                stack.enter_context(pod_faults.without_store(system))
            elif name == "kubelet":
                stack.enter_context(pod_faults.lost_node(system))
            elif name == "executor_oom":
                pod_faults.executor_out_of_memory(system)
            else:
                pod_faults.kill_worker(system)
            gaps.watch(AWAY_S.get(name, 20.0))
        gaps.watch(60.0)
        longest.append(gaps.longest_s)
        print(f"{name}: {longest[-1]:.1f} s", flush=True)
    return longest


def summary(recoveries: list[Recovery]) -> str:
    """Return how a query went on after the rounds of one fault."""
    seconds = spread(one.commit_s for one in recoveries)
    written = max(one.written_s for one in recoveries)
    text = f"{seconds} s to the next commit; the former driver's last one after {written:.1f} s"
    ended = max(one.executors_s for one in recoveries)
    return f"{text}; its executors had ended after {ended:.1f} s" if ended else text


if __name__ == "__main__":
    main()
