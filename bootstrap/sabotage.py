"""Remove one guard at a time, and verify that its tests fail because of an assertion.

    python bootstrap/sabotage.py [--list] [--only NAME]…

`guards.toml` next to this file describes each guard and the text to remove from a file. Everything
happens in copies of the tracked files in a temporary folder, with their own settings, data and
temporary files: neither this folder nor an installation in it is changed. A guard counts as caught
if the program still starts without the guard and each of the listed tests fails because of an
assertion (`red.py`); the same tests must pass before any guard is removed.
"""

import argparse
import json
import os
import queue
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from red import ASSERTION, PASSED, PROGRAMS, SKIPPED, VERDICTS
from run import print_line
from steps import clock

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = Path(__file__).with_name("guards.toml")
#: Time limits for all tests of one guard, and for one test; the longest takes several seconds.
TESTS_TAKE_S, TEST_TAKES_S = 600, 180
#: Time limit for leftover processes to exit.
ENDS_WITHIN_S = 30
#: A guard's tests spend half of their time waiting; memory allows no more than this in parallel.
MOST_AT_ONCE = 4
#: This environment must not lead a program without a guard to real data, nor make each of its
#: Python processes recompile every module.
_OURS = (
    *("HEADGATE_", "DATABASE_URL", "REDIS_URL", "SECRET_KEY", "DJANGO_", "PYTEST_"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
)


@dataclass(frozen=True)
class Guard:
    """One guard, and how to remove it."""

    name: str
    holds: str  # what it ensures; docs/guarantees.md lists guards by guarantee
    file: str
    old: str
    new: str
    tests: tuple[str, ...]  # pytest ids; if an id has no parameters, any case will do

    def moved(self, tree: Path) -> str:
        """Return what is wrong with the guard's text in a tree; "" if it occurs exactly once."""
        path = tree / self.file
        count = path.read_text().count(self.old) if path.exists() else 0
        return (
            ""
            if count == 1
            else (f"{self.file} contains the guard's text {count} times: the guard has moved")
        )


@dataclass(frozen=True)
class GuardResult:
    """The result of removing a guard."""

    guard: Guard
    seconds: float
    red: int = 0  # tests that failed, by assertion
    problems: tuple[str, ...] = ()  # why it does not count as caught


@dataclass(frozen=True)
class GuardPlan:
    """The guards, and the tests that must still pass without any one of them."""

    guards: tuple[Guard, ...]
    alive: tuple[str, ...]
    programs: tuple[str, ...]  # modules that must remain importable

    @property
    def tests(self) -> list[str]:
        """Return every listed test, once."""
        return list(
            dict.fromkeys([*self.alive, *(t for guard in self.guards for t in guard.tests)])
        )


def read(file: Path = DATA) -> GuardPlan:
    """Return the contents of the data file."""
    data: dict[str, Any] = tomllib.loads(file.read_text())
    guards = [Guard(**{**fields, "tests": tuple(fields["tests"])}) for fields in data["guard"]]
    return GuardPlan(tuple(guards), tuple(data["alive"]), tuple(data["programs"]))


@dataclass
class Copy:
    """A copy of the tree in its own folder, from which one guard at a time is removed."""

    folder: Path
    programs: tuple[str, ...]
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.tree, temporary = self.folder / "tree", self.folder / "t"
        temporary.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(_OURS)},
            "HEADGATE_HOME": str(self.folder / "home"),
            "HEADGATE_TEST_EXAMPLES": "0.1",
            "SECRET_KEY": secrets.token_urlsafe(50),  # the web process needs it to start
            "TMPDIR": str(temporary),
            PROGRAMS: " ".join(self.programs),
        }

    def take_tree(self, source: Path) -> None:
        """Copy the files that git tracks, with their current contents in the folder."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "-co", "--exclude-standard"],
            cwd=source,
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for name in os.fsdecode(listed).split("\0"):
            if name and (source / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, self.tree / name)
        # What `make kafka`, `make hadoop` and the like have brought; tests only read it.
        (self.tree / "var").mkdir(parents=True, exist_ok=True)
        for name in ("connectors", "hadoop", "kafka", "rest-catalog", "s3", "sparks"):
            if (downloads := source / "var" / name).exists():
                (self.tree / "var" / downloads.name).symlink_to(downloads.resolve())

    def again(self, folder: Path) -> "Copy":
        """Return another copy, including this one's compiled modules."""
        shutil.copytree(self.tree, folder / "tree", symlinks=True)
        return Copy(folder, self.programs)

    def without(self, guard: Guard, alive: Sequence[str]) -> GuardResult:
        """Remove a guard, run its tests, restore it."""
        began = time.monotonic()
        path = self.tree / guard.file
        before = path.read_text()
        try:
            self._write(path, before.replace(guard.old, guard.new))
            verdicts = self.test([*alive, *guard.tests])
        finally:
            end_what_works_in(self.folder)
            self._write(path, before)
        problems = judge(guard, alive, verdicts)
        red = sum(is_red(cases_of(test, verdicts)) for test in guard.tests)
        return GuardResult(guard, time.monotonic() - began, red, tuple(problems))

    def test(self, tests: Sequence[str]) -> dict[str, str]:
        """Check whether the program starts, and run tests; return the result of each case.

        Returns {"": reason} if the program does not start, or no tests could be run.
        """
        verdicts_file = self.folder / "verdicts.json"
        verdicts_file.unlink(missing_ok=True)
        self.environment[VERDICTS] = str(verdicts_file)
        options = ["-q", "-p", "no:playwright", "-p", "no:cacheprovider", "-p", "bootstrap.red"]
        limit = ["-o", f"timeout={TEST_TAKES_S}"]
        output = self._run(["-m", "pytest", *options, *limit, *tests], TESTS_TAKE_S)
        if not verdicts_file.exists():
            return {"": f"no test was run: {_last(output)}"}
        verdicts: dict[str, str] = json.loads(verdicts_file.read_text())
        return verdicts

    def _run(self, arguments: Sequence[str], limit_s: float) -> str:
        """Run Python in the tree and return its output."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.tree,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            end_what_works_in(self.folder)  # its child processes may hold its output open
            output, _ = process.communicate(timeout=ENDS_WITHIN_S)
            output += f"\nnot ended within {limit_s} s"
        return output

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Write a module; delete its compiled form, which is matched only by size and seconds."""
        path.write_text(text)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()


def cases_of(test: str, verdicts: Mapping[str, str]) -> list[str]:
    """Return the results of a listed test's cases."""
    return [
        verdict
        for case, verdict in verdicts.items()
        if case == test or ("[" not in test and case.partition("[")[0] == test)
    ]


def is_red(cases: Sequence[str]) -> bool:
    """Return whether a test has failed because of its assertion."""
    return ASSERTION in cases


def is_green(cases: Sequence[str]) -> bool:
    """Return whether every case of a test has passed."""
    return bool(cases) and set(cases) == {PASSED}


def is_skipped(cases: Sequence[str]) -> bool:
    """Return whether a test was skipped because this machine lacks a prerequisite."""
    return bool(cases) and set(cases) == {SKIPPED}


def judge(guard: Guard, alive: Iterable[str], verdicts: Mapping[str, str]) -> list[str]:
    """Return the reasons why a guard does not count as caught; [] if it is caught."""
    if "" in verdicts:
        return [verdicts[""]]
    problems = []
    for test in alive:
        if not is_green(cases := cases_of(test, verdicts)):
            problems.append(f"without the guard, nothing works any more: {test} {_outcome(cases)}")
    for test in guard.tests:
        if not is_red(cases := cases_of(test, verdicts)):
            problems.append(f"{test} {_outcome(cases)}")
    return problems


def end_what_works_in(folder: Path) -> None:
    """End the processes left behind by tests, identified by their own folder."""
    left = [candidate for candidate in psutil.process_iter() if _works_in(candidate, f"{folder}/")]
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=ENDS_WITHIN_S)


def _works_in(process: psutil.Process, folder: str) -> bool:
    with suppress(psutil.Error, OSError):
        return process.pid != os.getpid() and (
            any(folder in part for part in process.cmdline())
            or any(folder in value for value in process.environ().values())
        )
    return False


def _outcome(cases: Sequence[str]) -> str:
    return f"says: {', '.join(dict.fromkeys(cases))}" if cases else "was not run"


def _last(output: str) -> str:
    lines = output.strip().splitlines()
    return " | ".join(lines[-3:])


def names_of(plan: GuardPlan, names: Sequence[str]) -> GuardPlan:
    """Return the plan with only the requested guards; exit if one does not exist."""
    by_name = {guard.name: guard for guard in plan.guards}
    for name in names:
        if name not in by_name:
            sys.exit(f"There is no guard {name}. There are: {', '.join(by_name)}.")
    return replace(plan, guards=tuple(by_name[name] for name in names or by_name))


def sabotage(plan: GuardPlan, folder: Path, source: Path = REPOSITORY) -> list[GuardResult]:
    """Remove a plan's guards, one at a time in each copy; exit if a guard has moved.

    It also exits if a test fails before any guard has been removed. A guard whose tests are skipped
    here is not removed, and does not count as caught.
    """
    moved = [f"{guard.name}: {guard.moved(source)}" for guard in plan.guards if guard.moved(source)]
    if moved:
        sys.exit("\n".join(moved))
    first = Copy(folder / "1", plan.programs)
    first.take_tree(source)
    began = time.monotonic()
    print_line(f"Before: {len(plan.tests)} tests with every guard in its place…")
    verdicts = first.test(plan.tests)
    end_what_works_in(first.folder)
    red = {test: cases_of(test, verdicts) for test in plan.tests}
    skipped = {test for test, cases in red.items() if is_skipped(cases)} - {*plan.alive}
    failed = [
        f"{test} {_outcome(cases)}"
        for test, cases in red.items()
        if not is_green(cases) and test not in skipped
    ]
    if failed:
        sys.exit("\n".join([*verdicts.values()] if "" in verdicts else failed))
    print_line(f"  all pass, {clock(time.monotonic() - began)}\n")
    untried = [_untried(guard, skipped) for guard in plan.guards if skipped & {*guard.tests}]
    tried = [guard for guard in plan.guards if not skipped & {*guard.tests}]
    if not tried:
        return untried
    at_once = min(len(os.sched_getaffinity(0)), MOST_AT_ONCE, len(tried))
    free: queue.Queue[Copy] = queue.Queue()
    for copy in (first, *(first.again(folder / str(n)) for n in range(2, at_once + 1))):
        free.put(copy)
    with ThreadPoolExecutor(at_once) as pool:
        return untried + list(pool.map(partial(_try_guard, free, plan.alive), tried))


def _untried(guard: Guard, skipped: set[str]) -> GuardResult:
    """Return the result for a guard that cannot be tested on this machine."""
    tests = ", ".join(sorted(skipped & {*guard.tests}))
    result = GuardResult(guard, 0.0, problems=(f"not tested on this machine, which skips {tests}",))
    _print_result(result)
    return result


def _try_guard(free: "queue.Queue[Copy]", alive: Sequence[str], guard: Guard) -> GuardResult:
    copy = free.get()
    try:
        result = copy.without(guard, alive)
    finally:
        free.put(copy)
    _print_result(result)
    return result


def _print_result(result: GuardResult) -> None:
    red = f"{result.red} of {len(result.guard.tests)} red"
    print_line(f"{result.guard.name:<28}{red:>12}{clock(result.seconds):>12}")
    for problem in result.problems:
        print_line(f"    {problem}")


def main(arguments: Sequence[str]) -> int:
    """List the guards, or remove them; return 0 if every guard is caught."""
    parser = argparse.ArgumentParser(prog="make sabotage", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list the guards")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    options = parser.parse_args(arguments)
    plan = names_of(read(), options.only)
    if options.list:
        for guard in plan.guards:
            print_line(f"{guard.name:<28}{guard.file}\n    {guard.holds}")
        return 0
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="headgate-sabotage-"))
    try:
        results = sabotage(plan, folder)
    finally:
        end_what_works_in(folder)
        shutil.rmtree(folder, ignore_errors=True)
    caught = sum(not result.problems for result in results)
    print_line(f"\n{caught} of {len(results)} guards caught, {clock(time.monotonic() - began)}")
    return 0 if caught == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
