"""Divide changes into waves: what restarts together, in what order, and what is tried first.

A change to an application's code, packages, configuration or pools restarts its driver with all of
its queries: they are one unit, in waves of applications. Other queries restart individually. A wave
contains units of one kind, except for the canary wave.

A change to code or packages also affects queries whose own definition is unchanged. Some of them
are tried before the first wave.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queries.domain.definitions.code import IMPORTED
from queries.domain.deploys.forms import Waves
from queries.domain.deploys.states import ChangeKind
from queries.domain.errors import Invalid, Problem


@dataclass(frozen=True, slots=True)
class Unit:
    """A group that can only restart together."""

    kind: ChangeKind
    name: str
    queries: tuple[str, ...] = ()  # for an application: the queries that restart with it

    @property
    def names(self) -> frozenset[str]:
        """Return the names by which a canary may refer to it."""
        return frozenset({self.name, *self.queries})


@dataclass(frozen=True, slots=True)
class Beside:
    """An unchanged query that restarts with its application's driver."""

    name: str
    application: str
    is_python: bool


def divide(units: Iterable[Unit], waves: Waves) -> list[tuple[Unit, ...]]:
    """Return the waves in order: the canary, applications by name, queries by name.

    Raises `Invalid` if a canary's name does not match any change.
    """
    left = sorted(units, key=lambda unit: (unit.kind != ChangeKind.APPLICATION, unit.name))
    canary = [unit for unit in left if unit.names & set(waves.canary)]
    _insist_known(waves.canary, left)
    rest = [unit for unit in left if unit not in canary]
    found = [tuple(canary)] if canary else []
    for kind in (ChangeKind.APPLICATION, ChangeKind.QUERY):
        found += _sliced([unit for unit in rest if unit.kind is kind], waves.size)
    return found


def _insist_known(names: Iterable[str], units: Sequence[Unit]) -> None:
    known = frozenset[str]().union(*(unit.names for unit in units))
    problems = [
        Problem(
            "waves.canary",
            name[:200],
            "is not restarted by this deploy.",
            f"Restarted by this deploy: {', '.join(sorted(known)[:20]) or 'none'}.",
        )
        for name in names
        if name not in known
    ]
    if problems:
        raise Invalid(problems)


def _sliced(units: Sequence[Unit], size: int) -> list[tuple[Unit, ...]]:
    return [tuple(units[at : at + size]) for at in range(0, len(units), size)]


def imports_differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two definitions of an application differ in code or packages."""
    return any(before.get(name) != after.get(name) for name in IMPORTED)


def tried_beside(
    beside: Iterable[Beside], *, new_imports: Collection[str], tried: Collection[str]
) -> frozenset[str]:
    """Return the unchanged queries that are tried with new code and packages.

    new_imports: applications whose code or packages change. tried: applications that have a changed
    query that is already being tried. All Python queries are tried. SQL queries do not import
    anything, so if there are only SQL queries, one is enough to show that the packages can be
    installed.
    """
    ordered = sorted(
        (one for one in beside if one.application in new_imports), key=lambda one: one.name
    )
    found = {one.name for one in ordered if one.is_python}
    shown = {*tried, *(one.application for one in ordered if one.is_python)}
    for one in ordered:
        if one.application not in shown:
            found.add(one.name)
            shown.add(one.application)
    return frozenset(found)
