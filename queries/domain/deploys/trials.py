"""Select the unchanged queries that a deploy tries before its first wave.

A change to an application's code or packages affects every query of its driver, regardless of the
query's own definition.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from queries.domain.definitions.code import IMPORTED


@dataclass(frozen=True, slots=True)
class Beside:
    """An unchanged query that restarts with its application's driver."""

    name: str
    application: str
    is_python: bool


def imports_differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two definitions of an application differ in code or packages."""
    return any(before.get(name) != after.get(name) for name in IMPORTED)


def tried_beside(
    beside: Iterable[Beside], *, new_imports: Collection[str], tried: Collection[str]
) -> frozenset[str]:
    """Return the unchanged queries that are tried with new code and packages.

    new_imports: applications whose code or packages change. tried: applications that have a changed
    query that is already being tried. All Python queries are tried. SQL queries import nothing, so
    if there are only SQL queries, one is enough to show that the packages can be installed.
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
