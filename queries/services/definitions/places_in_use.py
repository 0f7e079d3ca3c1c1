"""Which places definitions name outside of the data roots: what an upgrade would stop."""

from collections.abc import Iterator
from dataclasses import dataclass

from queries.domain.definitions.data_roots import fixed_part, resolved
from queries.domain.definitions.locations import NotALocation, local_path
from queries.domain.definitions.spec import ApplicationSpec
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.selectors.newest import newest_revisions
from queries.selectors.supervision.drift import newest_application_revisions
from queries.selectors.triggers.cores import parsed_or_none
from queries.services.definitions import surroundings
from queries.services.local_roots import follow


@dataclass(frozen=True, slots=True)
class Outside:
    """A place that a living definition names and that no data root holds."""

    about: str  # "query delays" | "application flights"
    field: str
    text: str
    root: str  # the folder or URL prefix that would allow it


def places_outside() -> Iterator[Outside]:
    """Yield the places of living definitions that lie outside of the data roots."""
    queries = dict(Query.objects.filter(archived_at=None).values_list("pk", "name"))
    for pk, revision in sorted(newest_revisions(list(queries)).items()):
        spec = parsed_or_none(revision.spec)
        if spec is not None:
            for problem in surroundings.data_problems(spec):
                yield _outside(f"query {queries[pk]}", problem.field, problem.value)
    used = Checkpoint.objects.filter(query__in=queries, retired_at=None)
    for query, location in used.order_by("query").values_list("query__name", "location"):
        for problem in surroundings.checkpoint_problems(location):
            yield _outside(f"query {query}", problem.field, problem.value)
    applications = dict(Application.objects.filter(archived_at=None).values_list("pk", "name"))
    for pk, newest in sorted(newest_application_revisions(list(applications)).items()):
        for problem in surroundings.conf_problems(ApplicationSpec.model_validate(newest.spec)):
            yield _outside(f"application {applications[pk]}", problem.field, problem.value)


def _outside(about: str, field: str, text: str) -> Outside:
    """Propose the folder in which a place lies, so that its neighbours are allowed with it."""
    try:
        location = resolved(fixed_part(text), follow)
    except NotALocation:
        return Outside(about, field, text, "")
    parent = location.rpartition("/")[0]
    return Outside(about, field, text, local_path(parent) or parent)
