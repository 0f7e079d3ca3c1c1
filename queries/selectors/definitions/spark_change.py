"""Show what another Spark would do with the checkpoint of each query of an application."""

from dataclasses import dataclass
from typing import Any

from queries.domain.sparks import Spark, spark_of
from queries.domain.sparks.upgrade import as_json
from queries.domain.states import Verb
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.selectors.definitions.written_by import written_of


@dataclass(frozen=True, slots=True)
class SparkRow:
    """One query, its checkpoint, and the newest preflight with the other Spark."""

    query: Query
    told: dict[str, Any] | None  # `upgrade.as_json`; None: no checkpoint, or unknown from here
    trial: Operation | None


def spark_rows(application: Application, to: Spark) -> list[SparkRow]:
    """Return the existing queries of an application by name, for a change to another Spark."""
    back = spark_of(application.revisions.order_by("-number")[0].spec)
    living = application.queries.filter(archived_at=None).order_by("name")
    return [_row(query, back, to) for query in living.select_related("application")]


def _row(query: Query, back: Spark, to: Spark) -> SparkRow:
    found = written_of(query)
    told = as_json(found, found, to, back) if found is not None else None
    tried = Operation.objects.filter(
        query=query, verb=Verb.PREFLIGHT, arguments__application_spec__spark=to
    )
    return SparkRow(query, told, tried.order_by("-created_at", "-pk").first())
