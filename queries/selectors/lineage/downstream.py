"""Name what reads the data of the queries of an incident."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from listeners.loops.troubles import loop_errors
from queries.domain.counts import counted
from queries.domain.lineage.graph import Graph
from queries.models.alerts import Incident
from queries.models.definitions import Query
from queries.selectors.lineage.graph import lineage

_loop = loop_errors("downstream queries", logging.getLogger(__name__))

#: Names in one sentence; messages must stay short.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Below:
    """The queries downstream of an incident, nearest first, and why there may be more."""

    names: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()  # queries of which not all reads or writes are known

    @property
    def text(self) -> str:
        """Return it in one line, such as "late, daily (2 queries)"; "" for nothing."""
        names = in_words(self.names)
        if not self.unsure:
            return names
        return f"{names or 'none known'}; {incomplete(self.unsure)}"


class Downstream:
    """The queries downstream of incidents; the lineage is read once, when it is first needed."""

    @cached_property
    def _graph(self) -> Graph:
        return lineage()

    def of(self, incident: Incident) -> Below:
        """Return what is downstream of an incident's queries.

        Empty if the lineage cannot be read, which is logged: an incident is shown and sent without.
        """
        with _loop.isolate_errors(f"incident {incident.pk}"):
            if names := _names(incident):
                certain_and_unsure = (
                    self._graph.downstream(names),
                    self._graph.unsure_downstream(names),
                )
                return Below(*map(tuple, certain_and_unsure))
        return Below()


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


def in_words(names: Sequence[str]) -> str:
    """Return the names and their number: "late, daily (2 queries)"; "" for none."""
    if not names:
        return ""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more} ({counted(len(names), 'query,queries')})"


def incomplete(unsure: Sequence[str]) -> str:
    """Return why a list of queries may lack some; "" if it is complete."""
    sentence = "the list may be incomplete, because not all reads and writes are known of"
    return f"{sentence} {in_words(unsure)}" if unsure else ""
