"""Divide changes into waves: what restarts together, in what order, and what is tried first.

A change to an application's code, packages, configuration or pools restarts its driver with all of
its queries: they are one unit, in waves of applications. Other queries restart individually. A wave
contains units of one kind, except for the canary wave. Units that write what others read go in
earlier waves (`queries.domain.lineage.order`).

A change to code or packages also affects queries whose own definition is unchanged. Some of them
are tried before the first wave.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from queries.domain.definitions.code import IMPORTED
from queries.domain.deploys.forms import Waves
from queries.domain.deploys.states import ChangeKind
from queries.domain.errors import Invalid, Problem

#: Units without an order: their names decide.
NO_ORDER: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True, slots=True)
class RestartGroup:
    """A group that can only restart together."""

    kind: ChangeKind
    name: str
    queries: tuple[str, ...] = ()  # for an application: the queries that restart with it

    @property
    def key(self) -> str:
        """Return a text that identifies it among units of both kinds."""
        return f"{self.kind}:{self.name}"

    @property
    def names(self) -> frozenset[str]:
        """Return the names by which a canary may refer to it."""
        return frozenset({self.name, *self.queries})


@dataclass(frozen=True, slots=True)
class UnchangedQuery:
    """An unchanged query that restarts with its application's driver."""

    name: str
    application: str
    is_python: bool


def divide(
    units: Iterable[RestartGroup], waves: Waves, before: Mapping[str, Collection[str]] = NO_ORDER
) -> list[tuple[RestartGroup, ...]]:
    """Return the waves in order: the canary, then each unit after those that precede it.

    `before` maps a unit's `key` to the keys of the units that must be in earlier waves. Of the
    units that can go, applications go first, and then queries, both by name. Raises `Invalid` if a
    canary's name does not match any change.
    """
    left = sorted(units, key=lambda unit: (unit.kind != ChangeKind.APPLICATION, unit.name))
    canary = [unit for unit in left if unit.names & set(waves.canary)]
    _require_restarted(waves.canary, left)
    rest = [unit for unit in left if unit not in canary]
    divided = [tuple(canary)] if canary else []
    positions = {unit.key: at for at, unit in enumerate(rest)}
    waits = {
        key: {key_before for key_before in before.get(key, ()) if key_before in positions}
        for key in positions
    }
    later: dict[str, list[str]] = defaultdict(list)
    for key, earlier in waits.items():
        for key_before in earlier:
            later[key_before].append(key)
    ready = [
        at for key, at in positions.items() if not waits[key]
    ]  # a heap of places: it is sorted
    queued, done = set(ready), 0
    while done < len(rest):
        if not ready:  # a circle, which `before` should not contain
            ready = [at for at in range(len(rest)) if at not in queued]
            queued.update(ready)
        wave = [rest[heappop(ready)]]
        while ready and len(wave) < waves.size and rest[ready[0]].kind is wave[0].kind:
            wave.append(rest[heappop(ready)])
        divided.append(tuple(wave))
        done += len(wave)
        for key in (key for unit in wave for key in later[unit.key]):
            waits[key] -= {unit.key for unit in wave}
            if not waits[key] and positions[key] not in queued:
                queued.add(positions[key])
                heappush(ready, positions[key])
    return divided


def _require_restarted(names: Iterable[str], units: Sequence[RestartGroup]) -> None:
    restarted = frozenset[str]().union(*(unit.names for unit in units))
    problems = [
        Problem(
            "waves.canary",
            name[:200],
            "is not restarted by this deploy.",
            f"Restarted by this deploy: {', '.join(sorted(restarted)[:20]) or 'none'}.",
        )
        for name in names
        if name not in restarted
    ]
    if problems:
        raise Invalid(problems)


def imports_differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two definitions of an application differ in code or packages."""
    return any(before.get(name) != after.get(name) for name in IMPORTED)


def tried_beside(
    beside: Iterable[UnchangedQuery],
    *,
    new_imports: Collection[str],
    tried: Collection[str],
    new_sparks: Collection[str] = (),
) -> frozenset[str]:
    """Return the unchanged queries that are tried with new code and packages, or a new Spark.

    new_sparks: applications whose Spark changes; all their queries are tried, because each has its
    own checkpoint. new_imports: applications whose code or packages change. tried:
    applications that have a changed query that is already being tried. All Python queries are
    tried. SQL queries do not import anything, so if there are only SQL queries, one is enough to
    show that the packages can be installed.
    """
    beside = list(beside)
    queries = {query.name for query in beside if query.application in new_sparks}
    ordered = sorted(
        (query for query in beside if query.application in new_imports),
        key=lambda query: query.name,
    )
    queries |= {query.name for query in ordered if query.is_python}
    shown = {*tried, *(query.application for query in ordered if query.is_python)}
    for query in ordered:
        if query.application not in shown:
            queries.add(query.name)
            shown.add(query.application)
    return frozenset(queries)
