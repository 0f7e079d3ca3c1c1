"""Measure how long a query with executors as pods takes to go on after faults of its driver's pod.

- ours: from SIGKILL of the driver's JVM to the first commit of the next one, with two executors;
- baseline: the same without executors, with all tasks in the driver.

Both arms take turns on one running system (`benchmarks.drivers.pods`). Then the driver's pod is
deleted while its node is lost, where the driver and one of its executors go on, and an executor
uses too much memory. Nothing is written by the former driver's executors after the end of their
last process, which is measured. At the end, the sink must have each window once. The last line is
JSON.
"""

import statistics
from contextlib import ExitStack

from benchmarks._measuring import ratios, report, spread, workplace
from benchmarks.drivers.pods import LOST, OFTEN, gaps_of, restart, run_fault, start_system, summary
from tests.kubernetes import pod_faults
from tests.kubernetes.pod_faults import Recovery

TAKES = "20 minutes"

EXECUTORS = 2
WITH, WITHOUT = "JVM killed, executors", "JVM killed, none"


def main() -> None:
    """Start cluster, store and system; do the faults; judge the sink; stop everything."""
    with workplace("exec") as folder, ExitStack() as stack:
        system = start_system(folder, stack)
        found: dict[str, list[Recovery]] = {}
        for _ in range(OFTEN):
            for name, executors in ((WITH, EXECUTORS), (WITHOUT, 0)):
                system.place("pod", executors=executors)
                run_fault(system, name, pod_faults.kill_jvm, found)
        system.place("pod", executors=EXECUTORS)
        for _ in range(OFTEN):
            restart(system)
            with pod_faults.lost_node(system):
                run_fault(system, LOST, pod_faults.force_delete, found)
        out_of_memory = spread(gaps_of(system, "executor_oom"))
        windows = system.check_rows()
    table = {name: summary(recoveries) for name, recoveries in found.items()}
    for name, text in table.items():
        print(f"{name}: {text}")
    print(f"an executor out of memory: longest time between two commits {out_of_memory} s")
    print(f"{windows} windows, each once")
    ours, baseline = ([one.commit_s for one in found[name]] for name in (WITH, WITHOUT))
    report(
        "pod_executors",
        ours=round(statistics.median(ours), 1),
        baseline=round(statistics.median(baseline), 1),
        ratio=round(statistics.median(ratios(ours, baseline)), 2),
        faults=table,
        out_of_memory=out_of_memory,
        windows=windows,
    )


if __name__ == "__main__":
    main()
