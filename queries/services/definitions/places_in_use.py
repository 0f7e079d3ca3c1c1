"""Find places named by definitions that are outside the data roots."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from listeners.loops.troubles import loop_errors
from queries.domain.definitions.data_roots import (
    DataRoots,
    conf_places,
    fixed_part,
    places,
    resolved,
)
from queries.domain.definitions.locations import NotALocation, local_path
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import Problem
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.selectors.newest import newest_revisions
from queries.selectors.secrets import all_given_roots
from queries.selectors.supervision.drift import newest_application_revisions
from queries.selectors.triggers.cores import parsed_or_none
from queries.services.local_roots import data_roots, follow, is_own, outside

_each = loop_errors("places in use", logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class Outside:
    """A place that an existing definition names and that is not in any data root."""

    application: str  # its name
    about: str  # "query delays" or "application flights"
    field: str
    text: str
    root: str  # the folder or URL prefix that would allow it


def places_outside() -> Iterator[Outside]:
    """Yield the places in existing definitions that are outside the data roots."""
    given = all_given_roots()

    @cache  # resolve links once per application, not per query
    def roots_of(application: str, *, checkpoints: bool = False) -> DataRoots:
        mine = given.get(application, ())
        return data_roots(application, checkpoints=checkpoints, granted_roots=mine)

    living = Query.objects.filter(archived_at=None).values_list("pk", "name", "application__name")
    queries = {pk: (name, application) for pk, name, application in living}
    for pk, revision in sorted(newest_revisions(list(queries)).items()):
        name, application = queries[pk]
        spec = parsed_or_none(revision.spec)
        if spec is not None:
            for problem in outside(places(spec), roots_of(application)):
                yield _outside(application, f"query {name}", problem)
    used = Checkpoint.objects.filter(query__in=queries, retired_at=None).order_by("query")
    for pk, location in used.values_list("query", "location"):
        name, application = queries[pk]
        roots = roots_of(application, checkpoints=True)
        for problem in outside([("checkpoint", location)], roots):
            yield _outside(application, f"query {name}", problem)
    applications = dict(Application.objects.filter(archived_at=None).values_list("pk", "name"))
    for pk, newest in sorted(newest_application_revisions(list(applications)).items()):
        name = applications[pk]
        with _each.isolate_errors(f"application {name}"):
            conf = ApplicationSpec.model_validate(newest.spec).conf
            for problem in outside(conf_places(conf), roots_of(name)):
                yield _outside(name, f"application {name}", problem)


def _outside(application: str, about: str, problem: Problem) -> Outside:
    """Propose the folder that contains a place, so that its neighbours are allowed too.

    No folder is proposed if it is one of the control plane's own.
    """
    field, text = problem.field, problem.value
    try:
        location = resolved(fixed_part(text), follow)
    except NotALocation:
        return Outside(application, about, field, text, "")
    parent = location.rpartition("/")[0]
    root = local_path(parent) or parent
    return Outside(application, about, field, text, "" if is_own(root) else root)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A root that would include the places that an application names; "" if there is none."""

    application: str
    root: str
    places: tuple[Outside, ...]


def proposals() -> list[Proposal]:
    """Propose roots that would include the places outside, by application; none is granted."""
    found: dict[tuple[str, str], list[Outside]] = {}
    for one in places_outside():
        found.setdefault((one.application, one.root), []).append(one)
    return [Proposal(*key, tuple(places)) for key, places in sorted(found.items())]
