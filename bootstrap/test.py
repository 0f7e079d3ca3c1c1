"""Run the tests: those of the pure parts with full branch coverage, then all others.

Each group runs in several processes, one file at a time; its duration and its failures are printed
at the end. Arguments are passed to pytest and narrow the run; coverage and groups are then skipped.
"""

import os
import sys
from pathlib import Path

from check import LARGE
from run import say
from steps import Beside, Reports, repeated, run, told

#: Pure decisions and the wire format must have full branch coverage.
COVERED = ("queries.domain", "headgate_ground.wire", "headgate_ground.tolerant")
#: The tests that cover them: tables, properties, and supervision stories.
PURE = (
    *("tests/domain", "tests/scenarios", "tests/listeners/test_wire.py"),
    "tests/listeners/test_tolerant.py",
    "tests/security/test_configuration.py",
)
#: Tests marked `sql` also run on PostgreSQL, in parallel with the next group, which spends half its
#: time waiting. This includes all tests in these places, and marked tests in other files.
ON_POSTGRESQL = (
    *("tests/services", "tests/controlplane", "tests/runtime/test_start_deadline.py"),
    *("tests/listeners", "tests/test_database.py"),
)
#: The other groups by marker, each with its number of processes in addition to the cores: tests
#: that start Spark spend half of their time waiting. Browser tests run alone, because Playwright
#: leaves an event loop running, and the console under test changes the settings.
GROUPS = (("not browser", 1), ("browser", 0))
#: Another version of Spark, if it is installed: the drivers' core tests run on it in parallel with
#: the browser tests, which leave a core idle half of the time.
OTHER_SPARK = "4.2"
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
#: The tests that also run on other versions of Spark (`make test-sparks`): queries in a driver. The
#: listener, probes, the demo's queries and Spark's examples are `MORE`.
CORE = ("tests/spark/test_runtime_queries.py",)
MORE = (
    "tests/spark/test_listener_drops.py",
    "tests/spark/test_probes.py",
    "tests/spark/test_flights_streams.py",
    "tests/spark/scripts/test_sparks_own_examples.py",
)
#: Tests that take longer than this, in seconds, are listed at the end.
LONG_S = 15
#: Memory, not cores, limits the tests that start Spark.
MOST_AT_ONCE = 4
#: These JVMs run for seconds, half of which would go to their second compiler and to verifying the
#: classes of Spark's released jars.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote"
)
#: Class archives that each JVM maps instead of loading the classes (`tests.class_archive`). They
#: are stored in the environment, which drivers can read within their walls too.
ARCHIVES = Path(sys.prefix) / "share" / "headgate-classes"
#: The JVM options for an archive; the JVM silently ignores an archive that does not match.
SHARED = "-XX:SharedArchiveFile={file} -Xlog:cds=off -Xlog:cds+dynamic=off"


def at_once(more: int = 0) -> tuple[str, str]:
    """Return pytest's option for one process per core, and `more` processes in addition."""
    return "-n", str(min((os.cpu_count() or 1) + more, MOST_AT_ONCE))


def on_postgresql_too() -> list[str]:
    """Return the folders and files whose tests also run on PostgreSQL."""
    marked = (
        str(file)
        for file in sorted(Path("tests").rglob("test_*.py"))
        if "pytest.mark.sql" in file.read_text()
    )
    return [*ON_POSTGRESQL, *(file for file in marked if not file.startswith(ON_POSTGRESQL))]


def on_other_sparks(versions: list[str]) -> int:
    """Run the drivers' core tests on other versions of Spark; return 0 if all pass."""
    known = sorted(path.stem for path in Path("connectors/sparks").glob("*.txt"))
    failed = 0
    for version in versions or known:
        os.environ["HEADGATE_TEST_SPARK"] = version
        failed = (
            run(
                *(
                    sys.executable,
                    "-m",
                    "pytest",
                    "-q",
                    "-p",
                    "no:playwright",
                    *at_once(),
                    *BY_FILE,
                ),
                *(*CORE, *MORE),
                go_on=True,
                part=f"Spark {version}",
            )
            or failed
        )
    return failed


def on_other_spark(reports: Reports) -> Beside | None:
    """Start the core tests on `OTHER_SPARK`; None, with a line that says so, if it is missing."""
    home = Path(os.environ.get("HEADGATE_HOME") or "var")
    if not (home / "sparks" / OTHER_SPARK).is_dir():
        say(
            f"\nThe core tests on Spark {OTHER_SPARK} were skipped: it is not installed; get it"
            f" with `make spark ARGS={OTHER_SPARK}`."
        )
        return None
    part = f"on Spark {OTHER_SPARK}"
    os.environ["HEADGATE_TEST_SPARK"] = OTHER_SPARK
    try:
        return Beside(
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:playwright", *at_once(), *BY_FILE),
            *("-p", "no:cacheprovider", *CORE, *reports.of(part)),
            part=part,
        )
    finally:
        del os.environ["HEADGATE_TEST_SPARK"]


def main(narrowed: list[str]) -> int:
    """Run the requested tests; return the exit code of the first failing group, otherwise 0."""
    python = sys.executable
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
    # Otherwise each of hundreds of Python processes would recompile every module.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if narrowed[:1] == ["--sparks"]:
        with told():
            return on_other_sparks(narrowed[1:])
    if narrowed:
        return run(python, "-m", "pytest", *narrowed, go_on=True)
    with repeated() as reports, told():
        archiving = Beside(python, "-m", "tests.class_archive", str(ARCHIVES), part="class archive")
        try:
            run(
                *(python, "-m", "pytest", "-q", "-p", "no:playwright", *at_once(), *PURE),
                *reports.of("pure, with coverage"),
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
            *("--database", "postgresql", "-m", f"sql and not ({' or '.join(LARGE)})"),
            *on_postgresql_too(),
            *reports.of("on PostgreSQL"),
            part="on PostgreSQL",
        )
        beside: list[Beside | None] = [on_postgresql]
        codes = []
        try:
            # A failure ends no other group: one run names everything that has to be mended.
            for marks, more in GROUPS:
                if marks == "browser":
                    beside.append(on_other_spark(reports))
                codes.append(
                    run(
                        *(python, "-m", "pytest", "-q", *at_once(more), *BY_FILE),
                        *(*(f"--ignore={path}" for path in PURE), "-m", marks),
                        *("--durations=20", f"--durations-min={LONG_S}"),
                        *reports.of(marks),
                        go_on=True,
                        part=marks,
                    )
                )
        finally:
            codes += [one.end() for one in beside if one is not None]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
