"""Run and print commands; at the end, print each part's duration and its failures.

Failures are repeated at the end because CI truncates the middle of the log.
"""

import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from run import print_line

#: The finished parts: name, seconds, exit code.
PARTS: list[tuple[str, float, int]] = []
#: Maximum failures printed in full, and the last lines printed of each: the rest is above.
MOST_WHOLE = 20
LINES = 150


def run(*command: str, go_on: bool = False, part: str = "") -> int:
    """Run a command and return its exit code; unless `go_on` is set, exit if the code is not 0.

    With `part`, the command's duration is printed at the end under that name.
    """
    print_line(f"\n$ {shlex.join(_shown(command))}")
    began = time.monotonic()
    code = subprocess.call(command)
    if part:
        PARTS.append((part, time.monotonic() - began, code))
    if code and not go_on:
        sys.exit(code)
    return code


class ParallelPart:
    """A command that runs in parallel with others; its output is shown when it ends."""

    def __init__(self, *command: str, part: str) -> None:
        print_line(f"\n$ {shlex.join(_shown(command))} &")
        self._part, self._began, self._seconds = part, time.monotonic(), 0.0
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `end`)
        self._process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT)
        # It measures the command's own end, not the moment at which somebody waits for it.
        self._watch = threading.Thread(target=self._wait, name=part)
        self._watch.start()

    def end(self) -> int:
        """Wait for the command to end and show its output; return its exit code."""
        self._watch.join()
        code = self._process.returncode
        PARTS.append((self._part, self._seconds, code))
        with self._output as output:
            output.seek(0)
            print_line(f"\n{self._part}:\n{output.read().rstrip()}")
        return code

    def _wait(self) -> None:
        self._process.wait()
        self._seconds = time.monotonic() - self._began


@contextmanager
def print_durations() -> Iterator[None]:
    """Print each part's duration at the end, also after an error."""
    began = time.monotonic()
    try:
        yield
    finally:
        print_line("")
        for part, seconds, code in PARTS:
            print_line(f"{part:<32}{clock(seconds):>8}{'' if code == 0 else f'  failed ({code})'}")
        print_line(f"{'together':<32}{clock(time.monotonic() - began):>8}")


class Reports:
    """The test groups' report files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, part: str) -> tuple[str, ...]:
        """Return the pytest options with which a group reports its failures."""
        file = self._folder / f"{part}.xml"
        options = ("junit_logging=all", "junit_log_passing_tests=false")
        return f"--junit-xml={file}", *(word for option in options for word in ("-o", option))

    def skipped(self, part: str) -> list[str]:
        """Return the reasons for which tests of a part, or of its runs "part, …", were skipped."""
        files = [path for path in self._folder.glob("*.xml") if path.stem.split(",")[0] == part]
        return [
            skipped.get("message", "")
            for file in sorted(files)
            for skipped in ElementTree.parse(file).iter("skipped")
        ]

    def failures(self) -> list[tuple[str, str]]:
        """Return each failure's title and text, group by group."""
        failures = []
        for file in sorted(self._folder.glob("*.xml"), key=lambda path: path.stat().st_mtime):
            for case in ElementTree.parse(file).iter("testcase"):
                name = f"{case.get('classname', '')}::{case.get('name', '')}"
                # A test that asks in a loop has one for each iteration that failed.
                for broken in [*case.iter("failure"), *case.iter("error")]:
                    failures.append((f"{file.stem}: {name}", _text(case, broken)))
        return failures


@contextmanager
def repeated() -> Iterator[Reports]:
    """Provide report files; at the end, also after an error, print the failures in them."""
    with tempfile.TemporaryDirectory(prefix="headgate-reports-") as folder:
        reports = Reports(Path(folder))
        try:
            yield reports
        finally:
            failures = reports.failures()
            for number, (title, text) in enumerate(failures):
                print_line(f"\n==== {title}")
                if number < MOST_WHOLE:
                    print_line(text)
            if failures:
                print_line(f"\n{len(failures)} failed")


def clock(seconds: float) -> str:
    """Return "9.5 s" or "2:05 min"."""
    return (
        f"{int(seconds) // 60}:{int(seconds) % 60:02d} min" if seconds >= 60 else f"{seconds:.1f} s"
    )


def _shown(command: Sequence[str]) -> list[str]:
    return ["python" if part == sys.executable else part for part in command]


def _text(case: ElementTree.Element, broken: ElementTree.Element) -> str:
    """Return the last lines of a traceback and of the test's output."""
    parts = [broken.text or broken.get("message") or ""]
    parts += [
        element.text or "" for kind in ("system-out", "system-err") for element in case.iter(kind)
    ]
    lines = [[line for line in part.strip().splitlines() if line] for part in parts]
    # pytest prints a rule above a test's output, even if there is none.
    last_lines = [
        element[-LINES:] for element in lines if not all(line.startswith("---") for line in element)
    ]
    return "\n".join("\n".join(element) for element in last_lines)
