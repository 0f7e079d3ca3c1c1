"""The tests: first those of the pure parts, whose every branch they cover, then all others.

Arguments are handed to pytest and narrow the run; the coverage is then left out.
"""

import sys

from steps import run, run_beside

#: Pure decisions and the wire form must be covered to the last branch.
COVERED = ("queries.domain", "listeners.wire")
#: The tests that cover them: tables, properties, and the stories of supervision.
PURE = ("tests/domain", "tests/scenarios", "tests/listeners/test_wire.py")
#: The tests that start Spark, brokers and whole systems, by their marks.
PROCESSES = "spark or kafka or faults"

if __name__ == "__main__":
    python = sys.executable
    narrowed = sys.argv[1:]
    if narrowed:
        run(python, "-m", "pytest", *narrowed)
    else:
        run(
            *(python, "-m", "pytest", "-q", "-p", "no:playwright", *PURE),
            *("--cov-branch", "--cov-fail-under=100"),
            *(f"--cov={name}" for name in COVERED),
            *("--cov-report=term-missing:skip-covered",),
        )
        others = (python, "-m", "pytest", *(f"--ignore={path}" for path in PURE))
        # The first waits for processes most of the time, the second for the processor.
        run_beside((*others, "-m", PROCESSES), (*others, "-m", f"not ({PROCESSES})"))
