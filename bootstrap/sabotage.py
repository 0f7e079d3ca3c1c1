"""Take out one guard at a time and see that the tests which hold it fail by their assertions.

    python bootstrap/sabotage.py [--list] [--only NAME]…

`guards.toml` beside this file says what each guard is and what is cut out of which file. All of it
happens in copies of the tracked files in a temporary folder, with settings, data and temporary
files of their own: neither this folder nor an installation in it is touched. A guard counts as
caught where the program without it still starts and each of the named tests fails by an assertion
(`red.py`); the same tests must be green before anything is taken out.
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
from run import say
from steps import clock

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = Path(__file__).with_name("guards.toml")
#: For all tests of one guard, and for one of them; the longest takes some seconds.
TESTS_TAKE_S, ONE_TAKES_S = 600, 180
#: For what a test left behind to end.
ENDS_WITHIN_S = 30
#: A guard's tests wait half of their time; memory allows no more than this at once.
MOST_AT_ONCE = 4
#: Nothing of this environment may lead a program that lacks a guard to real data.
#: Nor may each of its Pythons compile every module again.
_OURS = (
    *("HEADGATE_", "DATABASE_URL", "REDIS_URL", "SECRET_KEY", "DJANGO_", "PYTEST_"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
)


@dataclass(frozen=True)
class Guard:
    """One guard, and how it is taken out."""

    name: str
    holds: str  # what is true because of it, as docs/reliability.md says it
    file: str
    old: str
    new: str
    tests: tuple[str, ...]  # ids of pytest; without parameters, any of its cases will do

    def moved(self, tree: Path) -> str:
        """Return what is wrong with its place in a tree, "" where it is there exactly once."""
        path = tree / self.file
        count = path.read_text().count(self.old) if path.exists() else 0
        return "" if count == 1 else f"{self.file} has its text {count} times: the guard has moved"


@dataclass(frozen=True)
class Result:
    """What came of taking a guard out."""

    guard: Guard
    seconds: float
    red: int = 0  # of its tests, by assertion
    problems: tuple[str, ...] = ()  # why it does not count as caught


@dataclass(frozen=True)
class Plan:
    """The guards, and the tests that must pass without each of them."""

    guards: tuple[Guard, ...]
    alive: tuple[str, ...]
    programs: tuple[str, ...]  # modules that must still be importable

    @property
    def tests(self) -> list[str]:
        """Return every test that is named, once."""
        return list(dict.fromkeys([*self.alive, *(t for one in self.guards for t in one.tests)]))


def read(file: Path = DATA) -> Plan:
    """Return what the data file says."""
    said: dict[str, Any] = tomllib.loads(file.read_text())
    guards = [Guard(**{**one, "tests": tuple(one["tests"])}) for one in said["guard"]]
    return Plan(tuple(guards), tuple(said["alive"]), tuple(said["programs"]))


@dataclass
class Copy:
    """A copy of the tree in a folder of its own, which one guard at a time is taken out of."""

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
            "SECRET_KEY": secrets.token_urlsafe(50),  # the web process does not start without
            "TMPDIR": str(temporary),
            PROGRAMS: " ".join(self.programs),
        }

    def take_tree(self, source: Path) -> None:
        """Copy what git tracks, as it is in the folder now."""
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

    def again(self, folder: Path) -> "Copy":
        """Return another copy, with what Python has compiled in this one."""
        shutil.copytree(self.tree, folder / "tree", symlinks=True)
        return Copy(folder, self.programs)

    def without(self, guard: Guard, alive: Sequence[str]) -> Result:
        """Take a guard out, run its tests, put it back."""
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
        return Result(guard, time.monotonic() - began, red, tuple(problems))

    def test(self, tests: Sequence[str]) -> dict[str, str]:
        """Look whether the program starts, and run tests; return what came of each case.

        {"": why} where it does not start, or no test could be run.
        """
        found = self.folder / "verdicts.json"
        found.unlink(missing_ok=True)
        self.environment[VERDICTS] = str(found)
        options = ["-q", "-p", "no:playwright", "-p", "no:cacheprovider", "-p", "bootstrap.red"]
        limit = ["-o", f"timeout={ONE_TAKES_S}"]
        told = self._run(["-m", "pytest", *options, *limit, *tests], TESTS_TAKE_S)
        if not found.exists():
            return {"": f"no test was run: {_last(told)}"}
        verdicts: dict[str, str] = json.loads(found.read_text())
        return verdicts

    def _run(self, arguments: Sequence[str], limit_s: float) -> str:
        """Run Python in the tree and return what it said."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.tree,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            told, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            end_what_works_in(self.folder)  # what it started may hold its output open
            told, _ = process.communicate(timeout=ENDS_WITHIN_S)
            told += f"\nnot ended within {limit_s} s"
        return told

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Write a module, and forget its compiled form: that is told by size and second only."""
        path.write_text(text)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()


def cases_of(test: str, verdicts: Mapping[str, str]) -> list[str]:
    """Return what came of the cases of a test that the data file names."""
    return [
        verdict
        for case, verdict in verdicts.items()
        if case == test or ("[" not in test and case.partition("[")[0] == test)
    ]


def is_red(cases: Sequence[str]) -> bool:
    """Tell whether a test has failed by its assertion."""
    return ASSERTION in cases


def is_green(cases: Sequence[str]) -> bool:
    """Tell whether every case of a test has passed."""
    return bool(cases) and set(cases) == {PASSED}


def is_skipped(cases: Sequence[str]) -> bool:
    """Return whether a test needs something that is missing on this machine."""
    return bool(cases) and set(cases) == {SKIPPED}


def judge(guard: Guard, alive: Iterable[str], verdicts: Mapping[str, str]) -> list[str]:
    """Return why a guard does not count as caught; [] where it does."""
    if "" in verdicts:
        return [verdicts[""]]
    problems = []
    for test in alive:
        if not is_green(cases := cases_of(test, verdicts)):
            problems.append(f"without it nothing works any more: {test} {_told(cases)}")
    for test in guard.tests:
        if not is_red(cases := cases_of(test, verdicts)):
            problems.append(f"{test} {_told(cases)}")
    return problems


def end_what_works_in(folder: Path) -> None:
    """End the processes that tests have left behind, known by this folder of their own."""
    left = [one for one in psutil.process_iter() if _works_in(one, f"{folder}/")]
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


def _told(cases: Sequence[str]) -> str:
    return f"says: {', '.join(dict.fromkeys(cases))}" if cases else "was not run"


def _last(output: str) -> str:
    lines = output.strip().splitlines()
    return " | ".join(lines[-3:])


def names_of(plan: Plan, asked: Sequence[str]) -> Plan:
    """Return the plan with the guards that were asked for; leave where there is no such guard."""
    known = {one.name: one for one in plan.guards}
    for name in asked:
        if name not in known:
            sys.exit(f"There is no guard {name}. There are: {', '.join(known)}.")
    return replace(plan, guards=tuple(known[name] for name in asked or known))


def sabotage(plan: Plan, folder: Path, source: Path = REPOSITORY) -> list[Result]:
    """Take the guards of a plan out, one in each copy at a time; leave where one has moved.

    Leaves, too, where a test fails before anything was taken out. A guard whose tests are skipped
    here is not taken out, and does not count as caught.
    """
    moved = [f"{one.name}: {one.moved(source)}" for one in plan.guards if one.moved(source)]
    if moved:
        sys.exit("\n".join(moved))
    first = Copy(folder / "1", plan.programs)
    first.take_tree(source)
    began = time.monotonic()
    say(f"Before: {len(plan.tests)} tests with every guard in its place…")
    verdicts = first.test(plan.tests)
    end_what_works_in(first.folder)
    red = {test: cases_of(test, verdicts) for test in plan.tests}
    skipped = {test for test, cases in red.items() if is_skipped(cases)} - {*plan.alive}
    failed = [
        f"{test} {_told(cases)}"
        for test, cases in red.items()
        if not is_green(cases) and test not in skipped
    ]
    if failed:
        sys.exit("\n".join([*verdicts.values()] if "" in verdicts else failed))
    say(f"  all pass, {clock(time.monotonic() - began)}\n")
    untried = [_untried(one, skipped) for one in plan.guards if skipped & {*one.tests}]
    tried = [one for one in plan.guards if not skipped & {*one.tests}]
    if not tried:
        return untried
    at_once = min(len(os.sched_getaffinity(0)), MOST_AT_ONCE, len(tried))
    free: queue.Queue[Copy] = queue.Queue()
    for copy in (first, *(first.again(folder / str(n)) for n in range(2, at_once + 1))):
        free.put(copy)
    with ThreadPoolExecutor(at_once) as pool:
        return untried + list(pool.map(partial(_one, free, plan.alive), tried))


def _untried(guard: Guard, skipped: set[str]) -> Result:
    """Say that a guard cannot be tried on this machine."""
    tests = ", ".join(sorted(skipped & {*guard.tests}))
    result = Result(guard, 0.0, problems=(f"not tried on this machine, which skips {tests}",))
    _tell(result)
    return result


def _one(free: "queue.Queue[Copy]", alive: Sequence[str], guard: Guard) -> Result:
    copy = free.get()
    try:
        result = copy.without(guard, alive)
    finally:
        free.put(copy)
    _tell(result)
    return result


def _tell(result: Result) -> None:
    red = f"{result.red} of {len(result.guard.tests)} red"
    say(f"{result.guard.name:<28}{red:>12}{clock(result.seconds):>12}")
    for problem in result.problems:
        say(f"    {problem}")


def main(arguments: Sequence[str]) -> int:
    """List the guards, or take them out; return 0 where every one is caught."""
    options = argparse.ArgumentParser(prog="make sabotage", description=__doc__)
    options.add_argument("--list", action="store_true", help="say which guards there are")
    options.add_argument("--only", action="append", default=[], metavar="NAME")
    asked = options.parse_args(arguments)
    plan = names_of(read(), asked.only)
    if asked.list:
        for one in plan.guards:
            say(f"{one.name:<28}{one.file}\n    {one.holds}")
        return 0
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="headgate-sabotage-"))
    folder.chmod(0o711)  # drivers of other accounts must get to the program
    try:
        results = sabotage(plan, folder)
    finally:
        end_what_works_in(folder)
        shutil.rmtree(folder, ignore_errors=True)
    caught = sum(not result.problems for result in results)
    say(f"\n{caught} of {len(results)} guards caught, {clock(time.monotonic() - began)}")
    return 0 if caught == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
