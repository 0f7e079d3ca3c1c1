"""Which queries a deploy tries before its first wave, besides those whose definitions change.

A change of an application's code or packages reaches every query of its driver, whatever its own
definition says.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from queries.domain.definitions.code import IMPORTED


@dataclass(frozen=True, slots=True)
class Beside:
    """A query that does not change, and restarts with its application's driver."""

    name: str
    application: str
    is_python: bool


def imports_differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two definitions of an application differ in code or packages."""
    return any(before.get(name) != after.get(name) for name in IMPORTED)


def tried_beside(
    beside: Iterable[Beside], *, new_imports: Collection[str], tried: Collection[str]
) -> frozenset[str]:
    """Return the queries that are tried with new code and packages although they do not change.

    new_imports: applications whose code or packages change; tried: those of which a changed query
    is tried already. Queries in Python are, all of them; SQL imports nothing, so one query is
    enough to show that the packages can be installed, where no other does.
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
