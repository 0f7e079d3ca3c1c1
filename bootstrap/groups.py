"""The groups of tests that `make test`, `make test-all` and CI put together.

Each group is one run of pytest in several processes; its duration and its failures are printed at
the end.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from areas import LARGE, PROMISE, Area, AreaTable, matches
from run import print_line
from steps import ParallelPart, Reports, run

#: Pure decisions and the wire format must have full branch coverage.
COVERED = ("queries.domain", "headgate_ground.wire", "headgate_ground.tolerant")
#: The tests that cover them: tables, properties, and supervision stories.
PURE = (
    *("tests/domain", "tests/scenarios", "tests/listeners/test_wire.py"),
    "tests/listeners/test_tolerant.py",
    "tests/security/test_configuration.py",
)
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
#: The share of examples that property tests try, and of the steps of random walks, in `make test`
#: and in CI; `make test-all` tries all.
EXAMPLES = "0.2"
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
#: are stored in the environment, which drivers can read in their sandbox too.
ARCHIVES = Path(sys.prefix) / "share" / "headgate-classes"
MAKES_ARCHIVES = (sys.executable, "-m", "tests.class_archive", str(ARCHIVES))
#: The JVM options for an archive; the JVM silently ignores an archive that does not match.
SHARED = "-XX:SharedArchiveFile={file} -Xlog:cds=off -Xlog:cds+dynamic=off"
NOT_LARGE = f"not ({' or '.join(sorted(LARGE))})"
#: pytest's exit code if it was left without a test.
NO_TESTS = 5


class Groups:
    """Runs groups of tests, and remembers the exit code of each."""

    def __init__(self, table: AreaTable, reports: Reports) -> None:
        self.table, self.reports = table, reports
        self.codes: list[int] = []
        os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
        # Otherwise each of hundreds of Python processes would recompile every module.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

    @property
    def code(self) -> int:
        """Return the first exit code that is not 0, otherwise 0."""
        return next((code for code in self.codes if code), 0)

    def light(self, *, covered: bool = False) -> int:
        """Run all tests that start nothing large; `covered` traces those of the pure parts.

        Spark's classes are archived at the same time, for the JVMs of the groups that follow.
        """
        archiving = ParallelPart(*MAKES_ARCHIVES, part="class archive")
        try:
            if not covered:
                return self._light("light")
            options = ("-p", "no:playwright", *_at_once(), *_covered())
            pure = self._run("light, pure with coverage", *options)
            return max(pure, self._light("light", *(f"--ignore={path}" for path in PURE)))
        finally:
            archiving.end()
            _use_archives()

    def archive_classes(self) -> None:
        """Archive Spark's classes, where `light` is not run."""
        run(*MAKES_ARCHIVES, go_on=True)
        _use_archives()

    def postgresql(self) -> ParallelPart:
        """Start the tests marked `sql` on PostgreSQL, in parallel with the next group.

        All tests of the area's folders have the mark, and some in other files.
        """
        folders = self.table.areas["postgresql"].tests
        marked = (file for file in _tests() if "pytest.mark.sql" in Path(file).read_text())
        return ParallelPart(
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:playwright"),
            *("-p", "no:cacheprovider", "--database", "postgresql", "-m", f"sql and {NOT_LARGE}"),
            *(*folders, *(file for file in marked if not matches(file, folders))),
            *self.reports.of("postgresql"),
            part="postgresql",
        )

    def browser(self) -> int:
        """Run the browser tests alone: Playwright leaves an event loop running in its process."""
        files = files_of(self.table.areas["browser"])
        return self._run("browser", *_at_once(), *BY_FILE, "-m", "browser", *files)

    def large(self, part: str, areas: Sequence[Area], *, promises: bool, but: str = "") -> int:
        """Run areas completely, and every promise; `but` is a mark of tests to leave out.

        Tests that start Spark spend half of their time waiting, so there is one process more than
        there are cores.
        """
        marks = "not browser" + (f" and not {but}" if but else "")
        files = [
            file
            for file in _tests()
            if any(matches(file, area.tests) for area in areas if not area.other_sparks)
            or (promises and f"mark.{PROMISE}" in Path(file).read_text())
        ]
        return self._run(
            part,
            *(*_at_once(1), *BY_FILE, "-p", "no:playwright", "-m", marks, *files),
            *("--areas", ",".join(area.name for area in areas)),
            *(["--promises"] if promises else []),
            *("--durations=20", f"--durations-min={LONG_S}"),
        )

    def whole(self, area: Area, *, but: str = "") -> int:
        """Run one complete area."""
        if area.other_sparks:
            return self.other_sparks(area)
        if not area.small:
            return self.large(area.name, [area], promises=False, but=but)
        examples = os.environ.pop("HEADGATE_TEST_EXAMPLES", None)
        try:
            return self._run(area.name, "-p", "no:playwright", *_at_once(), *BY_FILE, *area.tests)
        finally:
            if examples is not None:
                os.environ["HEADGATE_TEST_EXAMPLES"] = examples

    def other_sparks(self, area: Area) -> int:
        """Run an area's tests on each other Spark version that is installed; 0 if all pass."""
        codes = [self._on_spark(version, files_of(area)) for version in installed_sparks()]
        return next((code for code in codes if code), 0)

    def promises_on_other_spark(self, area: Area) -> ParallelPart | None:
        """Start the promises on the newest other Spark, in parallel; None if none is installed."""
        versions = installed_sparks()
        if not versions:
            print_line(f"\nNo other version of Spark was tested: {how_to_install_sparks()}")
            return None
        part = f"promises on Spark {versions[-1]}"
        os.environ["HEADGATE_TEST_SPARK"] = versions[-1]
        try:
            return ParallelPart(
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:playwright", "--promises"),
                *("-p", "no:cacheprovider", *_at_once(), *BY_FILE, *_promising(files_of(area))),
                *self.reports.of(part),
                part=part,
            )
        finally:
            del os.environ["HEADGATE_TEST_SPARK"]

    def end(self, group: ParallelPart | None) -> int:
        """Wait for a group that runs in parallel; return its exit code."""
        code = group.end() if group else 0
        self.codes.append(code)
        return code

    def _light(self, part: str, *arguments: str) -> int:
        options = ("-p", "no:playwright", *_at_once(1), *BY_FILE, "-m", NOT_LARGE)
        return self._run(part, *options, *arguments)

    def _on_spark(self, version: str, files: Sequence[str]) -> int:
        os.environ["HEADGATE_TEST_SPARK"] = version
        try:
            options = ("-p", "no:playwright", *_at_once(), *BY_FILE)
            return self._run(f"sparks, {version}", *options, *files)
        finally:
            del os.environ["HEADGATE_TEST_SPARK"]

    def _run(self, part: str, *arguments: str) -> int:
        """Run pytest; a failure ends no other group, so one run names everything to be mended."""
        options = (*arguments, *self.reports.of(part))
        code = run(sys.executable, "-m", "pytest", "-q", *options, go_on=True, part=part)
        self.codes.append(0 if code == NO_TESTS else code)
        return code


def installed_sparks() -> list[str]:
    """Return the other Spark versions that are installed, the oldest first."""
    folder = Path(os.environ.get("HEADGATE_HOME") or "var") / "sparks"
    return [version for version in spark_versions() if (folder / version).is_dir()]


def spark_versions() -> list[str]:
    """Return the other Spark versions that drivers can run on, the oldest first."""
    return sorted(path.stem for path in Path("connectors/sparks").glob("*.txt"))


def how_to_install_sparks() -> str:
    """Return the commands that install the other Spark versions."""
    return " and ".join(f"`make spark ARGS={version}`" for version in spark_versions())


def _use_archives() -> None:
    for archive in ARCHIVES.glob("*.jsa"):
        os.environ["JDK_JAVA_OPTIONS"] += f" {SHARED.format(file=archive)}"


def _promising(files: Sequence[str]) -> list[str]:
    return [file for file in files if f"mark.{PROMISE}" in Path(file).read_text()]


def files_of(area: Area) -> list[str]:
    """Return the files of an area's tests: pytest expands no patterns."""
    return [file for file in _tests() if matches(file, area.tests)]


def _tests() -> list[str]:
    return sorted(str(file) for file in Path("tests").rglob("test_*.py"))


def _at_once(more: int = 0) -> tuple[str, str]:
    """Return pytest's option for one process per core plus `more` processes."""
    return "-n", str(min((os.cpu_count() or 1) + more, MOST_AT_ONCE))


def _covered() -> list[str]:
    return [
        *PURE,
        *("--cov-branch", "--cov-fail-under=100"),
        *(f"--cov={name}" for name in COVERED),
        "--cov-report=term-missing:skip-covered",
    ]
