"""The tests: the pure parts, whose every branch they cover, then all others.

Each group runs on as many processes as there are cores, a file at a time. Arguments are handed to
pytest and narrow the run; coverage and groups are then left out.
"""

import os
import sys

from steps import run

#: Pure decisions and the wire form must be covered to the last branch.
COVERED = ("queries.domain", "listeners.wire")
#: The tests that cover them: tables, properties, and the stories of supervision.
PURE = ("tests/domain", "tests/scenarios", "tests/listeners/test_wire.py")
#: The tests that start Spark, brokers and whole systems, by their marks.
PROCESSES = "spark or kafka or faults"
#: The others by their marks. Browsers by themselves: Playwright leaves an event loop running, and
#: the console that they look at its settings; the longest by themselves, so that cores stay busy.
GROUPS = (
    f"not browser and ({PROCESSES})",
    f"not browser and not ({PROCESSES})",
    "browser",
)
#: Memory, not cores, is the limit of those that start Spark.
MOST_AT_ONCE = 4

if __name__ == "__main__":
    python = sys.executable
    narrowed = sys.argv[1:]
    at_once = ("-n", str(min(os.cpu_count() or 1, MOST_AT_ONCE)))
    if narrowed:
        run(python, "-m", "pytest", *narrowed)
    else:
        run(
            *(python, "-m", "pytest", "-q", "-p", "no:playwright", *at_once, *PURE),
            *("--cov-branch", "--cov-fail-under=100"),
            *(f"--cov={name}" for name in COVERED),
            *("--cov-report=term-missing:skip-covered",),
        )
        others = (python, "-m", "pytest", *at_once, "--dist", "loadfile")
        for marks in GROUPS:
            run(*others, *(f"--ignore={path}" for path in PURE), "-m", marks)
