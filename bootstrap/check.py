"""Run the checks for each commit: lint, and the tests without Spark, browser or broker.

The checks of `make lint` run one after the other, in parallel with the tests; their output is
printed at the end. Property tests run only some of their examples, and the permission table tests
only the strongest user without each permission and the weakest one with it; `make test` covers
more, and `make test-all` everything. Arguments are passed to pytest.
"""

import os
import sys
from pathlib import Path

from groups import NOT_LARGE
from steps import PARTS, ParallelPart, print_durations, run

#: The share of examples that each property test tries.
EXAMPLES = "0.1"


def main(arguments: list[str]) -> int:
    """Run everything; return 0 if all of it passes."""
    # Otherwise each new process would compile hundreds of modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("HEADGATE_TEST_EXAMPLES", EXAMPLES)
    with print_durations():
        linting = ParallelPart(
            sys.executable, str(Path(__file__).with_name("lint.py")), part="lint"
        )
        # More than the number of cores: some tests wait for processes and deadlines. A file stays
        # in one process, because each process that runs its tests builds what they share.
        processes = str(len(os.sched_getaffinity(0)) + 3)
        run(
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:playwright"),
            *("-n", processes, "--dist", "loadfile", "-m", NOT_LARGE, *arguments),
            go_on=True,
            part="tests",
        )
        linting.end()
    return max(code for _, _, code in PARTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
