"""The tests: first those of the pure parts, whose every branch they cover, then all others.

Arguments are handed to pytest and narrow the run; the coverage is then left out.
"""

import sys

from steps import run

#: Pure decisions and the wire form must be covered to the last branch.
COVERED = ("queries.domain", "listeners.wire")
#: The tests that cover them: tables, properties, and the stories of supervision.
PURE = ("tests/domain", "tests/scenarios", "tests/listeners/test_wire.py")

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
        run(python, "-m", "pytest", *(f"--ignore={path}" for path in PURE))
