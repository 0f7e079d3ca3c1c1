"""Run the tests: the pure parts with full branch coverage, then all others.

Each group runs in several processes, a file at a time, and its time is printed at the end.
Arguments are passed to pytest and narrow the run; coverage and groups are then left out.
"""

import os
import sys
from pathlib import Path

from check import LARGE
from steps import Beside, run, told

#: Pure decisions and the wire form must be covered to the last branch.
COVERED = ("queries.domain", "listeners.wire")
#: The tests that cover them: tables, properties, and the stories of supervision.
PURE = (
    *("tests/domain", "tests/scenarios", "tests/listeners/test_wire.py"),
    "tests/security/test_configuration.py",
)
#: Tests that write rows run on PostgreSQL too: next to the next group, which waits half its time.
ON_POSTGRESQL = (
    *("tests/services", "tests/controlplane", "tests/runtime/test_start_deadline.py"),
    "tests/listeners",
    "tests/scenarios",
    "tests/api",
    "tests/web",
    "tests/test_database.py",
)
#: The others by their marks, and how many more processes than cores each is given: those that
#: start Spark wait half of their time. Browser tests run alone, because Playwright leaves an
#: event loop running, and the console under test changes the settings.
GROUPS = (("not browser", 1), ("browser", 0))
#: Tests that take longer are named at the end, seconds.
LONG_S = 15
#: Memory, not cores, is the limit of those that start Spark.
MOST_AT_ONCE = 4
#: These JVMs live for seconds, half of which would go to their second compiler and to verifying
#: the classes of Spark's released jars.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote"
)
#: Where the classes are kept that each JVM maps instead of loading them (`tests.class_archive`):
#: in the environment, which drivers see within their walls too.
ARCHIVES = Path(sys.prefix) / "share" / "headgate-classes"
#: How a JVM uses one, and says nothing where it does not fit.
SHARED = "-XX:SharedArchiveFile={file} -Xlog:cds=off -Xlog:cds+dynamic=off"


def at_once(more: int = 0) -> tuple[str, str]:
    """Return pytest's option for one process per core, and `more`."""
    return "-n", str(min((os.cpu_count() or 1) + more, MOST_AT_ONCE))


def main(narrowed: list[str]) -> int:
    """Run what was requested; return the code of the first group that fails, 0 without one."""
    python = sys.executable
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
    # Hundreds of Pythons are started: each would compile every module again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if narrowed:
        return run(python, "-m", "pytest", *narrowed, go_on=True)
    with told():
        archiving = Beside(python, "-m", "tests.class_archive", str(ARCHIVES), part="class archive")
        try:
            run(
                *(python, "-m", "pytest", "-q", "-p", "no:playwright", *at_once(), *PURE),
                *("--cov-branch", "--cov-fail-under=100"),
                *(f"--cov={name}" for name in COVERED),
                *("--cov-report=term-missing:skip-covered",),
                part="pure, with coverage",
            )
        finally:
            archiving.end()
        for archive in ARCHIVES.glob("*.jsa"):
            os.environ["JDK_JAVA_OPTIONS"] += f" {SHARED.format(file=archive)}"
        on_postgresql = Beside(
            *(python, "-m", "pytest", "-q", "-p", "no:playwright", "-p", "no:cacheprovider"),
            *("--database", "postgresql", "-m", f"not ({' or '.join(LARGE)})", *ON_POSTGRESQL),
            part="on PostgreSQL",
        )
        try:
            by_file = ("--dist", "loadfile", "--no-loadscope-reorder")
            for marks, more in GROUPS:
                run(
                    *(python, "-m", "pytest", "-q", *at_once(more), *by_file),
                    *(*(f"--ignore={path}" for path in PURE), "-m", marks),
                    *("--durations=20", f"--durations-min={LONG_S}"),
                    part=marks,
                )
        finally:
            code = on_postgresql.end()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
