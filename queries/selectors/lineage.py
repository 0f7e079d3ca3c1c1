"""Read the lineage of all queries, a part of it, and an incident's downstream queries."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.db.models import OuterRef, Q, Subquery

from listeners import selectors as heard
from listeners.loops.backlogs import loop_errors
from queries.brokers.options import matches, parses
from queries.domain.catalogs import marked
from queries.domain.definitions.labels import Selection
from queries.domain.lineage.datasets import BatchReport, DatasetKind, Uses, uses_of
from queries.domain.lineage.graph import Graph, graph_of
from queries.domain.readings import counted
from queries.domain.states import RunOutcome
from queries.models.alerts import Incident
from queries.models.applications import ApplicationRevision
from queries.models.definitions import Query, QueryRevision
from queries.models.drivers import Run
from queries.selectors import visible
from queries.selectors.supervision.query_filters import matching

_loop = loop_errors("lineage", logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class Planned:
    """Definitions that are not saved yet: they replace the saved ones, or are new."""

    #: name -> (JSON form, application, the relations in its SQL)
    queries: Mapping[str, tuple[Mapping[str, Any], str, Any]]
    confs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # application -> conf


def lineage(planned: Planned | None = None) -> Graph:
    """Return the lineage of all existing queries.

    A running query counts as it runs, and any other as its newest revision; `planned` definitions
    take precedence. Spark's report counts for code, and for patterns of topics. A query whose
    definition or report cannot be read is unknown, and is logged.
    """
    rows = visible.queries() if planned is None else Query.objects.all()  # planned: a decision
    planned = planned or Planned({})
    rows = rows.filter(archived_at=None)
    names = {
        pk: (name, application)
        for pk, name, application in rows.values_list("pk", "name", "application__name")
    }
    specs, reports, confs = _specs(), _reports(), _confs()
    # What was read of a text holds for the same text elsewhere.
    reads_by_text = {
        text: reads for spec, reads in specs.values() if reads and (text := _text(spec))
    }
    confs |= {name: dict(conf) for name, conf in planned.confs.items()}
    uses: dict[str, Uses] = {}
    for pk, (name, application) in names.items():
        if pk in specs and name not in planned.queries:
            spec, reads = specs[pk]
            conf, reads = confs.get(application, {}), reads or reads_by_text.get(_text(spec))
            uses[name] = _uses(name, spec, conf, reports.get(pk), reads)
    pks = {name: pk for pk, (name, _) in names.items()}
    for name, (spec, application, reads) in planned.queries.items():
        report = reports.get(pks.get(name, 0))
        reads = reads or reads_by_text.get(_text(spec))
        uses[name] = _uses(name, spec, confs.get(application, {}), report, reads)
    return graph_of(uses, matches)


def selected(graph: Graph, selection: Selection) -> tuple[Graph, frozenset[str]]:
    """Return the part of a graph with the matching queries and their direct neighbours.

    Also return the names of the matching queries; without terms, the complete graph and no names.
    """
    if not selection:
        return graph, frozenset()
    rows = matching(visible.queries().filter(archived_at=None), selection)
    names = frozenset(rows.values_list("name", flat=True))
    return graph.of(graph.near(names)), names


def _uses(
    name: str,
    spec: Mapping[str, Any],
    conf: Mapping[str, str],
    report: BatchReport | None,
    reads: Any,
) -> Uses:
    try:
        uses = uses_of(spec, conf, report, reads)
    except Exception as error:
        _loop.record_error(f"the lineage of {name}", error)
        reason = ("Its definition or Spark's report cannot be read.",)
        return Uses(unread=reason, unwritten=reason)
    unread = (
        f"Reads: Headgate cannot read the pattern {use.dataset.name!r}; "
        "only topics that Spark reports are known."
        for use in uses.reads
        if use.pattern and use.dataset.kind is DatasetKind.TOPIC and not parses(use.dataset.name)
    )
    return replace(uses, unread=(*uses.unread, *unread))


def _text(spec: Any) -> str:
    """Return the SQL of a definition of any shape; "" if there is none."""
    return str(spec.get("sql") or "") if isinstance(spec, Mapping) else ""


def _specs() -> dict[int, tuple[Mapping[str, Any], Any]]:
    """Return each query's definition, with the relations in its SQL.

    It is the revision of its open run, or else the newest.
    """
    running = dict(Run.objects.filter(outcome=RunOutcome.OPEN).values_list("query", "revision"))
    newest = QueryRevision.objects.filter(query=OuterRef("query")).order_by("-number")
    rows = QueryRevision.objects.filter(
        Q(pk=Subquery(newest.values("pk")[:1]))
        | Q(pk__in=Run.objects.filter(outcome=RunOutcome.OPEN).values("revision")),
        query__archived_at=None,
    )
    specs = {}
    columns = ("pk", "query", "spec", "reads")
    for pk, query, spec, reads in rows.order_by("number").values_list(*columns):
        if running.get(query, pk) == pk:
            specs[query] = (spec, reads)
    return specs


def _confs() -> dict[str, dict[str, str]]:
    """Return each application's Spark configuration, newest revision, with catalogs, by name."""
    newest = ApplicationRevision.objects.filter(application=OuterRef("application"))
    newest = newest.order_by("-number")
    rows = ApplicationRevision.objects.filter(
        pk=Subquery(newest.values("pk")[:1]), application__archived_at=None
    )
    conf_rows = rows.order_by().values_list("application__name", "spec__conf", "spec__catalogs")
    return {
        name: marked(conf, used if isinstance(used, list) else ())
        for name, conf, used in conf_rows
        if isinstance(conf, dict)
    }


def _reports() -> dict[int, BatchReport]:
    """Return Spark's last report on each query that runs code or reads a topic pattern."""
    revisions = QueryRevision.objects.exclude(kind="sql") | QueryRevision.objects.filter(
        names_kafka=True
    )
    descriptions = heard.described(revisions.order_by().values("query"))
    return {query: BatchReport(sources, sink, at) for query, at, sources, sink in descriptions}


_loop_downstream = loop_errors("downstream queries", logging.getLogger(__name__))

#: Names in one sentence; messages must stay short.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Below:
    """The queries downstream of an incident, nearest first, and why there may be more."""

    names: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()  # queries of which not all reads or writes are known

    @property
    def text(self) -> str:
        """Return the list in one line, such as "late, daily (2 queries)"; "" for nothing."""
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
        """Return the datasets and queries downstream of an incident's queries.

        Empty if the lineage cannot be read, which is logged: an incident is shown and sent without.
        """
        with _loop_downstream.isolate_errors(f"incident {incident.pk}"):
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
