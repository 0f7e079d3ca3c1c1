"""Order units that restart together: what writes before what reads; circles have no order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Follows = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Order:
    """Which units must come before others."""

    before: Mapping[str, frozenset[str]]  # unit -> the units that precede it; others have none
    circles: tuple[tuple[str, ...], ...] = ()  # units that read each other's data


def order_of(units: Mapping[str, Iterable[str]], after: Follows) -> Order:
    """Return the order of units, each with its queries; `after` maps a query to its readers.

    A unit precedes another also if only queries outside of all units connect them. Units in a
    circle do not precede each other.
    """
    unit_of = {query: unit for unit, queries in units.items() for query in queries}
    follows = {unit: _next_units(set(units[unit]), unit_of, after) - {unit} for unit in units}
    parts = _circles(sorted(units), follows)
    part_of = {unit: part for part in parts for unit in part}
    before: dict[str, set[str]] = {}
    for unit, readers in follows.items():
        for reader in readers:
            if part_of[reader] is not part_of[unit]:
                before.setdefault(reader, set()).add(unit)
    return Order(
        {unit: frozenset(earlier) for unit, earlier in before.items()},
        tuple(sorted(tuple(sorted(part)) for part in parts if len(part) > 1)),
    )


def _next_units(queries: set[str], unit_of: Mapping[str, str], after: Follows) -> set[str]:
    """Return the nearest units downstream: a walk ends at the first query of another unit."""
    visited, last, units = set(queries), list(queries), set[str]()
    while last:
        name = last.pop()
        for reader in after.get(name, ()):
            if reader in visited:
                continue
            visited.add(reader)
            if reader in unit_of:
                units.add(unit_of[reader])
            else:
                last.append(reader)
    return units


def _circles(nodes: Sequence[str], follows: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components (Tarjan's algorithm, without recursion)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    open_nodes: list[str] = []
    is_open: set[str] = set()
    components: list[tuple[str, ...]] = []
    for root in nodes:
        if root in number:
            continue
        walk = [(root, iter(sorted(follows[root])))]
        number[root] = low[root] = len(number)
        open_nodes.append(root)
        is_open.add(root)
        while walk:
            node, left = walk[-1]
            other = next(left, None)
            if other is None:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[node])
                if low[node] == number[node]:
                    part = [open_nodes.pop()]
                    while part[-1] != node:
                        part.append(open_nodes.pop())
                    is_open -= set(part)
                    components.append(tuple(part))
            elif other not in number:
                number[other] = low[other] = len(number)
                open_nodes.append(other)
                is_open.add(other)
                walk.append((other, iter(sorted(follows[other]))))
            elif other in is_open:
                low[node] = min(low[node], number[other])
    return components
