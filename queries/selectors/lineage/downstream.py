"""Name what reads the data of the queries of an incident."""

import logging
from functools import cached_property

from listeners.loops.troubles import each
from queries.domain.lineage.graph import Graph
from queries.models.alerts import Incident
from queries.models.definitions import Query
from queries.selectors.lineage.graph import lineage

_each = each("downstream queries", logging.getLogger(__name__))

#: Names in one sentence; messages must stay short.
NAMED = 5


class Downstream:
    """The queries downstream of incidents; the lineage is read once, when it is first needed."""

    @cached_property
    def _graph(self) -> Graph:
        return lineage()

    def of(self, incident: Incident) -> list[str]:
        """Return the queries downstream of an incident's queries, nearest first.

        Empty if the lineage cannot be read, which is logged: an incident is shown and sent without.
        """
        with _each.by_itself(f"incident {incident.pk}"):
            names = _names(incident)
            return self._graph.downstream(names) if names else []
        return []


def _names(incident: Incident) -> list[str]:
    """Return the queries that an incident is about."""
    if incident.query is not None:
        return [incident.query.name]
    if incident.affected:
        return [str(name) for name in incident.affected]
    if incident.application_id is None:
        return []
    rows = Query.objects.filter(application=incident.application_id, archived_at=None)
    return list(rows.order_by("name").values_list("name", flat=True))


def in_words(names: list[str]) -> str:
    """Return the names and their number: "late, daily (2 queries)"; "" for none."""
    if not names:
        return ""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    noun = "query" if len(names) == 1 else "queries"
    return f"{', '.join(names[:NAMED])}{more} ({len(names):,} {noun})"
