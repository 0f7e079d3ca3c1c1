"""Read the catalogs that admins declare, and which of them an application can use."""

from collections.abc import Iterable

from queries.domain.catalogs import PAGE, CatalogSpec
from queries.domain.errors import Problem
from queries.domain.secrets import catalog, unbound, uses_of_catalog
from queries.models.access.accounts import Team
from queries.models.catalogs import Catalog
from queries.selectors.secrets import bound_to


def catalog_specs(names: Iterable[str]) -> dict[str, CatalogSpec]:
    """Return the existing catalogs among these, by name."""
    wanted = list(names)
    return {row.name: row.spec for row in Catalog.objects.filter(name__in=wanted)} if wanted else {}


def catalog_names(team: Team | None) -> list[str]:
    """Return the names of the catalogs that applications of a team, or without one, can use."""
    rows = Catalog.objects.prefetch_related("teams")
    return [row.name for row in rows if not (teams := row.teams.all()) or team in teams]


def access_problems(names: Iterable[str], team: Team | None) -> list[Problem]:
    """Return a problem for each catalog that an application of a team cannot use.

    Its secret may also not be granted to it any more, or not for its address.
    """
    wanted = list(names)
    if not wanted:
        return []
    usable, specs = catalog_names(team), catalog_specs(wanted)
    choices = f"Choose {', '.join(usable)}, or ask" if usable else "Ask"
    problems = []
    for index, name in enumerate(wanted):
        at = f"catalogs.{index}"
        if name not in specs:
            way_out = f"{choices} an administrator to declare it: {PAGE}."
            problems.append(Problem(at, name[:200], "is not a declared catalog.", way_out))
        elif name not in usable:
            whom = f"team {team}" if team else "applications without a team"
            way_out = f"{choices} an administrator to allow it: {PAGE}."
            problems.append(Problem(at, name, f"is not available to {whom}.", way_out))
        else:
            problems += unbound(
                uses_of_catalog(specs[name]), bound_to(catalog(name)), catalog(name)
            )
    return problems
