"""The tests: first that every branch of the pure parts is covered, then all of them.

Arguments are handed to pytest and narrow the run; the coverage is then left out.
"""

import sys

from steps import run

#: Pure decisions and the wire form must be covered to the last branch.
COVERED = ("queries.domain", "listeners.wire")

if __name__ == "__main__":
    python = sys.executable
    narrowed = sys.argv[1:]
    if not narrowed:
        run(
            *(python, "-m", "pytest", "-q", "-p", "no:playwright", "tests/domain"),
            *("tests/listeners/test_wire.py", "--cov-branch", "--cov-fail-under=100"),
            *(f"--cov={name}" for name in COVERED),
            *("--cov-report=term-missing:skip-covered",),
        )
    run(python, "-m", "pytest", *narrowed)
