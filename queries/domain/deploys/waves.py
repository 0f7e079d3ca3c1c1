"""Divide changes into waves: what restarts together, and in which order.

A change to an application's code, packages, configuration or pools restarts its driver with all of
its queries: they are one unit, in waves of applications. Other queries restart individually. A wave
contains units of one kind, except for the canary wave.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


def divide(units: Iterable[Unit], waves: Waves) -> list[tuple[Unit, ...]]:
    """Return the waves in order: the canary, applications by name, queries by name.

    Raises `Invalid` if a canary names nothing that changes.
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
            f"It restarts {', '.join(sorted(known)[:20]) or 'nothing'}.",
        )
        for name in names
        if name not in known
    ]
    if problems:
        raise Invalid(problems)


def _sliced(units: Sequence[Unit], size: int) -> list[tuple[Unit, ...]]:
    return [tuple(units[at : at + size]) for at in range(0, len(units), size)]
