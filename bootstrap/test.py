"""The tests: the pure parts, whose every branch they cover, then all others.

Each group runs on several processes, a file at a time. Arguments are handed to
pytest and narrow the run; coverage and groups are then left out.
"""

import os
import sys

from steps import run

#: Pure decisions and the wire form must be covered to the last branch.
COVERED = ("queries.domain", "listeners.wire")
#: The tests that cover them: tables, properties, and the stories of supervision.
PURE = ("tests/domain", "tests/scenarios", "tests/listeners/test_wire.py")
#: The others by their marks, and how many more processes than cores each is given: those that
#: start Spark wait half of their time. Browsers by themselves, for Playwright leaves an event loop
#: running, and the console that they look at its settings.
GROUPS = (("not browser", 1), ("browser", 0))
#: Memory, not cores, is the limit of those that start Spark.
MOST_AT_ONCE = 4
#: These JVMs live for seconds, half of which would go to their second compiler and to verifying
#: the classes of Spark's released jars.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote"
)


def at_once(more: int = 0) -> tuple[str, str]:
    """Return pytest's option for as many processes as there are cores, and `more`."""
    return "-n", str(min((os.cpu_count() or 1) + more, MOST_AT_ONCE))


if __name__ == "__main__":
    python = sys.executable
    narrowed = sys.argv[1:]
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
    if narrowed:
        run(python, "-m", "pytest", *narrowed)
    else:
        run(
            *(python, "-m", "pytest", "-q", "-p", "no:playwright", *at_once(), *PURE),
            *("--cov-branch", "--cov-fail-under=100"),
            *(f"--cov={name}" for name in COVERED),
            *("--cov-report=term-missing:skip-covered",),
        )
        by_file = ("--dist", "loadfile", "--no-loadscope-reorder")
        for marks, more in GROUPS:
            run(
                *(python, "-m", "pytest", "-q", *at_once(more), *by_file),
                *(*(f"--ignore={path}" for path in PURE), "-m", marks),
            )
