"""The areas of the tests: what a change must run, and the contents on which everything last passed.

`areas.toml` is the table. `make test` runs the areas that are always run, every promise, and each
other area whose contents differ from those on which `make test-all` last passed. It compares
contents, not commits: a rebase changes nothing, and uncommitted and untracked files count.
"""

import hashlib
import os
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = Path(__file__).with_name("areas.toml")
#: The digest of each area's contents when `make test-all` last passed.
LAST_FULL = "tests/last-full"
#: The area of tests that start nothing large, and the marks of all other tests.
LIGHT = "light"
LARGE = frozenset({"spark", "kafka", "s3", "hdfs", "kubernetes", "browser", "faults"})
#: Mark of the stories that show what an area promises; `make test` runs them whatever changed.
PROMISE = "promise"
#: CI runs the areas that these commits touched: all since `RECENT`, and at least this many.
RECENT, RECENT_COMMITS = "12 hours ago", 20
GIT_LIMIT_S = 60
_HEADER = (
    "# area, digest of its contents when `make test-all` last passed on them (bootstrap/areas.py)"
)
#: Imports in a module of tests, and modules in its strings, which it starts as programs.
_USES = re.compile(
    r"^\s*from (?P<package>tests[\w.]*) import (?P<names>\([^)]*\)|[^\n(]+)"
    r"|^\s*import (?P<module>tests\.[\w.]+)"
    r"|[\"'](?P<program>tests\.[\w.]+)",
    re.MULTILINE,
)
_PARAMETERS = re.compile(r"^ *def \w+\(([^)]+)\)", re.MULTILINE)


class GitMissingError(Exception):
    """Git cannot list this folder's files, so the changes are unknown."""


@dataclass(frozen=True)
class Area:
    """A part of the tests, and the paths that it is about; `areas.toml` describes the fields."""

    name: str
    about: str
    tests: tuple[str, ...]
    minutes: int = 0
    paths: tuple[str, ...] = ()
    mark: str = ""
    always: bool = False
    small: bool = False
    other_sparks: bool = False

    @property
    def patterns(self) -> tuple[str, ...]:
        """Return every pattern of a path whose change runs the area."""
        return self.tests + self.paths


class AreaTable:
    """The areas, in the order in which they are searched for a test."""

    def __init__(self, areas: Iterable[Area], root: Path = REPOSITORY) -> None:
        self.areas = {area.name: area for area in areas}
        self.root = root

    @classmethod
    def read(cls, file: Path = DATA, root: Path = REPOSITORY) -> "AreaTable":
        """Return the contents of the data file."""
        rows = tomllib.loads(file.read_text())["area"]
        lists = ("tests", "paths")
        return cls(
            (Area(**row | {name: tuple(row.get(name, ())) for name in lists}) for row in rows), root
        )

    @property
    def optional(self) -> list[Area]:
        """Return the areas that `make test` runs only if their contents have changed."""
        return [area for area in self.areas.values() if not area.always]

    def named(self, names: Sequence[str]) -> list[Area]:
        """Return the areas with these names; exit if one does not exist."""
        for name in names:
            if name not in self.areas:
                raise SystemExit(f"There is no area {name}. Choose {', '.join(self.areas)}.")
        return [self.areas[name] for name in names]

    def running(self, file: str, marks: Collection[str]) -> str:
        """Return the name of the area that runs a test; "" if it is large and no area does."""
        if LARGE.isdisjoint(marks):
            small = (
                candidate
                for candidate in self.optional
                if candidate.small and matches(file, candidate.tests)
            )
            return next((candidate.name for candidate in small), LIGHT)
        if "browser" in marks:
            return "browser"
        for area in self.optional:
            if area.small or area.other_sparks or not matches(file, area.tests):
                continue
            if not area.mark or area.mark in marks:
                return area.name
        return ""

    def about(self, path: str) -> list[Area]:
        """Return the areas that cover a path, in the table's order; [] if none is.

        A module or data file beside tests also belongs to each area with a test that uses it,
        except the ones that `ground` lists, which every test uses.
        """
        named = {area.name for area in self.areas.values() if matches(path, area.patterns)}
        if path.startswith("tests/") and "ground" not in named:
            for test in self._users(path):
                named |= {
                    optional.name for optional in self.optional if matches(test, optional.tests)
                }
        return [area for area in self.areas.values() if area.name in named]

    def selected(self, paths: Iterable[str]) -> list[str]:
        """Return the names of the optional areas that a change of paths runs completely."""
        names = {area.name for path in paths for area in self.about(path)}
        return [area.name for area in self.optional if area.name in names]

    def files(self) -> list[str]:
        """Return the paths that git tracks or would add; raise GitMissingError without git."""
        return sorted(
            name
            for name in self._git("ls-files", "-z", "-co", "--exclude-standard").split("\0")
            if name and os.path.lexists(self.root / name)
        )

    def digests(self) -> dict[str, str]:
        """Return a digest of each area's contents; raise GitMissingError without git."""
        digests = {name: hashlib.sha256() for name in self.areas}
        for path in self.files():
            contents = hashlib.sha256(_contents(self.root / path)).hexdigest()
            for area in self.about(path):
                digests[area.name].update(f"{path}\0{contents}\n".encode())
        return {name: digest.hexdigest()[:32] for name, digest in digests.items()}

    def last_full(self) -> dict[str, str]:
        """Return the digests on which `make test-all` last passed, by area."""
        file = self.root / LAST_FULL
        lines = file.read_text().splitlines() if file.exists() else []
        rows = (line.split() for line in lines if line and not line.startswith("#"))
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def record(self, passed: dict[str, str]) -> None:
        """Write the digests of areas on which all tests have passed; keep those of the others."""
        rows = {**self.last_full(), **passed}
        lines = [f"{name} {rows[name]}" for name in self.areas if name in rows]
        (self.root / LAST_FULL).write_text("\n".join([_HEADER, *lines, ""]))

    def changed(self) -> list[str]:
        """Return the optional areas whose contents differ from those that last passed.

        Without git, all of them may have changed.
        """
        before = self.last_full()
        try:
            now = self.digests()
        except GitMissingError:
            return [area.name for area in self.optional]
        return [
            optional.name
            for optional in self.optional
            if before.get(optional.name) != now[optional.name]
        ]

    def touched_by_recent_commits(self) -> list[str]:
        """Return the optional areas that are about a path which a recent commit changed."""
        log = ("log", "--name-only", "--format=", "-z")
        names = self._git(*log, f"--since={RECENT}") + self._git(*log, f"-{RECENT_COMMITS}")
        return self.selected({name.strip() for name in names.split("\0") if name.strip()})

    def rotated(self, names: Sequence[str]) -> list[str]:
        """Return the names, rotated to start at a different one for each commit."""
        first = int(self._git("rev-parse", "HEAD").strip(), 16) % max(1, len(names))
        return [*names[first:], *names[:first]]

    def _git(self, *arguments: str) -> str:
        try:
            return subprocess.run(
                ["git", *arguments],
                cwd=self.root,
                capture_output=True,
                check=True,
                timeout=GIT_LIMIT_S,
            ).stdout.decode(errors="surrogateescape")
        except (OSError, subprocess.SubprocessError) as error:
            raise GitMissingError(f"git {arguments[0]} failed: {error}") from error

    def _users(self, path: str) -> set[str]:
        """Return the tests that use a module or data file next to them, directly or indirectly."""
        users, left = {path}, [path]
        while left:
            for user in self._used_by[left.pop()] - users:
                users.add(user)
                left += [user] if user not in self.areas["ground"].paths else []
        users -= {*self.areas["ground"].paths}
        # Fixtures of a folder, and data, are used by the tests below it.
        folders = tuple(
            user.rpartition("/")[0] + "/"
            for user in users
            if user.endswith("/conftest.py") or not user.endswith(".py")
        )
        return {
            test
            for test in self._modules
            if _is_test(test) and (test in users or test.startswith(folders))
        }

    @cached_property
    def _modules(self) -> list[str]:
        """Return the Python files below tests/."""
        files = (self.root / "tests").rglob("*.py")
        return sorted(file.relative_to(self.root).as_posix() for file in files)

    @cached_property
    def _used_by(self) -> dict[str, set[str]]:
        """Return the files that use each module of tests, by its path.

        Fixtures that tests/conftest.py imports are used by a parameter's name.
        """
        users: defaultdict[str, set[str]] = defaultdict(set)
        fixtures: dict[str, str] = {}
        for file in self._modules:
            for use in _USES.finditer((self.root / file).read_text()):
                package = use["package"] or use["module"] or use["program"]
                names = re.findall(r"\w+", use["names"] or "")
                for module in (package, *(f"{package}.{name}" for name in names)):
                    users[f"{module.replace('.', '/')}.py"].add(file)
                if file == "tests/conftest.py":
                    fixtures |= dict.fromkeys(names, f"{package.replace('.', '/')}.py")
        for file in self._modules:
            for parameters in _PARAMETERS.findall((self.root / file).read_text()):
                for name in fixtures.keys() & set(re.findall(r"\w+", parameters)):
                    users[fixtures[name]].add(file)
        return users


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a path is one of the files, below one of the folders, or fits a pattern."""
    return any(
        path.startswith(pattern) or ("*" in pattern and _glob(pattern).match(path) is not None)
        if pattern.endswith("/") or "*" in pattern
        else path == pattern
        for pattern in patterns
    )


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    """Return a glob pattern as a regular expression; `*` matches within one path component."""
    parts = map(re.escape, pattern.split("*"))
    return re.compile("[^/]*".join(parts) + ("" if pattern.endswith("/") else "$"))


def left_out(table: AreaTable, areas: Sequence[Area]) -> str:
    """Return the areas that were not fully run, their duration, and the command for them."""
    if not areas:
        return "\nEvery area was run whole."
    names = " ".join(area.name for area in areas)
    arguments = "" if len(areas) == len(table.optional) else f' ARGS="{names}"'
    minutes = sum(area.minutes for area in areas)
    return "\n".join(
        [
            "\nNot run whole:",
            *(f"  {area.name:<12} {area.minutes:>3} min  {area.about}" for area in areas),
            f"`make test-all{arguments}` runs all of their tests: about {minutes} min on two"
            " quiet cores.",
        ]
    )


def _is_test(path: str) -> bool:
    return path.rpartition("/")[2].startswith("test_")


def _contents(file: Path) -> bytes:
    return os.fsencode(file.readlink()) if file.is_symlink() else file.read_bytes()
