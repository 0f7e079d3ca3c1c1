"""Soak the model of supervision: many thousand steps of random histories, in every core.

`--steps 100000 --seed 1`: the same seed takes the same steps. Each core takes its share, with a
seed of its own that is printed. Then weeks of schedules take as many steps, and the small protocol
is walked to its end.
"""

import argparse
import os
import secrets
import subprocess
import sys

#: Seeds of one process lie this close together, so that no two take the same.
SEEDS_APART = 100_000
#: Drivers, crashes and pauses of the small protocol's walks.
WALKS = "2,0,1 2,1,0"


def main() -> int:
    """Run one process per core; return 0 where no invariant has broken."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=secrets.randbelow(2**20))
    asked = options.parse_args()
    cores = len(os.sched_getaffinity(0))
    again = f"--steps {asked.steps} --seed {asked.seed}"
    sys.stdout.write(f"make soak ARGS='{again}' takes the same steps.\n")
    sys.stdout.flush()
    running = [
        _begin("test_supervision_model.py", asked.steps // cores, asked.seed + core * SEEDS_APART)
        for core in range(cores)
    ]
    codes = [process.wait() for process in running]
    if any(codes):  # below zero: somebody has killed it
        return 1
    if _begin("test_schedules_model.py", asked.steps, asked.seed).wait():
        return 1
    return int(_begin("test_small_protocol.py", 0, 0).wait() != 0)


def _begin(name: str, steps: int, first_seed: int) -> "subprocess.Popen[bytes]":
    python = (sys.executable, "-m", "pytest", "-q", "-p", "no:playwright", "-p", "no:cacheprovider")
    environment = {
        **os.environ,
        "HEADGATE_SOAK_STEPS": str(steps),
        "HEADGATE_SOAK_SEED": str(first_seed + 1),
        "HEADGATE_SMALL_WALKS": WALKS,
    }
    return subprocess.Popen((*python, f"tests/model/{name}"), env=environment)


if __name__ == "__main__":
    sys.exit(main())
