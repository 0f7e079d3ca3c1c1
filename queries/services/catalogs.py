"""Declare the catalogs that applications can use by name. Only admins may call these functions."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from django.db import transaction
from django.db.models import QuerySet
from pydantic import Field

from controlplane.nudge import changed
from queries.domain.access import Act
from queries.domain.catalogs import CatalogAuth, CatalogType, problems
from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import Longest, StrictForm, Text
from queries.domain.errors import Conflict, Invalid, Missing, Problem
from queries.domain.secrets import catalog as holder_named
from queries.domain.secrets import unbound, uses_of_catalog
from queries.models.access.accounts import Team
from queries.models.catalogs import Catalog
from queries.models.drivers import Installation
from queries.selectors.definitions.sparks import spark_users
from queries.selectors.secrets import bound_to
from queries.services.access.admin_objects import AdminObject, Verb
from queries.services.access.audit import record_act
from queries.services.local_roots import length_problem
from queries.services.secrets import unbind_all

_MOST_NAMED = 5  # users in a rejection


class CatalogChange(StrictForm):
    """A catalog without its name.

    address: The URI of a REST catalog.
    warehouse: A URL such as s3a://bucket/lake, or the name that the catalog uses.
    properties: Further properties, from a closed list.
    secret: env:NAME or file:NAME, granted to the catalog.
    auth: Whether the secret is an OAuth2 client credential or a token.
    vended: Whether the catalog may issue credentials for its tables' storage.
    teams: The teams whose applications can use it; empty for every application.
    """

    type: CatalogType
    address: Annotated[str, Longest(1000)]
    warehouse: Annotated[str, Longest(1000)] = ""
    properties: dict[str, Text] = Field(default_factory=dict)
    secret: Annotated[str, Longest(200)] = ""
    auth: CatalogAuth = CatalogAuth.CREDENTIAL
    vended: bool = False
    teams: Annotated[list[Annotated[str, Longest(63)]], Longest(1000)] = Field(default_factory=list)


class CatalogForm(CatalogChange):
    """A complete catalog.

    name: The first part of its tables' names.
    """

    name: Annotated[str, Longest(80)]


def declare_catalog(raw: Mapping[str, Any], *, actor: str, now: datetime) -> Catalog:
    """Declare a catalog; an identical existing one is returned unchanged, with 200.

    Raises `Invalid` with every problem.
    """
    form = parsed(CatalogForm.model_validate, raw)
    with transaction.atomic():
        Installation.lock()
        if (row := Catalog.objects.filter(name=form.name).first()) is None:
            row = Catalog(name=form.name, created_at=now, created_by=actor)
            return _save(row, form, "declared", actor, now)
        if _form_of(row) != {**form.model_dump(), "teams": sorted(set(form.teams))}:
            way_out = "Choose another name, or change that catalog."
            message = "is the name of another catalog."
            raise Invalid([Problem("name", form.name, message, way_out)])
    return row


def change_catalog(row: Catalog, raw: Mapping[str, Any], *, actor: str, now: datetime) -> Catalog:
    """Replace a catalog; running drivers keep the previous one until they are restarted.

    Raises `Invalid` with every problem.
    """
    form = parsed(CatalogChange.model_validate, raw)
    with transaction.atomic():
        Installation.lock()
        if not Catalog.objects.filter(pk=row.pk).exists():
            raise Missing(f"Catalog {row.name} does not exist.")
        return _save(row, form, "changed", actor, now)


def _form_of(row: Catalog) -> dict[str, Any]:
    columns = {name: getattr(row, name) for name in CatalogForm.model_fields if name != "teams"}
    return {**columns, "teams": sorted(team.name for team in row.teams.all())}


def _save(row: Catalog, form: CatalogChange, did: str, actor: str, now: datetime) -> Catalog:
    for name, value in form.model_dump(exclude={"name", "teams"}).items():
        setattr(row, name, value)
    row.changed_at, row.changed_by = now, actor
    spec, holder = row.spec, holder_named(row.name)
    found = problems(spec)
    if spec.secret and not found:
        found = unbound(uses_of_catalog(spec), bound_to(holder), holder)
        found += filter(None, [length_problem("secret", spec.secret)])
    teams = list(Team.objects.filter(name__in=form.teams))
    found += [
        Problem("teams", name, "is not an existing team.", "Check the list of teams.")
        for name in sorted(set(form.teams) - {team.name for team in teams})
    ]
    if found:
        raise Invalid(found)
    row.save()
    row.teams.set(teams)
    about = {name: value for name, value in _form_of(row).items() if value and name != "name"}
    record_act(Act.CATALOG, actor=actor, now=now, subject=row.name, did=did, **about)
    changed("catalogs")
    return row


def delete_catalog(row: Catalog, *, actor: str, now: datetime) -> None:
    """Delete a catalog that nothing uses, and the grants of secrets to it.

    Raises `Conflict` while an application names it or a driver runs with it.
    """
    with transaction.atomic():
        Installation.lock()  # definitions are saved under this lock: no new references
        if users := [str(user) for user in spark_users() if row.name in user.catalogs]:
            more = f" and {len(users) - _MOST_NAMED} more" if len(users) > _MOST_NAMED else ""
            raise Conflict(
                f"Catalog {row.name} is used by {', '.join(users[:_MOST_NAMED])}{more}.",
                way_out="Change these applications, and wait until their drivers have ended.",
            )
        unbind_all(holder_named(row.name), actor=actor, now=now)
        record_act(Act.CATALOG, actor=actor, now=now, subject=row.name, did="deleted")
        row.delete()
        changed("catalogs")


def all_catalogs(user: Any) -> QuerySet[Catalog]:
    """List catalogs, newest first; admins only."""
    return Catalog.objects.prefetch_related("teams")


CATALOGS = AdminObject(
    "catalogs/<str:name>/",
    "Catalog",
    all_catalogs,
    "Return a catalog; admins only.",
    create=Verb("declare_catalog", declare_catalog, CatalogForm),
    replace=Verb("change_catalog", change_catalog, CatalogChange),
    remove=Verb("delete_catalog", delete_catalog),
    created_at="created_at",
)
